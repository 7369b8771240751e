package envoy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/envoy"
	"github.com/weirlimit/weir/limiter"
)

// inBothModes runs a test with a file in both modes.
func inBothModes(t *testing.T, file string, change func(*envoy.Options), test func(t *testing.T, f *fixture)) {
	for mode, name := range []string{"compat", "atomic"} {
		t.Run(name, func(t *testing.T) {
			test(t, newFixture(t, file, func(o *envoy.Options) {
				if o.Mode = envoy.Mode(mode); change != nil {
					change(o)
				}
			}))
		})
	}
}

// is asks and fails the test if the answer does not begin so.
func (f *fixture) is(want string, descriptors ...string) {
	f.t.Helper()
	if got := f.ask(0, descriptors...); !strings.HasPrefix(got, want) {
		f.t.Errorf("%q: %s, want %s", descriptors, got, want)
	}
}

func allowRefunds(o *envoy.Options) { o.Config.AllowRefunds = true }

// Hits are taken back whoever was charged, and never below nothing.
func TestNegativeHits(t *testing.T) {
	inBothModes(t, twoKeys, allowRefunds, func(t *testing.T, f *fixture) {
		f.is("ok; ok 3/minute left 3", "a=1 back hits=2") // nothing was charged
		f.is("ok; ok 3/minute left 0", "a=1 hits=3")
		f.is("ok; ok 3/minute left 2", "a=1 back hits=2")
		f.is("ok; ok 3/minute left 1", "a=1")
		f.is("ok; ok 3/minute left 1", "a=1 back hits=0")
		f.is("ok; ok 3/minute left 3", "a=1 back hits=4294967295")
		f.is("ok; ok 3/minute left 2, 60s; ok 1/hour left 0", "a=1", "b=1")
		f.is("over; ok 3/minute", "a=1 back", "b=1")
		f.is("ok; ok; ok 1/hour left 1", "c=1 back", "b=1 back hits=9")
	})
	f := newFixture(t, twoKeys, allowRefunds)
	f.ask(0, "a=1 hits=3")
	f.is("over; over 3/minute left 0", "a=1 hits=2")
	f.is("ok; ok 3/minute left 0", "a=1 back hits=1")
	f.is("over; over 3/minute left 0", "a=1 hits=1") // of five that were counted, one came back
}

// A limit of 0 is over for who only looks, too: with hits_addend 0 for each request and the real cost at its end, a
// client that is to have nothing would never be denied otherwise.
func TestALookAtNothing(t *testing.T) {
	inBothModes(t, twoKeys+"  - {key: none, rate_limit: {unit: day, requests_per_unit: 0}}\n", allowRefunds,
		func(t *testing.T, f *fixture) {
			f.is("over; ok 3/minute left 3, 60s; over 0/day left 0", "a=1 hits=0", "none=1 hits=0")
			f.is("ok; ok 0/day left 0", "none=1 hits=0 back")
		})
}

// A look sees what the descriptors before it charge, and not what those after it do.
func TestALookBeforeACharge(t *testing.T) {
	f := newFixture(t, twoKeys, nil)
	f.is("ok; ok 1/hour left 0, 3600s; ok 1/hour left 0", "b=1", "b=1 hits=0")
	f.is("over; ok 1/hour left 0, 3600s; over 1/hour left 0, 3600s; ok 1/hour", "b=1 hits=0", "b=1", "b=2")
	f.is("over; over 1/hour left 0", "b=1 hits=0")
	f.is("over; ok 3/minute left 3, 60s; over 3/minute left 0, 60s; over 3/minute", "a=1 hits=0", "a=1 hits=9",
		"a=1 hits=0")
}

// More hits than 32 bits hold are over each limit.
func TestHitsBeyondEachLimit(t *testing.T) {
	inBothModes(t, "domain: edge\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 4294967295}}]\n", nil,
		func(t *testing.T, f *fixture) {
			f.is("ok; ok 4294967295/day left 1", "a=1 hits=4294967294")
			f.is("over; over 4294967295/day", "a=2 hits=4294967296")
			f.is("over; over 4294967295/day", "a=3 hits=18446744073709551615")
		})
}

// A denial in atomic mode takes no hits back either: all or nothing.
func TestNegativeHitsOfADeniedRequest(t *testing.T) {
	f := newFixture(t, twoKeys, func(o *envoy.Options) { o.Mode, o.Config.AllowRefunds = envoy.Atomic, true })
	f.is("ok; ok 3/minute left 0, 60s; ok 1/hour left 0", "a=1 hits=3", "b=1")
	f.is("over; ok 3/minute left 0, 60s; over 1/hour", "a=1 back", "b=1")
	f.is("over; over 3/minute", "a=1")
}

func TestNegativeHitsAreRefused(t *testing.T) {
	newFixture(t, twoKeys,
		nil).is("is_negative_hits is not allowed here: the operator must start the node with --allow-refunds", "a=1 back")
	newFixture(t, twoKeys, func(o *envoy.Options) { o.Config.AllowRefunds, o.Algorithm = true, limiter.SlidingLog }).
		is("descriptor 0 has is_negative_hits: sliding_log counts each hit by its instant", "a=1 back")
}

// With STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT only what is over its limit counts a request
// that is denied.
func TestStopWhenOver(t *testing.T) {
	f := newFixture(t, twoKeys, func(o *envoy.Options) { o.StopWhenOver = true })
	f.is("ok; ok 3/minute left 2, 60s; ok 1/hour left 0", "a=1", "b=1")
	for range 5 {
		f.is("over; ok 3/minute left 2, ", "a=1", "b=1")
	}
	f.is("ok; ok 3/minute left 1", "a=1")
	// What is denied counts where it is denied: one more than is there.
	f.is("over; over 3/minute left 0", "a=1 hits=2")
	f.is("over; over 3/minute left 0", "a=1")
	f = newFixture(t, twoKeys+"  - {key: none, rate_limit: {unit: day, requests_per_unit: 0}}\n", func(o *envoy.Options) {
		o.StopWhenOver = true
	})
	f.is("over; ok 3/minute left 3, ", "a=1", "none=1")
	f.is("ok; ok 3/minute left 3, ", "a=1 hits=0")
	f.is("over; ok 3/minute left 3, ", "a=1 hits=0", "none=1")
}

// Two descriptors of one counter are asked about each by itself, as the original gets all counts before it adds to any,
// and are charged one after the other: so a request of which the second is over counts everywhere.
func TestStopWhenOverWithOneCounterTwice(t *testing.T) {
	f := newFixture(t, twoKeys, func(o *envoy.Options) { o.StopWhenOver = true })
	f.is("ok; ok 3/minute left 1", "a=1 hits=2")
	f.is("over; ok 3/minute left 0, 60s; over 3/minute left 0, 60s; ok 1/hour left 0", "a=1", "a=1", "b=1")
	f.is("over; over 3/minute left 0, 60s; over 3/minute left 0, 60s; ok 1/hour left 1", "a=1", "a=1", "b=2")
}

// A request that passes counts everywhere, also if a shadow limit or one of two quotas is over. One that a
// look denies counts nowhere else.
func TestStopWhenDenied(t *testing.T) {
	const file = twoKeys + `
  - {key: s, rate_limit: {unit: day, requests_per_unit: 1}, shadow_mode: true}
  - {key: q, rate_limit: {unit: day, requests_per_unit: 1}, quota_mode: true}
`
	f := newFixture(t, file, func(o *envoy.Options) { o.StopWhenOver = true })
	for i, left := range []int{2, 1, 0} {
		f.is(fmt.Sprintf("ok; ok 3/minute left %d", left), "a=shadow", "s=1")
		f.is(fmt.Sprintf("ok; ok 3/minute left %d", left), "a=quota", fmt.Sprint("q=", i), "q=same")
	}
	f.is("over; over 3/minute left 0", "a=shadow", "s=1")
	f.is("over; over 3/minute left 0", "a=quota", "q=3", "q=same")

	f.is("over; over 1/hour left 0", "b=1 hits=2")
	f.is("over; ok 3/minute left 3", "a=look", "b=1 hits=0")
	f.is("ok; ok 3/minute left 3", "a=look hits=0")
}

// A shadow limit counts, and never denies.
func TestShadowMode(t *testing.T) {
	inBothModes(t, twoKeys+"  - {key: s, rate_limit: {unit: day, requests_per_unit: 1}, shadow_mode: true}\n", nil,
		func(t *testing.T, f *fixture) {
			f.is("ok; ok 1/day left 0, ", "s=1")
			f.is("ok; ok 1/day left 0, ", "s=1")
			f.is("ok; ok 1/day left 0, ", "s=1 hits=5", "a=1")
			f.is("ok; ok 3/minute left 1", "a=1")
		})
}

// What is taken back since another limit denies is told as it is then: of a bucket the rest and the time
// until all of it is there, and of two descriptors of one counter both.
func TestWhatIsTakenBackIsTold(t *testing.T) {
	const file = twoKeys + `
  - {key: t, rate_limit: {unit: minute, requests_per_unit: 6}, metadata: {weir: {algorithm: token_bucket}}}
`
	f := newFixture(t, file, atomic)
	f.is("over; ok 6/minute left 6, 0s; over 1/hour", "t=1 hits=3", "b=1 hits=2")
	f.is("over; ok 3/minute left 3, 60s; ok 3/minute left 3, 60s; over 1/hour", "a=1", "a=1", "b=1 hits=2")
	f.is("ok; ok 6/minute left 6, 0s; ok 3/minute left 3, 60s", "t=1 hits=0", "a=1 hits=0")
}

// Quotas deny only together. An ordinary limit denies by itself beside them.
func TestQuotaMode(t *testing.T) {
	const file = twoKeys + `
  - {key: q1, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: q2, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: soft, quota_mode: true, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
`
	inBothModes(t, file, nil, func(t *testing.T, f *fixture) {
		f.is("ok; ok 1/day left 0, ", "q1=1")
		f.is("over; over 1/day left 0, ", "q1=1")
		f.is("ok; over 1/day", "q1=1", "q2=1")
		f.is("ok; over 1/day", "q1=1", "q2=1", "b=1")
		f.is("over; over 1/day", "q1=1", "q2=2", "b=1")
		f.is("ok; over 1/day left 0, ", "q1=1", "soft=1")
		f.is("ok; over 1/day left 0, ", "q1=1", "soft=1") // one that never denies is left
		f.is("ok; ok 1/day left 0, ", "soft=1")
	})
}

// A limit is dropped where another of the request replaces it, and is not counted.
func TestReplaces(t *testing.T) {
	const file = `
domain: edge
descriptors:
  - {key: all, rate_limit: {name: general, unit: day, requests_per_unit: 1}}
  - {key: one, rate_limit: {name: special, unit: day, requests_per_unit: 5, replaces: [{name: general}]}}
  - {key: two, rate_limit: {unit: day, requests_per_unit: 5, replaces: [{name: special}, {name: free}]}}
  - {key: free, rate_limit: {name: free, unlimited: true}}
`
	inBothModes(t, file, nil, func(t *testing.T, f *fixture) {
		f.is("ok; ok; ok 5/day special left 4", "all=1", "one=1")
		f.is("ok; ok; ok 5/day special left 3", "all=1", "one=1")
		f.is("ok; ok 1/day general left 0", "all=1")
		f.is("over; over 1/day general", "all=1")
		// One that is itself replaced replaces all the same: names are collected first.
		f.is("ok; ok; ok; ok 5/day left 4", "all=1", "one=1", "two=1")
		f.is("ok; ok left 4294967295; ok 5/day left 3", "free=1", "two=1")
	})
}

func TestUnlimited(t *testing.T) {
	inBothModes(t, twoKeys+"  - {key: u, rate_limit: {unlimited: true}}\n", nil, func(t *testing.T, f *fixture) {
		f.is("ok; ok left 4294967295", "u=1 hits=4000000000")
		f.is("ok; ok left 4294967295; ok 3/minute left 2", "u=1", "a=1")
	})
}

// All values of a wildcard share a counter if the file says so, and only then.
func TestShareThreshold(t *testing.T) {
	const file = `
domain: edge
descriptors:
  - {key: path, value: /shared/*, share_threshold: true, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: path, value: /own/*, rate_limit: {unit: day, requests_per_unit: 2}}
  - key: host
    value: "*.test"
    share_threshold: true
    descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 2}}]
`
	inBothModes(t, file, nil, func(t *testing.T, f *fixture) {
		f.is("ok; ok 2/day left 1", "path=/shared/a")
		f.is("ok; ok 2/day left 0", "path=/shared/b")
		f.is("over", "path=/shared/c")
		f.is("ok; ok 2/day left 1", "path=/own/a")
		f.is("ok; ok 2/day left 1", "path=/own/b")
		f.is("ok; ok 2/day left 1", "host=a.test user=ada")
		f.is("ok; ok 2/day left 0", "host=b.test user=ada")
		f.is("ok; ok 2/day left 1", "host=b.test user=bob")
	})
}

// Weeks begin on a Thursday, as the epoch did; months have 30 days and years 365.
func TestWeeksMonthsYears(t *testing.T) {
	const file = `
domain: edge
descriptors:
  - {key: week, rate_limit: {unit: week, requests_per_unit: 1}}
  - {key: month, rate_limit: {unit: month, requests_per_unit: 1}}
  - {key: year, rate_limit: {unit: year, requests_per_unit: 1}}
`
	inBothModes(t, file, nil, func(t *testing.T, f *fixture) {
		for unit, days := range map[string]int64{"week": 7, "month": 30, "year": 365} {
			length := days * 86400
			for range 3 {
				left := length - f.node.Now().Unix()%length
				f.is(fmt.Sprintf("ok; ok 1/%s left 0, %ds", unit, left), unit+"=1")
				f.node.Advance(time.Duration(left)*time.Second - time.Microsecond)
				f.is(fmt.Sprintf("over; over 1/%s left 0, 1s", unit), unit+"=1")
				f.node.Advance(time.Microsecond)
			}
		}
	})
}

// Dynamic metadata has the request, and what the file says about limits that allow it.
func TestMetadata(t *testing.T) {
	const file = `
domain: edge
descriptors:
  - {key: a, rate_limit: {unit: day, requests_per_unit: 1}, metadata: {tier: gold, owner: {team: web, pager: true}}}
  - {key: b, rate_limit: {unit: day, requests_per_unit: 9}, metadata: {tier: lead, owner: {team: ops, room: 7}, list: [1, two]}}
  - {key: free, rate_limit: {unlimited: true}, metadata: {tier: none}}
`
	f := newFixture(t, file, func(o *envoy.Options) { o.Metadata = true })
	shows := func(want string, descriptors ...string) {
		t.Helper()
		out, err := f.answer(2, descriptors...)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(out.GetDynamicMetadata().AsMap())
		if err != nil || string(text) != want {
			t.Errorf("%s, want %s, %v", text, want, err)
		}
	}
	shows(`{"descriptors":[{"entries":["a=1"],"hitsAddend":1},{"entries":["b=x","c=y"]},{"entries":["c=1"],`+
		`"hitsAddend":3,"limit":{"requestsPerUnit":9,"unit":"DAY","unitMultiplier":2}},{"entries":["b=1"]}],`+
		`"domain":"edge","hitsAddend":2,"metadata":{"list":[1,"two"],"owner":{"pager":true,"room":7,"team":"web"},`+
		`"tier":"gold"}}`,
		"a=1 hits=1", "b=x c=y", "c=1 hits=3 limit=9/2xDAY", "b=1")
	shows(`{"descriptors":[{"entries":["a=1"]},{"entries":["free=1"]},{"entries":["b=1"]}],"domain":"edge",`+
		`"hitsAddend":2,"metadata":{"list":[1,"two"],"owner":{"room":7,"team":"ops"},"tier":"lead"}}`, "a=1", "free=1", "b=1")
	if out, err := newFixture(t, file, nil).answer(1, "a=1"); err != nil || out.GetDynamicMetadata() != nil {
		t.Errorf("without the option: %v, %v", out, err)
	}
}

// A denial has the configured body, and answers the configured fields, under their names.
func TestBodyAndHeaders(t *testing.T) {
	f := newFixture(t, twoKeys, func(o *envoy.Options) {
		o.Body, o.RequestHeaders, o.HeaderNames = []byte("slow down"), true, [3]string{"x-limit"}
	})
	for _, want := range []string{"", "slow down"} {
		out, err := f.answer(1, "b=1")
		if err != nil || string(out.GetRawBody()) != want || len(out.GetResponseHeadersToAdd()) > 0 {
			t.Errorf("%v, %v", out, err)
		}
		var names []string
		for _, h := range out.GetRequestHeadersToAdd() {
			names = append(names, h.GetKey())
		}
		if got := strings.Join(names, " "); got != "x-limit RateLimit-Remaining RateLimit-Reset" {
			t.Error(got)
		}
	}
}

// The fields tell of the last limit that denies, and else of the first one of which the least remains. A limit in
// shadow and a quota deny nothing.
func TestHeadersTellOfTheLimitThatDenied(t *testing.T) {
	const file = `
domain: edge
descriptors:
  - {key: ten, rate_limit: {unit: day, requests_per_unit: 10}}
  - {key: five, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: six, rate_limit: {unit: minute, requests_per_unit: 6}}
  - {key: soft, rate_limit: {unit: second, requests_per_unit: 7}, shadow_mode: true}
  - {key: quota, rate_limit: {unit: second, requests_per_unit: 8}, quota_mode: true}
`
	f := newFixture(t, file, func(o *envoy.Options) { o.Headers = true })
	day, hour := 86400-f.node.Now().Unix()%86400, 3600-f.node.Now().Unix()%3600
	for _, x := range []struct {
		want        string
		descriptors []string
	}{
		{"10 10 " + fmt.Sprint(day), []string{"ten=1 hits=0"}},
		{"10 1 " + fmt.Sprint(day), []string{"ten=1 hits=9", "ten=2"}},
		{"5 0 " + fmt.Sprint(hour), []string{"five=1 hits=6"}},
		{"5 0 " + fmt.Sprint(hour), []string{"ten=1", "five=1"}}, // the first one has nothing left and allows
		{"5 0 " + fmt.Sprint(hour), []string{"five=1", "ten=3"}},
		{"10 0 " + fmt.Sprint(day), []string{"five=1", "ten=1"}}, // both deny
		{"5 0 " + fmt.Sprint(hour), []string{"ten=1", "five=1", "ten=4"}},
		{"7 0 1", []string{"soft=1 hits=9", "ten=4"}},
		{"5 0 " + fmt.Sprint(hour), []string{"soft=1 hits=9", "five=1", "soft=1", "quota=1 hits=9"}},
		{"6 5 " + fmt.Sprint(60-f.node.Now().Unix()%60), []string{"ten=5", "quota=2", "six=1", "other=1"}},
	} {
		out, err := f.answer(1, x.descriptors...)
		if err != nil {
			t.Fatal(err)
		}
		var fields []string
		for _, h := range out.GetResponseHeadersToAdd() {
			fields = append(fields, h.GetValue())
		}
		if got := strings.Join(fields, " "); got != x.want {
			t.Errorf("%v: %s, want %s", x.descriptors, got, x.want)
		}
	}
}

// Limits that come with requests are forgotten where they are not used: the node holds no more
// of them than it does, however many there were, and those of files go on to work.
func TestLimitsOfRequestsAreForgotten(t *testing.T) {
	f := newFixture(t, twoKeys, func(o *envoy.Options) { o.Overrides = map[string]bool{"edge": true} })
	for i := range 5000 {
		f.ask(0, fmt.Sprintf("x=1 limit=%d/SECOND", i+1))
		if i%100 == 0 {
			f.node.Advance(time.Second)
		}
	}
	f.is("ok; ok 3/minute left 2", "a=1")
	f.is("ok; ok 6000/second left 5999", "x=1 limit=6000/SECOND")
}

const formed = `
domain: edge
descriptors:
  - {key: bucket, rate_limit: {unit: minute, requests_per_unit: 60}, metadata: {plan: gold, weir: {algorithm: token_bucket, burst: 5}}}
  - {key: log, rate_limit: {unit: minute, requests_per_unit: 2}, metadata: {weir: {algorithm: sliding_log}}}
  - {key: plain, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: month, rate_limit: {unit: month, requests_per_unit: 2}, metadata: {weir: {calendar: true, zone: Europe/Berlin, anchor_day: 15, at: "06:00"}}}
`

// Each limit counts by the algorithm of its metadata, beside others by that of the service.
func TestAlgorithmsByMetadata(t *testing.T) {
	inBothModes(t, formed, nil, func(t *testing.T, f *fixture) {
		f.is("ok; ok 60/minute left 4, 1s; ok 3/minute left 2, 60s", "bucket=1", "plain=1")
		f.is("ok; ok 60/minute left 0, 5s", "bucket=1 hits=4")
		f.is("over; over 60/minute left 0", "bucket=1")
		f.node.Advance(3 * time.Second) // a token a second
		f.is("ok; ok 60/minute left ", "bucket=1 hits=2")
		f.is("over; over 60/minute left ", "bucket=1 hits=2")
		f.is("over; over 60/minute ", "bucket=2 hits=6") // more than the burst
		f.is("ok; ok 2/minute left 1, 60s", "log=1")
		f.node.Advance(30 * time.Second)
		f.is("ok; ok 2/minute left 0, 60s; ok 3/minute left 1, 27s", "log=1", "plain=1")
		f.node.Advance(31 * time.Second) // the first of two
		f.is("ok; ok 2/minute left 0, 60s; ok 3/minute left 2, 56s", "log=1", "plain=1")
	})
}

// A month of a calendar ends at its own instant in its own zone, also where the clocks change.
func TestCalendarsByMetadata(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	inBothModes(t, formed, nil, func(t *testing.T, f *fixture) {
		for _, month := range []time.Month{time.January, time.February, time.March, time.April} { // summer begins on 29 March
			end := time.Date(2026, month, 15, 6, 0, 0, 0, berlin)
			left := func(n int) string {
				return fmt.Sprintf("2/month left %d, %ds", n, int(end.Sub(f.node.Now()).Seconds()))
			}
			f.is("ok; ok "+left(2), "month=1 hits=0")
			f.is("ok; ok "+left(1), "month=1")
			f.is("ok; ok "+left(0), "month=1")
			f.node.SetTime(end.Add(-time.Second))
			f.is("over; over "+left(0), "month=1")
			f.node.SetTime(end)
		}
	})
}

// The form of a limit is not for those who get the answers, and where it is one of the
// algorithms that cannot take hits back, only that limit refuses it.
func TestFormsInAnswers(t *testing.T) {
	f := newFixture(t, formed, func(o *envoy.Options) { o.Config.AllowRefunds, o.Metadata = true, true })
	f.is("descriptor 1 has is_negative_hits: sliding_log counts each hit by its instant", "plain=1", "log=1 back")
	f.is("ok; ok 3/minute left 3, 60s", "plain=1 back")
	out, err := f.answer(0, "bucket=1")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(out.GetDynamicMetadata().AsMap()["metadata"]); got != "map[plan:gold]" {
		t.Errorf("metadata %s", got)
	}
}

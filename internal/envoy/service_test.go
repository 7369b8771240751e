package envoy_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir/internal/envoy"
	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/weirtest"
)

// fixture is a service in front of a node whose clock the test moves.
type fixture struct {
	t       testing.TB
	node    *weirtest.Node
	service *envoy.Service
}

func newFixture(t testing.TB, file string, change func(*envoy.Options)) *fixture {
	t.Helper()
	f := &fixture{t: t, node: weirtest.New(t, "version: 1\nrules: []\n")}
	o := envoy.Options{Config: frontend.Config{Decider: f.node}, Algorithm: limiter.FixedWindow, Now: f.node.Now}
	if change != nil {
		change(&o)
	}
	var err error
	if f.service, err = envoy.NewService(o); err != nil {
		t.Fatal(err)
	}
	if file != "" {
		c, err := config.Parse([]config.File{{Name: "test.yaml", Data: []byte(file)}}, config.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.service.SetConfig(c); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func atomic(o *envoy.Options) { o.Mode = envoy.Atomic }

// descriptor makes a descriptor from key=value pairs, separated by blanks. hits=N is the
// descriptor's own hits_addend, limit=N/UNIT or limit=N/TIMESxUNIT its limit, and back takes its hits back.
func descriptor(t testing.TB, text string) *ratelimit.RateLimitDescriptor {
	t.Helper()
	d := new(ratelimit.RateLimitDescriptor)
	for field := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "hits":
			var n uint64
			if _, err := fmt.Sscan(value, &n); err != nil {
				t.Fatal(err)
			}
			d.HitsAddend = wrapperspb.UInt64(n)
		case "back":
			d.IsNegativeHits = true
		case "limit":
			n, unit, _ := strings.Cut(value, "/")
			times, one, several := strings.Cut(unit, "x")
			if several {
				unit = one
			}
			l := &ratelimit.RateLimitDescriptor_RateLimitOverride{Unit: typev3.RateLimitUnit(typev3.RateLimitUnit_value[unit])}
			if _, err := fmt.Sscan(n, &l.RequestsPerUnit); err != nil {
				t.Fatal(err)
			}
			if several {
				var n uint32
				if _, err := fmt.Sscan(times, &n); err != nil {
					t.Fatal(err)
				}
				l.UnitMultiplier = wrapperspb.UInt32(n)
			}
			d.Limit = l
		default:
			d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
	}
	return d
}

// ask asks about descriptors of the domain edge and returns the answer in a line: the
// overall code, and for each status its code, what remains and the seconds until the reset.
func (f *fixture) ask(hits uint32, descriptors ...string) string {
	f.t.Helper()
	return show(f.answer(hits, descriptors...))
}

func (f *fixture) answer(hits uint32, descriptors ...string) (*rls.RateLimitResponse, error) {
	f.t.Helper()
	in := &rls.RateLimitRequest{Domain: "edge", HitsAddend: hits}
	for _, d := range descriptors {
		in.Descriptors = append(in.Descriptors, descriptor(f.t, d))
	}
	return f.service.ShouldRateLimit(context.Background(), in)
}

func show(out *rls.RateLimitResponse, err error) string {
	if err != nil {
		return err.Error()
	}
	code := func(c rls.RateLimitResponse_Code) string {
		return map[rls.RateLimitResponse_Code]string{1: "ok", 2: "over"}[c]
	}
	text := code(out.GetOverallCode())
	for _, st := range out.GetStatuses() {
		text += "; " + code(st.GetCode())
		if l := st.GetCurrentLimit(); l != nil {
			text += fmt.Sprintf(" %d/%s", l.GetRequestsPerUnit(), strings.ToLower(l.GetUnit().String()))
			if l.GetName() != "" {
				text += " " + l.GetName()
			}
			text += fmt.Sprintf(" left %d, %ds", st.GetLimitRemaining(), st.GetDurationUntilReset().GetSeconds())
		} else if st.GetLimitRemaining() > 0 {
			text += fmt.Sprintf(" left %d", st.GetLimitRemaining())
		}
	}
	return text
}

const twoKeys = `
domain: edge
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: b, rate_limit: {unit: hour, requests_per_unit: 1}}
`

// TestCompatCountsWhatIsDenied: each descriptor counts by itself, and denied hits count.
func TestCompatCountsWhatIsDenied(t *testing.T) {
	f := newFixture(t, twoKeys, nil)
	at := f.node.Now()
	minute, hour := 60-at.Second(), 3600-at.Minute()*60-at.Second()
	for i, want := range []string{
		fmt.Sprintf("ok; ok 3/minute left 2, %ds; ok 1/hour left 0, %ds", minute, hour),
		fmt.Sprintf("over; ok 3/minute left 1, %ds; over 1/hour left 0, %ds", minute, hour),
		fmt.Sprintf("over; ok 3/minute left 0, %ds; over 1/hour left 0, %ds", minute, hour),
		fmt.Sprintf("over; over 3/minute left 0, %ds; over 1/hour left 0, %ds", minute, hour),
	} {
		if got := f.ask(0, "a=1", "b=1"); got != want {
			t.Errorf("request %d: %s, want %s", i, got, want)
		}
	}
	f.node.Advance(time.Duration(minute) * time.Second)
	if got := f.ask(0, "a=1"); !strings.HasPrefix(got, "ok; ok 3/minute left 2, 60s") {
		t.Errorf("in the next minute: %s", got)
	}
}

// TestHitsBeyondTheRest: hits that do not fit are denied and leave the limit used up.
func TestHitsBeyondTheRest(t *testing.T) {
	for _, hits := range []uint32{2, 3, 4, math.MaxUint32} {
		f := newFixture(t, twoKeys, nil)
		f.ask(2, "a=1")
		if got := f.ask(hits, "a=1"); !strings.HasPrefix(got, "over; over 3/minute left 0") {
			t.Errorf("%d hits of a rest of 1: %s", hits, got)
		}
		if got := f.ask(1, "a=1"); !strings.HasPrefix(got, "over") {
			t.Errorf("one hit after %d: %s", hits, got)
		}
		if got := f.ask(1, "a=2"); !strings.HasPrefix(got, "ok") {
			t.Errorf("another value: %s", got)
		}
	}
}

// TestLooks: no hits count nothing, and are over the limit only if more was counted.
func TestLooks(t *testing.T) {
	f := newFixture(t, twoKeys, nil)
	for range 3 {
		if got := f.ask(0, "a=1 hits=0"); !strings.HasPrefix(got, "ok; ok 3/minute left 3") {
			t.Fatal(got)
		}
	}
	f.ask(3, "a=1")
	if got := f.ask(0, "a=1 hits=0"); !strings.HasPrefix(got, "ok; ok 3/minute left 0") {
		t.Errorf("all is used up, and no more: %s", got)
	}
	f.ask(1, "a=1")
	if got := f.ask(0, "a=1 hits=0"); !strings.HasPrefix(got, "over; over 3/minute left 0") {
		t.Errorf("more was counted than the limit: %s", got)
	}
	f = newFixture(t, twoKeys, nil)
	f.ask(7, "a=1")
	if got := f.ask(0, "a=1 hits=0"); !strings.HasPrefix(got, "over") {
		t.Errorf("seven hits at once are over the limit: %s", got)
	}
}

// TestAtomicChargesAllOrNone: a denial by one descriptor costs no other anything.
func TestAtomicChargesAllOrNone(t *testing.T) {
	f := newFixture(t, twoKeys, atomic)
	f.ask(0, "a=1", "b=1")
	for range 3 {
		if got := f.ask(0, "b=1", "a=1"); !strings.HasPrefix(got, "over; over 1/hour left 0") ||
			!strings.Contains(got, "ok 3/minute left 2") {
			t.Errorf("the denial was charged: %s", got)
		}
	}
	// Different hits, and two descriptors of one counter, are charged one after the other.
	if got := f.ask(1, "a=1 hits=2", "b=1"); !strings.HasPrefix(got, "over; ok 3/minute left 2") {
		t.Errorf("the charge of a stands though b denied: %s", got)
	}
	if got := f.ask(1, "a=1", "a=1", "a=1"); !strings.HasPrefix(got, "over") {
		t.Error(got)
	}
	if got := f.ask(1, "a=1", "a=1"); !strings.HasPrefix(got, "ok; ok 3/minute left 1") {
		t.Errorf("three of two units left a charge: %s", got)
	}
}

func TestOverrides(t *testing.T) {
	f := newFixture(t, twoKeys, nil)
	for _, want := range []string{"ok; ok 1/minute left 0", "over; over 1/minute left 0"} {
		if got := f.ask(0, "a=1 limit=1/MINUTE"); !strings.HasPrefix(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := f.ask(0, "a=1"); !strings.HasPrefix(got, "ok; ok 3/minute left 2") {
		t.Errorf("the limit of the file has a counter of its own: %s", got)
	}
	if got := f.ask(0, "a=1 limit=1/UNKNOWN"); !strings.Contains(got, "has the unit 0: give 1 (second) to 6 (year)") {
		t.Error(got)
	}
	in := &rls.RateLimitRequest{Domain: "other",
		Descriptors: []*ratelimit.RateLimitDescriptor{descriptor(t, "a=1 limit=1/MINUTE")}}
	for range 2 {
		if got := show(f.service.ShouldRateLimit(context.Background(), in)); got != "ok; ok" {
			t.Errorf("a domain without a file: %s", got)
		}
	}
	f = newFixture(t, "", func(o *envoy.Options) { o.Overrides = map[string]bool{"other": true} })
	f.service.ShouldRateLimit(context.Background(), in)
	if got := show(f.service.ShouldRateLimit(context.Background(), in)); !strings.HasPrefix(got, "over; over 1/minute") {
		t.Errorf("a domain whose limits come with descriptors: %s", got)
	}
	if got := f.ask(0, "a=1"); got != "no rate limit configuration loaded" {
		t.Error(got)
	}
}

// Envoy may be told to pass what has an error, and a client may choose the limit of its descriptor: more limits than a
// node can count deny.
func TestTooManyOverrides(t *testing.T) {
	for mode, change := range map[string]func(*envoy.Options){"compat": nil, "atomic": atomic} {
		f := newFixture(t, twoKeys, change)
		got := ""
		for n := 1; strings.HasPrefix(got, "ok") == (n > 1) && n < 5000; n++ {
			got = f.ask(1, fmt.Sprintf("a=%d limit=%d/MINUTE", n/100, 1000+n))
		}
		if got != "over; over" {
			t.Errorf("%s: %s", mode, got)
		}
	}
}

// A limit may be for several units: its period is as long, its counter is its own, and the answer
// says so.
func TestUnitMultiplier(t *testing.T) {
	for mode, change := range map[string]func(*envoy.Options){"compat": nil, "atomic": atomic} {
		t.Run(mode, func(t *testing.T) {
			f := newFixture(t,
				"domain: edge\ndescriptors: [{key: f, rate_limit: {unit: minute, requests_per_unit: 1}, metadata: {weir: "+
					"{unit_multiplier: 3}}}, "+
					"{key: w, rate_limit: {unit: week, requests_per_unit: 1}, metadata: {weir: {unit_multiplier: 2}}}]\n", change)
			for _, d := range []string{"a=1 limit=1/5xMINUTE", "a=1 limit=1/7xDAY", "f=1", "w=1"} {
				out, err := f.answer(1, d)
				if err != nil || out.GetOverallCode() != rls.RateLimitResponse_OK {
					t.Fatalf("%s: %v, %v", d, out, err)
				}
				st := out.GetStatuses()[0]
				want := map[string]uint32{"a=1 limit=1/5xMINUTE": 5, "a=1 limit=1/7xDAY": 7, "f=1": 3, "w=1": 2}[d]
				if got := st.GetCurrentLimit().GetUnitMultiplier().GetValue(); got != want {
					t.Errorf("%s: the limit that is told has the multiplier %d", d, got)
				}
				until := st.GetDurationUntilReset().AsDuration()
				f.node.Advance(until - 2*time.Second)
				if got := f.ask(1, d); !strings.HasPrefix(got, "over") {
					t.Errorf("%s: before the end of its period: %s", d, got)
				}
				f.node.Advance(2 * time.Second)
				if got := f.ask(1, d); !strings.HasPrefix(got, "ok") {
					t.Errorf("%s: after its period of %v: %s", d, until, got)
				}
			}
			if got := f.ask(1, "b=1 limit=1/MINUTE", "b=1 limit=1/5xMINUTE"); !strings.HasPrefix(got, "ok; ok 1/minute left 0") {
				t.Error(got)
			}
			for _, bad := range []string{"0xMINUTE", "576001xMINUTE", "2xYEAR", "4294967295xSECOND"} {
				if got := f.ask(1, "c=1 limit=1/"+bad); !strings.Contains(got, "unit_multiplier") ||
					!strings.Contains(got, "give 1 to ") {
					t.Errorf("%s: %s", bad, got)
				}
			}
		})
	}
}

func TestModesOfLimits(t *testing.T) {
	const file = `
domain: edge
descriptors:
  - {key: shadow, rate_limit: {unit: day, requests_per_unit: 0}, shadow_mode: true}
  - {key: none, rate_limit: {unlimited: true}}
  - {key: white, value: list}
  - {key: week, rate_limit: {unit: WEEK, requests_per_unit: 1}}
  - {key: month, rate_limit: {unit: month, requests_per_unit: 1}}
  - {key: q1, quota_mode: true, rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: q2, quota_mode: true, rate_limit: {unit: second, requests_per_unit: 2}}
  - {key: old, rate_limit: {name: old, unit: second, requests_per_unit: 1}}
  - {key: new, rate_limit: {name: new, unit: second, requests_per_unit: 9, replaces: [{name: old}]}}
`
	for mode, change := range map[string]func(*envoy.Options){"compat": nil, "atomic": atomic} {
		t.Run(mode, func(t *testing.T) {
			f := newFixture(t, file, change)
			has := func(want string, descriptors ...string) {
				t.Helper()
				if got := f.ask(0, descriptors...); !strings.HasPrefix(got, want) {
					t.Errorf("%v: %s, want %s", descriptors, got, want)
				}
			}
			has("ok; ok 0/day left 0", "shadow=x")
			has("ok; ok left 4294967295", "none=x")
			has("ok; ok", "white=list")
			has("ok; ok", "nothing=x")
			epoch := func(unit int64) int64 { return unit - f.node.Now().Unix()%unit }
			has(fmt.Sprintf("ok; ok 1/week left 0, %ds", epoch(7*86400)), "week=x")
			has("over; over 1/week", "week=x")
			has(fmt.Sprintf("ok; ok 1/month left 0, %ds", epoch(30*86400)), "month=x")
			has("ok; ok 1/second left 0, 1s; ok 2/second left 1", "q1=x", "q2=x")
			has("ok; over 1/second left 0, 1s; ok 2/second left 0", "q1=x", "q2=x")
			has("over; over 1/second left 0, 1s; over 2/second left 0", "q1=x", "q2=x")
			has("ok; ok 1/second old left 0", "old=x")
			has("ok; ok; ok 9/second new left 8", "old=x", "new=x")
			has("over; over 1/second old", "old=x")
			f.node.Advance(time.Duration(epoch(7*86400)) * time.Second)
			has("ok; ok 1/week left 0, 604800s", "week=x")
		})
	}
}

func TestGlobalModesAndHeaders(t *testing.T) {
	f := newFixture(t, twoKeys, func(o *envoy.Options) { o.Shadow, o.Headers = true, true })
	f.ask(0, "b=1")
	if got := f.ask(0, "a=1", "b=1"); !strings.HasPrefix(got, "ok; ok 3/minute left 2") ||
		!strings.Contains(got, "over 1/hour") {
		t.Errorf("in shadow the overall code is OK and statuses stay: %s", got)
	}
	out, err := f.answer(0, "a=1", "b=1")
	if err != nil {
		t.Fatal(err)
	}
	var fields []string
	for _, h := range out.GetResponseHeadersToAdd() {
		fields = append(fields, h.GetKey()+": "+h.GetValue())
	}
	now := f.node.Now()
	if got, want := strings.Join(fields, ", "),
		fmt.Sprintf("RateLimit-Limit: 1, RateLimit-Remaining: 0, RateLimit-Reset: %d",
			3600-now.Minute()*60-now.Second()); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	f = newFixture(t, twoKeys, func(o *envoy.Options) { o.Quota = true })
	f.ask(0, "b=1")
	if got := f.ask(0, "a=1", "b=1"); !strings.HasPrefix(got, "ok; ok 3/minute left 2") {
		t.Errorf("one quota of two is over: %s", got)
	}
}

// TestOtherAlgorithms: a sliding algorithm behind the same file.
func TestOtherAlgorithms(t *testing.T) {
	f := newFixture(t, twoKeys, func(o *envoy.Options) { o.Mode, o.Algorithm = envoy.Atomic, limiter.SlidingLog })
	for range 3 {
		f.ask(0, "a=1")
	}
	f.node.Advance(59 * time.Second)
	if got := f.ask(0, "a=1"); got != "over; over 3/minute left 0, 1s" {
		t.Error(got)
	}
	if got := f.ask(0, "a=1 hits=0"); !strings.HasPrefix(got, "over") {
		t.Errorf("nothing remains: %s", got)
	}
	f.node.Advance(time.Second)
	if got := f.ask(0, "a=1"); got != "ok; ok 3/minute left 2, 60s" {
		t.Error(got)
	}
}

// TestLimitsThatAnAlgorithmCannotHave: they are refused with the file, and the old one stays.
func TestLimitsThatAnAlgorithmCannotHave(t *testing.T) {
	f := newFixture(t, twoKeys, func(o *envoy.Options) { o.Algorithm = limiter.SlidingLog })
	c, err := config.Parse([]config.File{{Name: "f",
		Data: []byte("domain: edge\ndescriptors: [{key: a, descriptors: [{key: b, rate_limit: {unit: day, " +
			"requests_per_unit: 4000000000}}]}]")}}, config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.service.SetConfig(c); err == nil || !strings.Contains(err.Error(),
		"the limit of edge.a.b cannot have the algorithm sliding_log: ") {
		t.Error(err)
	}
	if got := f.ask(0, "a=1"); !strings.HasPrefix(got, "ok; ok 3/minute") {
		t.Errorf("the configuration of before: %s", got)
	}
}

func TestLongValuesHaveCountersOfTheirOwn(t *testing.T) {
	f := newFixture(t, twoKeys, nil)
	long := strings.Repeat("x", 3000)
	f.ask(3, "a="+long+"1")
	if got := f.ask(1, "a="+long+"2"); !strings.HasPrefix(got, "ok") {
		t.Error(got)
	}
	if got := f.ask(1, "a="+long+"1"); !strings.HasPrefix(got, "over") {
		t.Error(got)
	}
}

func TestBadRequests(t *testing.T) {
	f := newFixture(t, twoKeys, nil)
	if got := f.ask(0); got != "rate limit descriptor list must not be empty" {
		t.Error(got)
	}
	in := &rls.RateLimitRequest{Descriptors: []*ratelimit.RateLimitDescriptor{descriptor(t, "a=1")}}
	if got := show(f.service.ShouldRateLimit(context.Background(), in)); got != "rate limit domain must not be empty" {
		t.Error(got)
	}
	in.Domain, in.Descriptors[0].IsNegativeHits = "edge", true
	if got := show(f.service.ShouldRateLimit(context.Background(), in)); !strings.Contains(got,
		"start the node with --allow-refunds") {
		t.Error(got)
	}
}

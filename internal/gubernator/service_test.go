package gubernator

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
	pb "github.com/weirlimit/weir/proto/gubernator/v1"
	"github.com/weirlimit/weir/weirtest"
)

// fixture is a service in front of a node whose clock the test moves.
type fixture struct {
	t       *testing.T
	node    *weirtest.Node
	service *Service
}

func newFixture(t *testing.T, change func(*Options)) *fixture {
	t.Helper()
	f := &fixture{t: t, node: weirtest.New(t, "version: 1\nrules: []\n")}
	o := Options{Config: frontend.Config{Decider: f.node, AllowRequestLimits: true, AllowReset: true, AllowRefunds: true},
		Now: f.node.Now}
	if change != nil {
		change(&o)
	}
	var err error
	if f.service, err = NewService(o); err != nil {
		t.Fatal(err)
	}
	return f
}

// anyone returns a session without a caller.
func anyone(s *Service) *frontend.Session {
	by := s.front.Anyone(nil)
	return &by
}

// request makes a rate limit of fields, such as "key=a hits=2 leaky GLOBAL". Without others
// it is a hit on a token bucket of 10 a minute. at is a time of the client's clock, in
// milliseconds after the node's.
func request(t *testing.T, now time.Time, text string) *pb.RateLimitReq {
	t.Helper()
	in := &pb.RateLimitReq{Name: "n", UniqueKey: "k", Hits: 1, Limit: 10, Duration: 60_000}
	for field := range strings.FieldsSeq(text) {
		name, value, given := strings.Cut(field, "=")
		n, err := strconv.ParseInt(value, 10, 64)
		switch name {
		case "name":
			in.Name, err = value, nil
		case "key":
			in.UniqueKey, err = value, nil
		case "hits":
			in.Hits = n
		case "limit":
			in.Limit = n
		case "ms":
			in.Duration = n
		case "burst":
			in.Burst = n
		case "at":
			in.CreatedAt = new(now.UnixMilli() + n)
		case "leaky":
			in.Algorithm, err = pb.Algorithm_LEAKY_BUCKET, nil
		case "algorithm":
			in.Algorithm = pb.Algorithm(n)
		default:
			flag, known := pb.Behavior_value[name]
			if in.Behavior |= pb.Behavior(flag); known && !given {
				err = nil
			}
		}
		if err != nil {
			t.Fatalf("%q of %q: %v", field, text, err)
		}
	}
	return in
}

// show tells an answer: its status, limit and rest, and in how many milliseconds its reset is.
func show(out *pb.RateLimitResp, now time.Time) string {
	if out.GetError() != "" {
		if out.GetStatus() != 0 || out.GetLimit() != 0 || out.GetRemaining() != 0 || out.GetResetTime() != 0 {
			return fmt.Sprintf("an error with other fields: %v", out)
		}
		return "error: " + out.GetError()
	}
	status := map[pb.Status]string{pb.Status_UNDER_LIMIT: "under", pb.Status_OVER_LIMIT: "over"}[out.GetStatus()]
	reset := "never"
	if out.GetResetTime() != 0 {
		reset = fmt.Sprint(out.GetResetTime() - now.UnixMilli())
	}
	return fmt.Sprintf("%s %d left %d reset %s", status, out.GetLimit(), out.GetRemaining(), reset)
}

// ask asks for rate limits in one message, separated by semicolons.
func (f *fixture) ask(text string) string {
	f.t.Helper()
	in := new(pb.GetRateLimitsReq)
	for part := range strings.SplitSeq(text, ";") {
		in.Requests = append(in.Requests, request(f.t, f.node.Now(), part))
	}
	out, err := f.service.getRateLimits(f.t.Context(), anyone(f.service), in, 100)
	if err != nil {
		return err.Error()
	}
	var all []string
	for _, r := range out.GetResponses() {
		all = append(all, show(r, f.node.Now()))
	}
	return strings.Join(all, "; ")
}

// step is a message and its answer, or "wait" and a time.
type step struct{ ask, want string }

// run takes steps one after the other.
func (f *fixture) run(steps []step) {
	f.t.Helper()
	for i, s := range steps {
		if wait, ok := strings.CutPrefix(s.ask, "wait "); ok {
			d, err := time.ParseDuration(wait)
			if err != nil {
				f.t.Fatal(err)
			}
			f.node.Advance(d)
			continue
		}
		if got := f.ask(s.ask); !matches(got, s.want) {
			f.t.Errorf("step %d, %s: %s, want %s", i, s.ask, got, s.want)
		}
	}
}

// matches reports whether an answer is the one that is wanted: an error by a part of it.
func matches(got, want string) bool {
	if part, ok := strings.CutPrefix(want, "error: "); ok {
		return strings.HasPrefix(got, "error: ") && strings.Contains(got, part)
	}
	return got == want
}

// What a token bucket does, a window that begins with its first hit.
func TestTokenBucket(t *testing.T) {
	for name, steps := range map[string][]step{
		"hits": {
			{"hits=0", "under 10 left 10 reset 60000"},
			{"", "under 10 left 9 reset 60000"},
			{"wait 1s", ""},
			{"hits=8", "under 10 left 1 reset 59000"},
			{"hits=2", "over 10 left 1 reset 59000"}, // what does not fit takes nothing
			{"", "under 10 left 0 reset 59000"},
			{"", "over 10 left 0 reset 59000"},
			{"hits=0", "under 10 left 0 reset 59000"},
			{"wait 58999ms", ""},
			{"", "over 10 left 0 reset 1"},
			{"wait 1ms", ""},
			{"", "under 10 left 9 reset 60000"}, // nothing leaks before the end
		},
		"more than the limit at first": {
			{"hits=11", "over 10 left 10 reset 60000"},
			{"hits=10", "under 10 left 0 reset 60000"},
		},
		"one over is not told for ever": { // A1 of the contract
			{"limit=2", "under 2 left 1 reset 60000"},
			{"limit=2", "under 2 left 0 reset 60000"},
			{"limit=2", "over 2 left 0 reset 60000"},
			{"limit=2 hits=-1", "under 2 left 1 reset 60000"},
			{"limit=2", "under 2 left 0 reset 60000"},
		},
		"a higher limit lets pass": { // A2
			{"limit=1", "under 1 left 0 reset 60000"},
			{"limit=1", "over 1 left 0 reset 60000"},
			{"limit=100", "under 100 left 98 reset 60000"},
		},
		"another limit goes on": {
			{"limit=100", "under 100 left 99 reset 60000"},
			{"limit=100", "under 100 left 98 reset 60000"},
			{"limit=10", "under 10 left 7 reset 60000"},
			{"limit=100", "under 100 left 96 reset 60000"},
			{"limit=2", "over 2 left 0 reset 60000"},
		},
		"another duration begins a window with what was taken": {
			{"ms=60000 hits=4", "under 10 left 6 reset 60000"},
			{"wait 2s", ""},
			{"ms=120000", "under 10 left 5 reset 120000"},
			{"ms=1000", "under 10 left 4 reset 1000"},
			{"wait 1s", ""},
			{"ms=1000", "under 10 left 9 reset 1000"},
			{"wait 201ms", ""},
			{"ms=777", "under 10 left 8 reset 777"}, // not 799, when the other one would have ended
			{"ms=778", "under 10 left 7 reset 778"},
			{"ms=777", "under 10 left 6 reset 777"},
		},
		"a burst is not read": {
			{"burst=100", "under 10 left 9 reset 60000"},
			{"burst=1 hits=9", "under 10 left 0 reset 60000"},
		},
		"another algorithm begins anew": {
			{"hits=10", "under 10 left 0 reset 60000"},
			{"leaky", "under 10 left 9 reset 6000"},
		},
		"negative hits": {
			{"limit=2", "under 2 left 1 reset 60000"},
			{"limit=2 hits=-1", "under 2 left 2 reset 60000"},
			{"limit=2 hits=-5", "under 2 left 2 reset 60000"}, // never more than the limit
			{"hits=-9223372036854775808", "under 10 left 10 reset 60000"},
		},
		"the first hit after all were taken back begins a window": {
			{"hits=4", "under 10 left 6 reset 60000"},
			{"hits=-4", "under 10 left 10 reset 60000"},
			{"wait 20ms", ""},
			{"hits=4", "under 10 left 6 reset 60000"},
			{"hits=-4 at=2000", "under 10 left 10 reset 62000"},
			{"wait 20ms", ""},
			{"", "under 10 left 9 reset 60000"},
		},
		"RESET_REMAINING": {
			{"hits=10", "under 10 left 0 reset 60000"},
			{"RESET_REMAINING hits=3", "under 10 left 10 reset never"},
			{"hits=10", "under 10 left 0 reset 60000"},
			{"key=unused RESET_REMAINING", "under 10 left 10 reset never"},
		},
		"DRAIN_OVER_LIMIT": {
			{"hits=4", "under 10 left 6 reset 60000"},
			{"hits=6 DRAIN_OVER_LIMIT hits=7", "over 10 left 0 reset 60000"},
			{"hits=0", "under 10 left 0 reset 60000"},
			{"", "over 10 left 0 reset 60000"},
			{"key=new hits=11 DRAIN_OVER_LIMIT", "over 10 left 0 reset 60000"},
			{"key=new", "over 10 left 0 reset 60000"},
			{"key=fits hits=10 DRAIN_OVER_LIMIT", "under 10 left 0 reset 60000"},
		},
		"limits and durations of 0": {
			{"limit=0", "over 0 left 0 reset 60000"},
			{"limit=0 hits=0", "under 0 left 0 reset 60000"},
			{"limit=0 hits=-1", "under 0 left 0 reset 60000"},
			{"ms=0", "under 10 left 9 reset 0"},
			{"ms=0 hits=10", "under 10 left 0 reset 0"},
			{"ms=0 hits=11", "over 10 left 10 reset 0"},
			{"ms=0 hits=10", "under 10 left 0 reset 0"},
			{"hits=5", "under 10 left 5 reset 60000"},
			{"limit=0 RESET_REMAINING", "under 0 left 0 reset never"},
			{"hits=5", "under 10 left 5 reset 60000"},
			{"ms=0 hits=11 RESET_REMAINING", "under 10 left 10 reset never"},
			{"", "under 10 left 9 reset 60000"},
		},
		"behaviours without effect": {
			{"GLOBAL", "under 10 left 9 reset 60000"},
			{"NO_BATCHING", "under 10 left 8 reset 60000"},
			{"MULTI_REGION BATCHING GLOBAL NO_BATCHING", "under 10 left 7 reset 60000"},
			{"hits=8 GLOBAL DRAIN_OVER_LIMIT", "over 10 left 0 reset 60000"},
		},
		"keys": {
			{"name=a_b key=c hits=9", "under 10 left 1 reset 60000"},
			{"name=a key=b_c", "under 10 left 9 reset 60000"},
			{"name=" + strings.Repeat("n", 5000) + " key=" + strings.Repeat("k", 5000), "under 10 left 9 reset 60000"},
			{"name=" + strings.Repeat("n", 5000) + " key=" + strings.Repeat("k", 4999), "under 10 left 9 reset 60000"},
			{"name=" + strings.Repeat("n", 4999) + " key=" + strings.Repeat("k", 5000), "under 10 left 9 reset 60000"},
			{"name=" + strings.Repeat("n", 5000) + " key=" + strings.Repeat("k", 5000), "under 10 left 8 reset 60000"},
		},
		"the client's clock tells resets and counts nothing": { // A7 and A8
			{"at=-5000 ms=1000 limit=1", "under 1 left 0 reset -4000"},
			{"at=-5000 ms=1000 limit=1", "over 1 left 0 reset -4000"},
			{"at=5000 ms=1000 limit=1", "over 1 left 0 reset 6000"},
			{"at=-90000000 ms=1000 limit=1", "over 1 left 0 reset 1000"}, // more than a day
			{"at=9000000000000000000 ms=1000 limit=1", "over 1 left 0 reset 1000"},
		},
		"an order": {
			{"hits=9;hits=5 DRAIN_OVER_LIMIT;;hits=-1;;RESET_REMAINING;hits=2",
				"under 10 left 1 reset 60000; over 10 left 0 reset 60000; over 10 left 0 reset 60000; under 10 left 1 reset " +
					"60000; " +
					"under 10 left 0 reset 60000; under 10 left 10 reset never; under 10 left 8 reset 60000"},
		},
	} {
		t.Run(name, func(t *testing.T) { newFixture(t, nil).run(steps) })
	}
}

// What a leaky bucket does.
func TestLeakyBucket(t *testing.T) {
	for name, steps := range map[string][]step{
		"hits leak": {
			{"leaky ms=30000", "under 10 left 9 reset 3000"},
			{"leaky ms=30000", "under 10 left 8 reset 6000"},
			{"wait 1s", ""},
			{"leaky ms=30000", "under 10 left 7 reset 9000"},
			{"wait 2s", ""},
			{"leaky ms=30000 hits=0", "under 10 left 8 reset 6000"},
			{"wait 3s", ""},
			{"leaky ms=30000 hits=0", "under 10 left 9 reset 3000"},
			{"leaky ms=30000 hits=9", "under 10 left 0 reset 30000"},
			{"leaky ms=30000", "over 10 left 0 reset 30000"},
			{"wait 3s", ""},
			{"leaky ms=30000", "under 10 left 0 reset 30000"},
		},
		"a burst": {
			{"leaky ms=30000 burst=20", "under 10 left 19 reset 3000"},
			{"leaky ms=30000 burst=20 hits=19", "under 10 left 0 reset 60000"},
			{"wait 30s", ""},
			{"leaky ms=30000 burst=20 hits=0", "under 10 left 10 reset 30000"}, // A4: never all of it at once
		},
		"more than the burst takes nothing": {
			{"leaky hits=11", "over 10 left 10 reset 0"},
			{"leaky hits=4", "under 10 left 6 reset 24000"},
			{"leaky hits=7", "over 10 left 6 reset 24000"},
			{"leaky hits=7 DRAIN_OVER_LIMIT", "over 10 left 0 reset 60000"},
		},
		"other limits do not fill it": { // A5
			{"leaky hits=10 limit=10", "under 10 left 0 reset 60000"},
			{"leaky limit=11 hits=11", "over 11 left 1 reset 54546"},
			{"leaky limit=10", "over 10 left 0 reset 60000"},
			{"leaky limit=100", "under 100 left 89 reset 6600"},
			{"leaky limit=5", "over 5 left 0 reset 132000"}, // it holds eleven
			{"wait 72s", ""},
			{"leaky limit=5 hits=0", "under 5 left 0 reset 60000"},
		},
		"negative hits": {
			{"leaky hits=4", "under 10 left 6 reset 24000"},
			{"leaky hits=-3", "under 10 left 9 reset 6000"},
			{"leaky hits=-3", "under 10 left 10 reset 0"},
		},
		"RESET_REMAINING ignores hits": {
			{"leaky hits=10", "under 10 left 0 reset 60000"},
			{"leaky hits=3 RESET_REMAINING", "under 10 left 10 reset 0"},
			{"leaky hits=3 burst=15 RESET_REMAINING", "under 10 left 15 reset 0"},
			{"leaky", "under 10 left 9 reset 6000"},
		},
		"more hits than milliseconds": {
			{"leaky limit=1000 ms=10 hits=1000", "under 1000 left 0 reset 10"},
			{"wait 5ms", ""},
			{"leaky limit=1000 ms=10 hits=0", "under 1000 left 500 reset 5"},
		},
		"limits and durations of 0": {
			{"leaky limit=0 burst=5", "over 0 left 0 reset 60000"},
			{"leaky ms=0 burst=5 hits=5", "under 10 left 0 reset 0"},
			{"leaky ms=0 burst=5 hits=6", "over 10 left 5 reset 0"},
			{"leaky hits=10", "under 10 left 0 reset 60000"},
			{"leaky limit=0 burst=5 RESET_REMAINING", "under 0 left 0 reset 0"},
			{"leaky", "under 10 left 9 reset 6000"},
		},
		"largest numbers": {
			{"leaky limit=4294967295 burst=4294967295 ms=34560000000 hits=4294967295",
				"under 4294967295 left 0 reset 34560000000"},
			{"key=wide limit=9007199254740991 hits=9007199254740990", "under 9007199254740991 left 1 reset 60000"},
			{"leaky key=wide limit=9007199254740991 burst=9007199254740991 hits=9007199254740990",
				"under 9007199254740991 left 1 reset 60000"},
			{"key=wide limit=9007199254740991 hits=9007199254740992", "over 9007199254740991 left 1 reset 60000"},
			{"leaky key=long limit=1 ms=3155760000000",
				"error: while applying rate limit 'n_long': duration 3155760000000 is out of range: give 0 to 34560000000 " +
					"milliseconds, which are 400 days"},
			{"leaky key=slow limit=1 burst=1000 ms=34560000000", "error: burst 1000 takes over 100 years to recover"},
		},
	} {
		t.Run(name, func(t *testing.T) { newFixture(t, nil).run(steps) })
	}
}

// Units of the calendar, in UTC and in another zone. The clock stands at noon, UTC, on
// Thursday, 1 January 2026.
func TestGregorian(t *testing.T) {
	const hour, day = 3_600_000, 24 * 3_600_000
	for _, zone := range []struct {
		name  string
		ahead int64 // hours before UTC
	}{{"", 0}, {"Europe/Berlin", 1}} {
		for _, x := range []struct {
			unit, end int64
			leaks     int64 // milliseconds for a hit of 1000
		}{
			{0, 60_000, 60}, {1, hour, 3600}, {2, (12 - zone.ahead) * hour, 86_400},
			{3, 3*day + (12-zone.ahead)*hour, 604_800}, // until Monday
			{4, 30*day + (12-zone.ahead)*hour, 31 * 86_400}, {5, 364*day + (12-zone.ahead)*hour, 365 * 86_400},
		} {
			t.Run(fmt.Sprint(zone.name, x.unit), func(t *testing.T) {
				f := newFixture(t, func(o *Options) { o.Zone = zone.name })
				f.run([]step{
					{fmt.Sprint("limit=2 DURATION_IS_GREGORIAN at=5 ms=", x.unit), fmt.Sprint("under 2 left 1 reset ", x.end)},
					{fmt.Sprint("limit=2 hits=2 DURATION_IS_GREGORIAN ms=", x.unit), fmt.Sprint("over 2 left 1 reset ", x.end)},
					// A6
					{fmt.Sprint("leaky limit=1000 DURATION_IS_GREGORIAN ms=", x.unit),
						fmt.Sprint("under 1000 left 999 reset ", x.leaks)},
					{fmt.Sprintf("wait %dms", x.end), ""},
				})
				if got := f.ask(fmt.Sprint("limit=2 hits=2 DURATION_IS_GREGORIAN ms=", x.unit)); !strings.HasPrefix(got,
					"under 2 left 0 ") {
					t.Errorf("after its end: %s", got)
				}
			})
		}
	}
	newFixture(t, nil).run([]step{
		{"DURATION_IS_GREGORIAN ms=6",
			"error: behavior DURATION_IS_GREGORIAN is set; but `Duration` is not a valid gregorian interval"},
		{"DURATION_IS_GREGORIAN ms=-1", "error: is not a valid gregorian interval"},
		{"DURATION_IS_GREGORIAN ms=9223372036854775807", "error: is not a valid gregorian interval"},
		{"DURATION_IS_GREGORIAN limit=0 ms=0", "over 0 left 0 reset 60000"},
	})
	if _, err := NewService(Options{Config: frontend.Config{Decider: weirtest.New(t, "version: 1\nrules: []\n")},
		Zone: "Europe/Bonn"}); err == nil || !strings.Contains(err.Error(), "give an IANA name") {
		t.Errorf("a zone that there is not: %v", err)
	}
}

// What is not valid is an error in the item's place, and the others are decided.
func TestInvalidItems(t *testing.T) {
	newFixture(t, nil).run([]step{
		{"key= name=", "error: field 'unique_key' cannot be empty"}, // the key is looked at first
		{"name=", "error: field 'namespace' cannot be empty"},
		{"algorithm=7", "error: while applying rate limit 'n_k': Invalid rate limit algorithm '7'"},
		{"algorithm=-1", "error: Invalid rate limit algorithm '-1'"},
		{"limit=-1", "error: limit -1 is out of range: give 0 to 9007199254740991"},
		{"limit=9007199254740992", "error: limit 9007199254740992 is out of range"},
		{"leaky burst=-1", "error: burst -1 is out of range"},
		{"ms=-1", "error: duration -1 is out of range: give 0 to 34560000000 milliseconds, which are 400 days"},
		{"ms=9223372036854775807", "error: duration 9223372036854775807 is out of range"},
		{"hits=9223372036854775807", "over 10 left 10 reset 60000"},
		{"limit=4294967295 hits=4294967296", "over 4294967295 left 4294967295 reset 60000"}, // not admitted as the limit
		{"limit=4294967295 hits=4294967296 DRAIN_OVER_LIMIT", "over 4294967295 left 0 reset 60000"},
	})
	f := newFixture(t, nil)
	if got, want := f.ask("hits=2;key=;;limit=-1;hits=0"),
		"under 10 left 8 reset 60000; error: field 'unique_key' cannot be empty; under 10 left 7 reset 60000; "+
			"error: while applying rate limit 'n_k': limit -1 is out of range: give 0 to 9007199254740991; under 10 left 7 "+
			"reset 60000"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := f.ask(strings.Repeat(";", MaxItems)); !strings.Contains(got,
		"code = OutOfRange desc = Requests.RateLimits list too large; max size is '1000'") {
		t.Errorf("1001 items: %s", got)
	}
	out, err := f.service.getRateLimits(t.Context(), anyone(f.service), new(pb.GetRateLimitsReq), 0)
	if err != nil || out.GetResponses() == nil || len(out.GetResponses()) != 0 {
		t.Errorf("no items: %v, %v", out, err)
	}
}

// events are what the audit was told.
type events []frontend.AuditEvent

func (e *events) Audited(x frontend.AuditEvent) { *e = append(*e, x) }

// Without the operator's leave there are neither limits, nor resets, nor negative hits. The
// audit is told of refusals and of what was done.
func TestNotAllowed(t *testing.T) {
	var told events
	shut := newFixture(t, func(o *Options) { o.Config.AllowRequestLimits, o.Config.Audit = false, &told })
	if got := shut.ask("hits=1;hits=0;limit=0"); strings.Count(got,
		"error: limits that come with a request are not allowed here: the operator must start the node with "+
			"--allow-request-limits") != 3 {
		t.Error(got)
	}
	if len(told) != 1 || told[0].Outcome != frontend.AuditRefused || told[0].Count != 3 || told[0].Over != "gubernator" {
		t.Errorf("%+v", told)
	}
	told = nil
	careful := newFixture(t, func(o *Options) {
		o.Config.AllowReset, o.Config.AllowRefunds, o.Config.Audit = false, false, &told
	})
	careful.run([]step{
		{"hits=10", "under 10 left 0 reset 60000"},
		{"RESET_REMAINING",
			"error: RESET_REMAINING is not allowed here: the operator must start the node with --allow-reset"},
		{"hits=-1", "error: negative hits are not allowed here: the operator must start the node with --allow-refunds"},
		{"hits=0", "under 10 left 0 reset 60000"},
	})
	if got := fmt.Sprintf("%+v", told); len(told) != 2 || !strings.Contains(got, "Action:reset Outcome:refused") ||
		!strings.Contains(got, "Action:refund Outcome:refused") {
		t.Error(got)
	}
	told = nil
	newFixture(t, func(o *Options) { o.Config.Audit = &told }).ask("hits=-1;RESET_REMAINING;hits=-1;;hits=0")
	if got := fmt.Sprintf("%+v", told); len(told) != 2 || !strings.Contains(got, "Action:reset Outcome:done") ||
		!strings.Contains(got, "Action:refund Outcome:done") {
		t.Error(got)
	}
	told = nil
	newFixture(t, func(o *Options) {
		o.Config.Decider, o.Config.Audit = &failing{weirtest.New(t, "version: 1\nrules: []\n")}, &told
	}).ask("hits=-1;RESET_REMAINING;RESET_REMAINING")
	if got := fmt.Sprintf("%+v", told); len(told) != 2 || !strings.Contains(got, "Action:reset Outcome:failed") ||
		!strings.Contains(got, "Action:refund Outcome:failed") {
		t.Error(got)
	}
}

// failing is a node that resets nothing and takes nothing back.
type failing struct{ *weirtest.Node }

func (*failing) Reset(context.Context, limiter.Request) (int, error) {
	return 0, limiter.ErrUnanswered
}

func (*failing) Refund(context.Context, limiter.Request, limiter.Receipt) error {
	return limiter.ErrUnanswered
}

// spender is a caller that may do everything, and counts what it spends.
type spender struct {
	frontend.Caller
	checks, bytes, keys int
	err                 error
}

func (*spender) Name() string                               { return "shop" }
func (*spender) Tenant() string                             { return "shop" }
func (*spender) May(frontend.Action) (limiter.Scope, error) { return nil, nil }
func (*spender) CountsKeys() bool                           { return true }
func (s *spender) SpendKeys(n int)                          { s.keys += n }
func (s *spender) Spend(checks, bytes int) error {
	s.checks += checks
	s.bytes += bytes
	return s.err
}
func (s *spender) Identify(frontend.Credentials) (frontend.Caller, error) { return s, nil }

// A message is charged to the caller's budget: its items, its bytes and the keys that were new.
// Beyond the budget it is refused as a whole.
func TestBudgets(t *testing.T) {
	by := new(spender)
	var told events
	f := newFixture(t, func(o *Options) { o.Config.Access, o.Config.Audit = by, &told })
	ask := func(text string) string {
		t.Helper()
		in := new(pb.GetRateLimitsReq)
		for part := range strings.SplitSeq(text, ";") {
			in.Requests = append(in.Requests, request(t, f.node.Now(), part))
		}
		session, _ := f.service.front.Identify(nil, frontend.Credentials{})
		out, err := f.service.getRateLimits(t.Context(), &session, in, 70)
		return fmt.Sprint(len(out.GetResponses()), err)
	}
	ask("key=a;key=a;key=b;key=c hits=0;key=d hits=11;key=e hits=11 DRAIN_OVER_LIMIT")
	if by.checks != 6 || by.bytes != 70 || by.keys != 3 {
		t.Errorf("%+v", by)
	}
	by.err = fmt.Errorf("%w: too many checks", frontend.ErrBudget)
	if got := ask("key=a"); !strings.Contains(got, "code = ResourceExhausted") ||
		!strings.Contains(got, "too many checks") {
		t.Error(got)
	}
	if len(told) > 0 { // budgets are limits, which are counted
		t.Errorf("%+v", told)
	}
}

// stuck is a node whose resets wait for a member that does not answer.
type stuck struct {
	*weirtest.Node
	waited int
}

func (s *stuck) Reset(ctx context.Context, _ limiter.Request) (int, error) {
	if ctx.Err() == nil {
		s.waited++
	}
	<-ctx.Done()
	return 0, ctx.Err()
}

// A message ends, however many of its items wait.
func TestCallsEnd(t *testing.T) {
	slow := &stuck{Node: weirtest.New(t, "version: 1\nrules: []\n")}
	f := newFixture(t, func(o *Options) { o.Config.Decider, o.within = slow, time.Millisecond })
	got := f.ask(strings.Repeat("RESET_REMAINING;", 500) + "RESET_REMAINING")
	if strings.Count(got, "error: while fetching rate limit 'n_k' from peer: context deadline exceeded") != 501 ||
		slow.waited > 1 {
		t.Errorf("%d waited, %.300s", slow.waited, got)
	}
}

// However many limits clients bring, few are kept.
func TestLimitsAreBounded(t *testing.T) {
	f := newFixture(t, nil)
	for i := range 30 {
		var items []string
		for j := range MaxItems {
			items = append(items, fmt.Sprint("hits=0 limit=", 1+i*MaxItems+j))
		}
		if got := f.ask(strings.Join(items, ";")); strings.Contains(got, "error") {
			t.Fatalf("%.300s", got)
		}
	}
	if n := f.service.limits.kept.Len(); n > 2*maxLimits+1 {
		t.Errorf("%d limits are kept", n)
	}
	f.node.Advance(limitLife)
	f.ask("limit=5")
	f.node.Advance(limitLife)
	f.ask("limit=5")
	if n := f.service.limits.kept.Len(); n > 2 {
		t.Errorf("%d limits are kept after two lives", n)
	}
}

// far is a node to which hits take 100 ms, and from which answers take 20.
type far struct{ *weirtest.Node }

func (f far) PeekBatchInto(ctx context.Context, rs []limiter.Request, ds []limiter.Decision, peeks []bool) error {
	f.Advance(100 * time.Millisecond)
	defer f.Advance(20 * time.Millisecond)
	return f.Node.PeekBatchInto(ctx, rs, ds, peeks)
}

// uneven is a node whose answers take from 1 to 900 microseconds more from one to the next.
type uneven struct {
	*weirtest.Node
	n *int
}

func (u uneven) PeekBatchInto(ctx context.Context, rs []limiter.Request, ds []limiter.Decision, peeks []bool) error {
	*u.n++
	defer u.Advance(time.Duration(1+*u.n*137%900) * time.Microsecond)
	return u.Node.PeekBatchInto(ctx, rs, ds, peeks)
}

// The reset of one window is told alike in all its answers, by whichever clock, and that of the next window is its own.
func TestResetsOfOneWindowAreAlike(t *testing.T) {
	var node uneven
	f := newFixture(t, func(o *Options) {
		node = uneven{o.Config.Decider.(*weirtest.Node), new(int)}
		o.Config.Decider = node
	})
	for _, window := range []int64{60_000, 100} {
		for range 3 {
			told := make(map[int64]int)
			begin := f.node.Now()
			for i := range 40 {
				in := request(t, f.node.Now(), fmt.Sprint("limit=20 ms=", window, " key=", window,
					[]string{"", " hits=0", " at=3", " at=-2"}[i%4]))
				out, err := f.service.getRateLimits(t.Context(), anyone(f.service),
					&pb.GetRateLimitsReq{Requests: []*pb.RateLimitReq{in}}, 100)
				if err != nil {
					t.Fatal(err)
				}
				told[out.GetResponses()[0].GetResetTime()]++
			}
			if len(told) != 1 {
				t.Errorf("a window of %d ms: %v", window, told)
			}
			for at := range told {
				if after := at - begin.UnixMilli(); after < window || after > window+2 {
					t.Errorf("a window of %d ms is told to end after %d", window, after)
				}
			}
			f.node.Advance(time.Duration(window) * time.Millisecond)
		}
	}
}

// After RESET_REMAINING a window begins anew, also a moment after the one before.
func TestResetsAfterReset(t *testing.T) {
	f := newFixture(t, nil)
	f.ask("")
	f.node.Advance(20 * time.Millisecond)
	if got := f.ask("RESET_REMAINING;hits=1"); !strings.HasSuffix(got, "left 9 reset 60000") {
		t.Error(got)
	}
}

// A reset is told no earlier than it comes, however long the hits took to the member that decides. Told
// by a client's own clock, it is counted from the time that the client has given.
func TestResetsAreNotToldTooEarly(t *testing.T) {
	var node far
	f := newFixture(t, func(o *Options) {
		node.Node = o.Config.Decider.(*weirtest.Node)
		o.Config.Decider = node
	})
	f.run([]step{ // as seen when the answer has come
		{"", "under 10 left 9 reset 60000"},
		{"", "under 10 left 8 reset 59880"},
		{"hits=9 DRAIN_OVER_LIMIT", "over 10 left 0 reset 59640"}, // asked twice
		{"key=l leaky", "under 10 left 9 reset 6000"},
		{"key=c at=0", "under 10 left 9 reset 60000"}, // of a clock that seems to be the node's
		{"key=d at=5000", "under 10 left 9 reset 64880"},
	})
}

package quota_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/envoy/quota"
	"github.com/weirlimit/weir/internal/envoy/quota/quotatest"
	"github.com/weirlimit/weir/limiter"
)

// talk is one stream, whose questions are answered at once.
type talk struct {
	t    *testing.T
	s    *quota.Stream
	now  limiter.Tick
	rate uint32 // what is assigned; 0: nothing is
	asks []quota.Ask
	out  quota.Out
}

func newTalk(t *testing.T) *talk {
	return &talk{t: t, s: quota.NewStream(nil), now: limiter.Hour, rate: 100}
}

// step answers what a step has asked, and returns what Envoy is told.
func (x *talk) step() []quota.Action {
	for i := range x.out.Asks {
		a := &x.out.Asks[i]
		x.asks = append(x.asks, *a)
		g := quota.Grant{Kind: quota.Tokens, Size: 20, Rate: x.rate}
		if a.Size != 0 {
			g.Size = a.Size
		}
		if x.rate == 0 {
			g.Kind = quota.DenyAll
		}
		x.s.Answered(x.now, a, g, &x.out)
	}
	actions := x.out.Actions
	x.out.Asks, x.out.Actions = nil, nil
	return actions
}

func (x *talk) report(after time.Duration, us ...quota.Usage) []quota.Action {
	x.now += limiter.Span(after)
	x.s.Report(x.now, us, &x.out)
	return x.step()
}

func (x *talk) wait(d time.Duration) (actions []quota.Action) {
	for until := x.now + limiter.Span(d); ; {
		next := x.s.Due(x.now, &x.out)
		actions = append(actions, x.step()...)
		if x.now >= until {
			return actions
		}
		x.now = min(until, max(next, x.now+limiter.Millisecond))
	}
}

func (x *talk) last() quota.Ask { return x.asks[len(x.asks)-1] }

// name is the name of a bucket as the protocol's messages have it.
func name(t *testing.T, entries map[string]string) string {
	t.Helper()
	data, err := proto.Marshal(&rlqs.RateLimitQuotaUsageReports{BucketQuotaUsages: []*rlqs.
		RateLimitQuotaUsageReports_BucketQuotaUsage{{BucketId: &rlqs.BucketId{Bucket: entries}}}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := quota.Read(data)
	if err != nil {
		t.Fatal(err)
	}
	us, err := r.Next(1, nil)
	if err != nil || len(us) != 1 {
		t.Fatal(us, err)
	}
	return us[0].ID
}

func shown(actions []quota.Action) string {
	var lines []string
	for _, a := range actions {
		what := [...]string{"none", "tokens", "deny", "allow", "abandon"}[a.Kind]
		if a.Kind == quota.Tokens {
			what = fmt.Sprintf("%d+%d/s", a.Size, a.Rate)
		}
		lines = append(lines, fmt.Sprintf("%s:%s:%v", a.ID, what, a.TTL.Duration()))
	}
	return strings.Join(lines, " ")
}

func (x *talk) wants(what string, got []quota.Action, want string) {
	x.t.Helper()
	if text := shown(got); text != want {
		x.t.Errorf("%s: Envoy is told %q, want %q", what, text, want)
	}
}

// The time that a report covers is in whole seconds and mostly 0: demand is by the server's clock, whatever a report
// says of time.
func TestDemandIsByTheServersClock(t *testing.T) {
	x := newTalk(t)
	x.report(0, quota.Usage{ID: "a", Denied: 1})
	for range 10 {
		x.report(500*time.Millisecond, quota.Usage{ID: "a", Allowed: 100, Denied: 50})
	}
	if d := x.last().Demand; d < 270 || d > 300 {
		t.Errorf("150 requests each half second are a demand of %d a second", d)
	}
	x.report(time.Second, quota.Usage{ID: "a", Allowed: 300, Elapsed: limiter.Hour})
	if d := x.last().Demand; d < 270 || d > 305 {
		t.Errorf("with a false time the demand is %d", d)
	}
	x.report(0, quota.Usage{ID: "b", Allowed: 40, Elapsed: 4 * limiter.Second}) // a stream before this one ended
	if d := x.last().Demand; d != 10 {
		t.Errorf("40 requests in 4 s before the stream are a demand of %d", d)
	}
}

// Only whole seconds of a time to live are read, and less than one is over at once. All that is ever told has at
// least 2 whole seconds, an interval of exactly one and a rule; the client from Envoy's source ignores none of it,
// and would crash of an interval of 0.
func TestMessagesAreWhatEnvoyReads(t *testing.T) {
	for _, every := range []time.Duration{100 * time.Millisecond, time.Second, 3700 * time.Millisecond, time.Minute} {
		client := quotatest.Client{Domain: "edge", Deny: true}
		x := newTalk(t)
		at := func() time.Duration { return x.now.Duration() }
		id := map[string]string{"a": "b"}
		client.Request(at(), quotatest.NewID(id))
		tell := func(actions []quota.Action) {
			for i := range actions {
				m := new(rlqs.RateLimitQuotaResponse)
				if err := proto.Unmarshal(quota.AppendAction(nil, &actions[i]), m); err != nil {
					t.Fatal(err)
				}
				for _, a := range m.GetBucketAction() {
					assigned := a.GetQuotaAssignmentAction()
					if assigned == nil {
						continue
					}
					ttl := assigned.GetAssignmentTimeToLive()
					tokens := assigned.GetRateLimitStrategy().GetTokenBucket()
					if ttl.GetSeconds() < 2 || ttl.GetNanos() != 0 || tokens != nil &&
						(tokens.GetFillInterval().AsDuration() != time.Second || tokens.GetTokensPerFill().GetValue() == 0 ||
							tokens.GetMaxTokens() == 0) {
						t.Errorf("with reports each %v Envoy is told %v", every, a)
					}
				}
				client.Receive(at(), m)
			}
		}
		for i := range 20 {
			x.rate = uint32(i%3) * 50
			tell(x.report(0, quota.Usage{ID: name(t, id), Allowed: 3, Denied: 5}))
			tell(x.wait(every))
		}
		if len(client.Ignored) > 0 {
			t.Errorf("with reports each %v Envoy ignored %q", every, client.Ignored)
		}
	}
}

// A bucket of tokens that takes the place of another is as full as that one was. So while an assignment is renewed
// its size stays, and only the rate varies; the slice is the same. Envoy has one burst of it, however often the rate
// changes.
func TestRenewalsHaveOneBurst(t *testing.T) {
	client := quotatest.Client{Deny: true}
	id := quotatest.NewID(map[string]string{"a": "b"})
	bucket := name(t, map[string]string{"a": "b"})
	x := newTalk(t)
	client.Request(x.now.Duration(), id)
	admitted, seconds := 0, 0.0
	for i := range 50 {
		x.rate = uint32(1 + i%2)
		for _, a := range x.report(time.Second, quota.Usage{ID: bucket, Allowed: 1, Denied: 30}) {
			m := new(rlqs.RateLimitQuotaResponse)
			if err := proto.Unmarshal(quota.AppendAction(nil, &a), m); err != nil {
				t.Fatal(err)
			}
			client.Receive(x.now.Duration(), m)
		}
		if a := x.last(); i > 0 && (a.Size != 20 || a.Slice != x.asks[0].Slice) {
			t.Fatalf("renewal %d asks for slice %d with a size of %d", i, a.Slice, a.Size)
		}
		seconds += float64(x.rate)
		for range 30 {
			if allowed, _ := client.Request(x.now.Duration(), id); allowed {
				admitted++
			}
		}
	}
	if most := 20 + int(seconds); admitted > most {
		t.Errorf("Envoy admitted %d, at most %d were assigned", admitted, most)
	}
}

// After an expiry a bucket begins full: it is another slice, whose burst the owner charges. So is one that is so
// near to its end that the renewal may come late.
func TestWhatBeginsFullIsAnotherSlice(t *testing.T) {
	for _, c := range []struct {
		after time.Duration
		same  bool
	}{{time.Second, true}, {1790 * time.Millisecond, true}, {1800 * time.Millisecond, false}, {5 * time.Second, false}} {
		x := newTalk(t)
		x.report(0, quota.Usage{ID: "a", Denied: 1})
		first := x.last()
		x.report(c.after, quota.Usage{ID: "a", Denied: 1})
		if a := x.last(); (a.Slice == first.Slice) != c.same || (a.Size == 20) != c.same {
			t.Errorf("after %v slice %d of size %d is asked for, the first one was %d", c.after, a.Slice, a.Size, first.Slice)
		}
	}
	x := newTalk(t)
	x.report(0, quota.Usage{ID: "a", Denied: 1})
	first := x.last()
	x.rate = 0
	x.wants("what is assigned lasts while nothing more is", x.report(time.Second, quota.Usage{ID: "a", Denied: 1}), "")
	x.wants("then all is denied", x.wait(time.Second), "a:deny:2s")
	x.rate = 100
	x.report(time.Second, quota.Usage{ID: "a", Denied: 1})
	if x.last().Slice == first.Slice {
		t.Error("after a rule that denies all the old slice is renewed, and its bucket is full")
	}
}

// Without an assignment Envoy allows all, unless it is configured otherwise: it is told to deny. A bucket that Envoy
// had before this stream may have an assignment, which is not taken away.
func TestDeniesWhatIsNotAssigned(t *testing.T) {
	x := newTalk(t)
	x.rate = 0
	x.wants("a new bucket", x.report(0, quota.Usage{ID: "a", Allowed: 1}), "a:deny:2s")
	x = newTalk(t)
	x.rate = 0
	x.wants("one that Envoy had", x.report(0, quota.Usage{ID: "a", Allowed: 100, Elapsed: limiter.Second}), "")
	x.wants("when that is over", x.wait(2*time.Second), "a:deny:2s")
}

// A rate that is lowered counts at the owner until the assignment before is over, and until it is asked again: so it is
// asked then, although no report has come.
func TestAsksWhenAHigherRateIsOver(t *testing.T) {
	x := newTalk(t)
	x.report(0, quota.Usage{ID: "a", Allowed: 100, Elapsed: limiter.Second})
	x.report(time.Second, quota.Usage{ID: "a", Allowed: 100})
	x.rate = 50
	x.report(time.Second, quota.Usage{ID: "a", Allowed: 30})
	n, over := len(x.asks), x.asks[1].At+x.asks[1].Hold
	x.report(time.Second, quota.Usage{ID: "a", Allowed: 30})
	x.wait(500 * time.Millisecond)
	if len(x.asks) != n+2 || x.last().At < over || x.last().At > over+100*limiter.Millisecond {
		t.Errorf("%d questions after the rate was lowered, the last at %v; the higher rate is over at %v", len(x.asks)-n,
			x.last().At.Duration(), over.Duration())
	}
}

// An answer that comes so late that the assignment may last longer at Envoy than at the owner is not used.
func TestLateAnswersAreNotUsed(t *testing.T) {
	x := newTalk(t)
	x.s.Report(x.now, []quota.Usage{{ID: "a", Denied: 1}}, &x.out)
	x.now += quota.Slack/2 + 1
	x.wants("a late answer", x.step(), "a:deny:2s")
	x.report(time.Second, quota.Usage{ID: "a", Denied: 1})
	if x.asks[0].Slice == x.last().Slice {
		t.Error("the slice that was lent and not used is renewed")
	}
	for _, a := range x.asks {
		if a.Hold != 2*limiter.Second+quota.Slack {
			t.Errorf("a slice is lent for %v", a.Hold.Duration())
		}
	}
}

// Envoy reports all its buckets for ever: one without demand is abandoned after a minute, and not sooner.
func TestAbandonsWhatIsIdle(t *testing.T) {
	x := newTalk(t)
	x.report(0, quota.Usage{ID: "a", Denied: 1})
	for i := range 59 {
		for _, a := range x.report(time.Second, quota.Usage{ID: "a"}) {
			if a.Kind == quota.Abandon {
				t.Fatalf("abandoned after %d s", i+1)
			}
		}
	}
	x.wants("after a minute", x.report(time.Second, quota.Usage{ID: "a"}), "a:abandon:0s")
	if x.s.Len() != 0 || x.s.Assigned() != 0 {
		t.Errorf("%d buckets are left, with %d assigned", x.s.Len(), x.s.Assigned())
	}
	x.report(0, quota.Usage{ID: "a", Denied: 1})
	if x.s.Len() != 1 {
		t.Error("it does not begin again")
	}
}

// A client that only obeys the protocol, and reports late and at random, has an assignment at all times: it lives as
// long as such reports are apart.
func TestLateReports(t *testing.T) {
	x := newTalk(t)
	gaps := []time.Duration{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3}
	denied := 0
	for i := range 60 {
		x.report(0, quota.Usage{ID: "a", Allowed: 3})
		for _, a := range x.wait(gaps[i%len(gaps)] * 300 * time.Millisecond) {
			if a.Kind == quota.DenyAll && i > 10 {
				denied++
			}
		}
	}
	if denied > 0 {
		t.Errorf("it was told to deny all %d times", denied)
	}
}

// A stream with nobody behind it keeps nothing: what is not reported is renewed only until a report is overdue.
func TestSilentEnvoysAreNotRenewed(t *testing.T) {
	x := newTalk(t)
	for range 5 {
		x.report(time.Second, quota.Usage{ID: "a", Allowed: 3})
	}
	n := len(x.asks)
	x.wants("after its last report", x.wait(time.Minute), "a:deny:2s")
	if len(x.asks) > n {
		t.Errorf("%d questions for an Envoy that is silent", len(x.asks)-n)
	}
	x.wait(2 * time.Minute)
	if x.s.Len() != 0 {
		t.Error("its bucket is kept")
	}
}

// What a client sends is bounded: buckets, their names, and numbers.
func TestHostileReports(t *testing.T) {
	x := newTalk(t)
	refused := 0
	for i := range 1_000_000 / 256 {
		us := make([]quota.Usage, 256)
		for j := range us {
			us[j] = quota.Usage{ID: fmt.Sprint("bucket ", i, " ", j), Allowed: math.MaxUint64, Denied: math.MaxUint64}
		}
		x.out = quota.Out{}
		x.s.Report(x.now, us, &x.out)
		refused += x.out.Refused
		x.out.Asks, x.out.Beyond = nil, nil
		for _, a := range x.out.Actions {
			if a.Kind != quota.DenyAll {
				t.Fatalf("a bucket beyond the bound is told %v", a.Kind)
			}
		}
	}
	if x.s.Len() != quota.MaxBuckets || refused != 1_000_000/256*256-quota.MaxBuckets {
		t.Errorf("%d buckets are kept, %d are refused", x.s.Len(), refused)
	}
	x = newTalk(t)
	x.wants("a name of 1 MiB", x.report(0, quota.Usage{ID: strings.Repeat("x", 1<<20)})[:0], "")
	if x.s.Len() != 0 {
		t.Error("a bucket with a name of 1 MiB is kept")
	}
	for range 5 {
		x.report(time.Second, quota.Usage{ID: "a", Allowed: math.MaxUint64, Denied: math.MaxUint64, Elapsed: limiter.Hour})
	}
	if d := x.last().Demand; d > 1<<53 {
		t.Errorf("the demand is %d", d)
	}
}

// The name of a bucket is the same for the same entries in any order, of any bytes, and comes back as it is.
func TestNamesOfBuckets(t *testing.T) {
	entry := func(k, v string) []byte {
		e := slices.Concat([]byte{1<<3 | 2, byte(len(k))}, []byte(k), []byte{2<<3 | 2, byte(len(v))}, []byte(v))
		return append([]byte{1<<3 | 2, byte(len(e))}, e...)
	}
	read := func(entries ...[]byte) string {
		id := slices.Concat(entries...)
		u := append([]byte{1<<3 | 2, byte(len(id))}, id...)
		r, err := quota.Read(append([]byte{2<<3 | 2, byte(len(u))}, u...))
		if err != nil {
			t.Fatal(err)
		}
		us, err := r.Next(2, nil)
		if err != nil || len(us) != 1 {
			t.Fatal(us, err)
		}
		return us[0].ID
	}
	a, b := entry("a", "\xff\x00"), entry("b", "2")
	if read(a, b) != read(b, a) {
		t.Error("the order of entries matters")
	}
	if read(a, b) == read(a) || read(a, entry("a", "1")) != read(entry("a", "1")) {
		t.Error("two names are one, or the last of two values does not count")
	}
	if got := fmt.Sprintf("%q", quota.Entries(read(b, a))); got != `[{"a" "\xff\x00"} {"b" "2"}]` {
		t.Errorf("the entries are %s", got)
	}
	id := read(b, a)
	if out := quota.AppendAction(nil, &quota.Action{ID: id, Kind: quota.Abandon}); !strings.Contains(string(out), id) {
		t.Error("an action has another name")
	}
}

// A message that is none of the protocol is an error, and no panic.
func FuzzRead(f *testing.F) {
	f.Add([]byte{2<<3 | 2, 4, 1<<3 | 2, 2, 1<<3 | 2, 0})
	f.Fuzz(func(_ *testing.T, data []byte) {
		r, err := quota.Read(data)
		for err == nil {
			var us []quota.Usage
			if us, err = r.Next(8, nil); len(us) == 0 {
				break
			}
			for i := range us {
				quota.Entries(us[i].ID)
			}
		}
	})
}

// An owner whose bursts are lent denies a new slice. The stream asks for smaller ones, each with a name of its own,
// down to 20 tokens.
func TestAsksForSmallerSlices(t *testing.T) {
	x := newTalk(t)
	now, capacity := x.now, uint64(1_000_000)
	var sizes []uint32
	names := make(map[uint32]bool)
	x.s.Report(now, []quota.Usage{{ID: "a", Denied: 1}}, &x.out)
	for range 8 {
		for _, a := range x.out.Asks {
			size := quota.Size(capacity, capacity, a.Smaller)
			if len(sizes) == 0 || sizes[len(sizes)-1] != size {
				sizes = append(sizes, size)
				names[a.Slice] = true
			}
			x.s.Answered(now, &a, quota.Grant{Kind: quota.DenyAll, Size: size}, &x.out)
		}
		x.out.Asks = nil
		now += limiter.Second
		x.s.Due(now, &x.out)
	}
	if got := fmt.Sprint(sizes); got != "[6250 1562 390 97 24 20]" || len(names) != 6 {
		t.Errorf("the sizes are %s, of %d slices", got, len(names))
	}
}

// As many slices as a key can have leave something of a limit, so that those of another stream find room.
func TestSizeLeavesSomething(t *testing.T) {
	for c := uint64(2600); c < 1<<32; c = c*9/8 + 1 {
		if n := uint64(quota.Size(c, c, 0)); 128*n >= c {
			t.Errorf("128 slices of %d tokens are %d of %d", n, 128*n, c)
		}
	}
}

// One report of many buckets whose limits are used up makes a bounded number of questions, without further reports.
func TestQuestionsAfterOneReport(t *testing.T) {
	x := newTalk(t)
	x.rate = 0
	us := make([]quota.Usage, quota.MaxBuckets)
	for i := range us {
		us[i] = quota.Usage{ID: fmt.Sprint(i), Denied: 1 << 40}
	}
	x.report(0, us...)
	x.asks = nil
	x.wait(time.Minute)
	if n := len(x.asks); n > 5*quota.MaxBuckets {
		t.Errorf("%d questions about %d buckets", n, len(us))
	}
}

// A bucket that is not kept and has no requests is abandoned, or Envoy reports it for ever.
func TestAbandonsWhatIsNotKept(t *testing.T) {
	x := newTalk(t)
	x.wants("a new bucket without requests", x.report(0, quota.Usage{ID: "a"}), "a:abandon:0s")
	for i := range quota.MaxBuckets {
		x.report(0, quota.Usage{ID: fmt.Sprint(i), Denied: 1})
	}
	x.wants("one that finds no room", x.report(0, quota.Usage{ID: "b", Denied: 1}), "b:deny:2s")
	x.wants("one without requests", x.report(0, quota.Usage{ID: "b"}), "b:abandon:0s")
}

// All streams share a room, of which one caller takes three quarters: others find room beside it. What a stream took it
// gives back when it is closed, and when it forgets a bucket.
func TestStreamsShareRoom(t *testing.T) {
	var room quota.Room
	var streams []*quota.Stream
	fill := func(who string) (kept, refused int) {
		s := quota.NewStream(room.Of(who))
		streams = append(streams, s)
		var out quota.Out
		for i := range quota.MaxBytes / quota.MaxID {
			s.Report(limiter.Hour, []quota.Usage{{ID: fmt.Sprintf("%0*d", quota.MaxID, i), Denied: 1}}, &out)
		}
		return s.Len(), out.Refused
	}
	const all = quota.MaxRoom / (quota.MaxID + 240)
	kept := 0
	for range 2 * quota.MaxRoom / quota.MaxBytes {
		n, refused := fill("a")
		if kept += n; n+refused != quota.MaxBytes/quota.MaxID {
			t.Fatalf("%d are kept and %d refused", n, refused)
		}
	}
	if most := all * 3 / 4; kept > most || kept < most-1 {
		t.Errorf("%d buckets with names of 4 KiB are kept of one caller, of %d", kept, all)
	}
	if n, refused := fill("b"); refused > 0 {
		t.Errorf("beside a caller that takes all it can get another one has room for %d and not for %d", n, refused)
	}
	for _, s := range streams {
		s.Close()
	}
	if n, refused := fill("a"); refused > 0 {
		t.Errorf("after all are closed %d find room and %d do not", n, refused)
	}
}

// What was allowed while all was is not beyond what is assigned then.
func TestAllowedWhileAllWas(t *testing.T) {
	x := newTalk(t)
	x.s.Report(x.now, []quota.Usage{{ID: "a", Denied: 1}}, &x.out)
	x.s.Answered(x.now, &x.out.Asks[0], quota.Grant{Kind: quota.AllowAll}, &x.out)
	x.out = quota.Out{}
	x.report(time.Second, quota.Usage{ID: "a", Allowed: 5000})
	x.report(time.Second, quota.Usage{ID: "a", Allowed: 5000})
	if len(x.out.Beyond) > 0 {
		t.Errorf("%+v are beyond", x.out.Beyond)
	}
	x.report(time.Second, quota.Usage{ID: "a", Allowed: 5000})
	if len(x.out.Beyond) != 1 {
		t.Errorf("of 5000 with an assignment %+v are beyond", x.out.Beyond)
	}
}

// What a report says of a bucket is at most 2^32 requests, so that sums fit.
func TestNumbersAreBounded(t *testing.T) {
	data, err := proto.Marshal(&rlqs.RateLimitQuotaUsageReports{BucketQuotaUsages: []*rlqs.
		RateLimitQuotaUsageReports_BucketQuotaUsage{{BucketId: &rlqs.BucketId{Bucket: map[string]string{"a": "b"}},
		NumRequestsAllowed: math.MaxUint64, NumRequestsDenied: math.MaxUint64}}})
	if err != nil {
		t.Fatal(err)
	}
	r, _ := quota.Read(data)
	us, err := r.Next(1, nil)
	if err != nil || us[0].Allowed != 1<<32 || us[0].Denied != 1<<32 {
		t.Errorf("%+v, %v", us, err)
	}
	x := newTalk(t)
	x.report(0, quota.Usage{ID: "a", Denied: 1})
	x.report(3*time.Second, quota.Usage{ID: "a", Allowed: math.MaxUint64})
	if len(x.out.Beyond) != 1 || x.out.Beyond[0].Units > 1<<32 {
		t.Errorf("%+v are beyond", x.out.Beyond)
	}
}

// A bucket that reports name a thousand times is charged as often as its owner is asked.
func TestABucketIsChargedOnce(t *testing.T) {
	x := newTalk(t)
	x.report(0, quota.Usage{ID: "a", Allowed: 1})
	x.out = quota.Out{}
	us := make([]quota.Usage, 1000)
	for i := range us {
		us[i] = quota.Usage{ID: "a", Allowed: 100}
	}
	for range 20 {
		x.report(10*time.Millisecond, us...)
	}
	x.wait(time.Second)
	x.report(0, quota.Usage{ID: "a", Allowed: 1})
	units := uint64(0)
	for _, b := range x.out.Beyond {
		units += b.Units
	}
	if len(x.out.Beyond) > 2 || units < 20*1000*100-1000 {
		t.Errorf("%d charges of %d units", len(x.out.Beyond), units)
	}
}

// A node has room for 10,000 buckets of each of 50 Envoys, also if they are one caller.
func TestRoomForManyEnvoys(t *testing.T) {
	var room quota.Room
	for i := range 50 {
		s := quota.NewStream(room.Of("edge"))
		defer s.Close()
		var out quota.Out
		us := make([]quota.Usage, 10_000)
		for j := range us {
			us[j] = quota.Usage{ID: fmt.Sprintf("%022d", j), Denied: 1}
		}
		if s.Report(limiter.Hour, us, &out); out.Refused > 0 {
			t.Fatalf("Envoy %d: %d buckets find no room", i+1, out.Refused)
		}
	}
}

package mesh

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// A limit that another node defines is the same limit.
func TestLimitsAcrossFrames(t *testing.T) {
	half := 500
	d := NewDictionary(func(string) *limiter.Rule { return nil })
	for _, s := range []limiter.Spec{
		{Limit: 2, Window: time.Minute, Rounding: limiter.RoundCeil, Weight: &half, Name: "w"},
		{Limit: 2, Window: time.Minute, Algorithm: limiter.FixedWindow, Align: limiter.AlignFirstHit, Block: time.Second},
		{Limit: 2, Window: time.Minute, Algorithm: limiter.SlidingWindow, SubWindows: 6, Coverage: limiter.CoverageLenient},
		{Limit: 2, Window: time.Minute, Algorithm: limiter.LeakyBucket, Drip: limiter.DripInterval, Burst: 3},
		{Name: "five", Limit: 30, Window: time.Minute, Algorithm: limiter.LeakyBucket, Drip: limiter.DripInterval,
			DripUnits: 5},
		{Limit: 2, Calendar: limiter.CalendarMonth, Zone: "Asia/Kathmandu", AnchorDay: 30, At: 6*time.Hour + 5*time.Minute},
		{Limit: 2, Calendar: limiter.CalendarWeek, WeekStart: limiter.Saturday, Zone: "America/New_York"},
	} {
		l, err := limiter.NewLimit(s)
		if err != nil {
			t.Fatal(err)
		}
		p := limitToPeer(l)
		if other, err := d.Limit(&p); err != nil || !other.Equal(l) {
			t.Errorf("%v becomes %v: %v", l, other, err)
		}
	}
}

// An owner applies its own rule in the zone that the asker names. A zone that it does not
// know leaves its default, and the asker is told the rule.
func TestZonesAcrossFrames(t *testing.T) {
	rule := func(name string, limit int64) *limiter.Rule {
		l, err := limiter.NewLimit(limiter.Spec{Limit: limit, Calendar: limiter.CalendarDay})
		if err != nil {
			t.Fatal(err)
		}
		return (&limiter.Rule{Name: name, Limits: []*limiter.Limit{l}}).Zoned([]int{0})
	}
	mine, theirs := rule("a", 5), rule("a", 5)
	own := NewDictionary(func(string) *limiter.Rule { return mine })
	tokyo, _ := theirs.In("Asia/Tokyo")
	named := ruleToPeer(tokyo, tokyo.ID(), false)
	got, same := own.Lookup(&named, false)
	if want, _ := mine.In("Asia/Tokyo"); got != want || !same || got.Limits[0].Spec().Zone != "Asia/Tokyo" {
		t.Errorf("%+v, %v", got, same)
	}
	named.Choice, named.ID = "Europe/Atlantis", 7
	if got, same := own.Lookup(&named, false); got != mine || same {
		t.Errorf("%+v, %v", got, same)
	}
	base := ruleToPeer(theirs, theirs.ID(), false)
	if got, same := own.Lookup(&base, false); got != mine || !same || base.Choice != "" {
		t.Errorf("%+v, %v", got, same)
	}
	other := NewDictionary(func(string) *limiter.Rule { return nil })
	whole := Definition(tokyo)
	other.Learn([]peer.Rule{whole})
	if got, same := other.Lookup(&whole, false); got == nil || !same || got.Limits[0].Spec().Zone != "Asia/Tokyo" {
		t.Errorf("%+v, %v", got, same)
	}
}

// Two plans with one number are two rules in a frame: the owner applies the numbers of its own file, in
// which they may differ.
func TestPlansAcrossFrames(t *testing.T) {
	rule := func(numbers map[string]int64) *limiter.Rule {
		limit := func(n int64) []*limiter.Limit {
			l, err := limiter.NewLimit(limiter.Spec{Limit: n, Window: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			return []*limiter.Limit{l}
		}
		of := map[string]*limiter.Rule{}
		out := (&limiter.Rule{Name: "a", Limits: limit(1)}).Varied(limiter.ChosenByName,
			func(_ *limiter.Rule, plan string) *limiter.Rule { return of[plan] })
		for plan, n := range numbers {
			of[plan] = out.Variant(plan, limit(n))
		}
		return out
	}
	theirs, mine := rule(map[string]int64{"free": 5, "pro": 5}), rule(map[string]int64{"free": 5, "pro": 9})
	own, f := NewDictionary(func(string) *limiter.Rule { return mine }), new(peer.Frame)
	for plan, want := range map[string]uint64{"free": 5, "pro": 9, "gone": 1} {
		asked, _ := theirs.In(plan)
		got, _ := own.Lookup(&f.Rules[ruleIndex(f, asked, false)], false)
		if n := got.Limits[0].Limit(); n != want {
			t.Errorf("plan %s has %d, want %d", plan, n, want)
		}
	}
}

// An owner knows of a request whose denial leads on, also of one that may use a part. The same rule is another in a
// frame where its denial is an answer.
func TestOnwardAcrossFrames(t *testing.T) {
	l, err := limiter.NewLimit(limiter.Spec{Limit: 10, Window: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	mine := &limiter.Rule{Name: "a", Limits: []*limiter.Limit{l}}
	own, f := NewDictionary(func(string) *limiter.Rule { return mine }), new(peer.Frame)
	for _, r := range []*limiter.Rule{mine, mine.Onward(), mine.UpTo(50), mine.UpTo(50).Onward()} {
		got, same := own.Lookup(&f.Rules[ruleIndex(f, r, false)], false)
		if !same || got.LeadsOn() != r.LeadsOn() || got.Ceiling() != r.Ceiling() {
			t.Errorf("onward %v up to %d%% is onward %v up to %d%%, same %v", r.LeadsOn(), r.Ceiling(), got.LeadsOn(),
				got.Ceiling(), same)
		}
	}
}

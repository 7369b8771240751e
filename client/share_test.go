package client

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// A decision by a share has the share beside the limit, in every form of a reply. A
// reply of an older node has none; one whose column does not fit is refused.
func TestShares(t *testing.T) {
	info := &weirv1.LimitInfo{Rule: "r", Name: "day", Limit: 100, Capacity: 100, WindowUs: 86_400_000_000}
	short := &weirv1.DecisionColumns{
		Flags: []byte{1}, Remaining: []uint64{41}, ResetAfterUs: []int64{1}, LimitRefs: []uint32{1},
		Limits:  []*weirv1.LimitInfo{info},
		Sources: []byte{byte(weirv1.Source_SOURCE_SHARE)}, InForce: []uint64{42},
	}
	long := proto.CloneOf(short)
	long.EveryLimit = &weirv1.LimitColumns{
		Counts: []uint32{1}, LimitIndexes: []uint32{0}, Flags: []byte{1}, Remaining: []uint64{41}, ResetAfterUs: []int64{1},
		RetryAfterUs: []int64{0},
		Costs:        []uint64{1}, KeyIndexes: []uint32{0}, RuleRefs: []uint32{0}, InForce: []uint64{42},
	}
	old := proto.CloneOf(short)
	old.InForce = nil
	for name, m := range map[string]*weirv1.DecisionColumns{"one limit": short, "every limit": long,
		"an older node": old} {
		var all names
		var d limiter.Decision
		b := batch{n: 1}
		if err := b.got.read(m, b.n, &all); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := b.got.decision(b.place(0), &limiter.Request{}, &d); err != nil || d.Source != limiter.SourceShare {
			t.Fatalf("%s: %v, %v", name, d.Source, err)
		}
		want := uint64(42)
		if m == old {
			want = 0
		}
		if got := d.Limit(0).InForce; got != want || d.Limit(0).Limit.Limit() != 100 {
			t.Errorf("%s: %d in force of %d, want %d", name, got, d.Limit(0).Limit.Limit(), want)
		}
	}
	for _, c := range []*[]uint64{&short.InForce, &long.EveryLimit.InForce} {
		*c = append(*c, 1)
	}
	for name, m := range map[string]*weirv1.DecisionColumns{"one limit": short, "every limit": long} {
		if err := new(answers).read(m, 1, new(names)); err == nil {
			t.Errorf("%s: a column of two for one limit is read", name)
		}
	}
}

// A column of remarks that does not fit the checks, or refers to no rule, is refused.
func TestRemarksThatDoNotFit(t *testing.T) {
	for name, c := range map[string]struct {
		refs  []uint32
		valid bool
	}{"none": {nil, true}, "no remark": {[]uint32{0}, true}, "a rule": {[]uint32{1}, true},
		"two for one check": {[]uint32{1, 1}, false}, "no such rule": {[]uint32{2}, false}} {
		for _, zones := range []bool{false, true} {
			every := &weirv1.LimitColumns{Counts: []uint32{0}, RuleRefs: []uint32{0}, RuleNames: []string{"r"}}
			if every.DrawnByRefs = c.refs; zones {
				every.DrawnByRefs, every.ZoneDefaultRefs = nil, c.refs
			}
			m := &weirv1.DecisionColumns{Flags: []byte{0}, Remaining: []uint64{0}, ResetAfterUs: []int64{0},
				LimitRefs: []uint32{0}, EveryLimit: every}
			if err := new(answers).read(m, 1, new(names)); (err == nil) != c.valid {
				t.Errorf("%s, of zones %t: %v", name, zones, err)
			}
		}
	}
}

// An explanation whose reasons are not those of its limits is an error, and no panic.
func TestExplanationsThatDoNotFit(t *testing.T) {
	limit := &weirv1.LimitDecision{Rule: "r", Name: "day", Limit: 1, Capacity: 1, WindowUs: 1000}
	for name, m := range map[string]*weirv1.ExplainResponse{
		"no reason":     {Decision: &weirv1.CheckResponse{Limits: []*weirv1.LimitDecision{limit}}},
		"no limit":      {Decision: &weirv1.CheckResponse{}, Limits: []*weirv1.LimitExplanation{{}}},
		"no decision":   {Limits: []*weirv1.LimitExplanation{{}}},
		"a nil message": nil,
	} {
		_, err := new(Client).explanation(m)
		if (err == nil) != (m == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

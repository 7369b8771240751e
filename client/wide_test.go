package client

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// A reply with more units than there can be is refused, in every form of it.
func TestUnitsOutOfRange(t *testing.T) {
	const most = limiter.MaxUnits
	read := func(limit, left, share, everyLeft, cost, everyShare uint64) error {
		return new(answers).read(&weirv1.DecisionColumns{
			Flags: []byte{1}, Remaining: []uint64{left}, ResetAfterUs: []int64{1}, LimitRefs: []uint32{1},
			InForce: []uint64{share},
			Limits:  []*weirv1.LimitInfo{{Rule: "r", Name: "day", Limit: limit, Capacity: limit, WindowUs: 1e6}},
			EveryLimit: &weirv1.LimitColumns{
				Counts: []uint32{1}, LimitIndexes: []uint32{0}, Flags: []byte{1}, Remaining: []uint64{everyLeft},
				ResetAfterUs: []int64{1},
				RetryAfterUs: []int64{0}, Costs: []uint64{cost}, KeyIndexes: []uint32{0}, RuleRefs: []uint32{0},
				InForce: []uint64{everyShare},
			},
		}, 1, new(names))
	}
	tell := func(limit, burst, left, cost, share uint64) error {
		return new(Client).decode(&weirv1.CheckResponse{Limits: []*weirv1.LimitDecision{{
			Rule: "r", Name: "day", Algorithm: weirv1.Algorithm_ALGORITHM_GCRA, Limit: limit, Capacity: burst, WindowUs: 1e6,
			Remaining: left, Cost: cost, InForce: share,
		}}}, new(limiter.Decision))
	}
	for what, err := range map[string]error{"columns": read(most, most, most, most, most, most),
		"a response": tell(most, most, most, most, most)} {
		if err != nil {
			t.Errorf("the largest numbers in %s: %v", what, err)
		}
	}
	for what, err := range map[string]error{
		"limit": read(most+1, 0, 0, 0, 0, 0), "remaining": read(1, most+1, 0, 0, 0, 0), "share": read(1, 0, most+1, 0, 0, 0),
		"remaining of all": read(1, 0, 0, 1<<63, 0, 0), "cost": read(1, 0, 0, 0, most+1, 0),
		"share of all": read(1, 0, 0, 0, 0, most+1),
		"limit of one": tell(1<<63, 1, 0, 0, 0), "burst of one": tell(1, most+1, 0, 0, 0),
		"remaining of one": tell(1, 1, most+1, 0, 0),
		"cost of one":      tell(1, 1, 0, most+1, 0), "share of one": tell(1, 1, 0, 0, most+1),
	} {
		if err == nil || !strings.Contains(err.Error(), "at most 9007199254740991 are possible") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

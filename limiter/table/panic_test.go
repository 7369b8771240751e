package table

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// A panic under the locks of partitions leaves none of them locked, so that whoever
// recovers it has lost one check and not all that come for the same partitions.
func TestPanicUnlocks(t *testing.T) {
	tb := New(Config{MaxKeys: 1000})
	good := limit(t, limiter.Spec{Limit: 5, Window: time.Minute})
	broken := &limiter.Rule{Name: "broken", Limits: []*limiter.Limit{nil}}
	whole := &limiter.Rule{Name: "whole", Limits: []*limiter.Limit{good}}
	for _, keys := range []int{1, 3} {
		of := func(rule *limiter.Rule) *limiter.Charge {
			c := new(limiter.Charge)
			for i := range keys {
				c.Add(limiter.Key{Hash: limiter.Hash{Hi: uint64(i) << 53, Lo: 7}, Rule: rule, Cost: 1, Index: uint8(i)})
			}
			return c
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d keys: it does not panic, so nothing is tested", keys)
				}
			}()
			_ = tb.Decide(1, of(broken), new(limiter.Decision))
		}()
		done := make(chan error, 1)
		go func() { done <- tb.Decide(1, of(whole), new(limiter.Decision)) }()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%d keys: a partition is still locked", keys)
		}
	}
}

package table

import (
	"errors"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// A panic under the locks of partitions releases all of them. So a program that
// recovers from it has lost one check, and not all later ones in these partitions.
func TestPanicUnlocks(t *testing.T) {
	tb := New(Config{MaxKeys: 1000})
	good := limit(t, limiter.Spec{Limit: 5, Window: time.Minute})
	broken := &limiter.Rule{Name: "broken", Limits: []*limiter.Limit{nil}}
	whole := &limiter.Rule{Name: "whole", Limits: []*limiter.Limit{good}}
	for _, keys := range []int{1, 3} {
		of := func(rule *limiter.Rule) *arith.Charge {
			c := new(arith.Charge)
			for i := range keys {
				c.Add(arith.Key{Hash: arith.Hash{Hi: uint64(i) << 53, Lo: 7}, Rule: rule, Cost: 1, Index: uint8(i)})
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

// A counter that cannot be decided panics once, and is gone then with its partitions;
// others are what they were. Else each check of it would panic for as long as the process
// lives.
func TestPanicEmpties(t *testing.T) {
	for _, keys := range []int{1, 3} {
		tb := New(Config{MaxKeys: 1000})
		rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit(t, limiter.Spec{Limit: 5, Window: time.Minute})}}
		c, other := new(arith.Charge), new(arith.Charge)
		for i := range keys {
			c.Add(arith.Key{Hash: arith.Hash{Hi: 1, Lo: uint64(i) << 60}, Rule: rule, Cost: 1, Index: uint8(i)})
		}
		other.Add(arith.Key{Hash: arith.Hash{Hi: 1, Lo: 15 << 60}, Rule: rule, Cost: 1})
		d := new(limiter.Decision)
		if err := errors.Join(tb.Decide(1, c, d), tb.Decide(1, other, d)); err != nil || tb.Stats().Keys != keys+1 {
			t.Fatal(err, tb.Stats())
		}
		for i := range keys {
			p := &tb.parts[PartitionOf(c.Key(i))]
			for at := range p.slots.size {
				if s := p.slots.at(at); s.limit != 0 {
					s.limit = 0xfff0                 // no limit has this number
					s.words, s.class = 0xfff_fff, 63 // and no slab these words
				}
			}
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d keys: it does not panic, so nothing is tested", keys)
				}
			}()
			_ = tb.Decide(1, c, d)
		}()
		if n := tb.Stats().Keys; n != 1 || tb.Count(PartitionOf(other.Key(0))) != 1 {
			t.Errorf("%d keys: %d counters are left, of which one is not of these partitions", keys, n)
		}
		if err := tb.Decide(1, c, d); err != nil || !d.Allowed || tb.Stats().Keys != keys+1 {
			t.Errorf("%d keys: afterwards %v, %+v, %+v", keys, err, d, tb.Stats())
		}
	}
}

// The same of what resets, refunds, imports, sweeps and drops counters: a partition with
// a counter that cannot be worked on is empty afterwards, and can be used again.
func TestPanicElsewhereEmpties(t *testing.T) {
	tb := New(Config{MaxKeys: 1000})
	good := limit(t, limiter.Spec{Limit: 5, Window: time.Minute})
	charge := func(l *limiter.Limit) *arith.Charge {
		c := new(arith.Charge)
		c.Add(arith.Key{Hash: arith.Hash{Hi: 1, Lo: 7}, Rule: &limiter.Rule{Name: "r", Limits: []*limiter.Limit{l}},
			Cost: 1})
		return c
	}
	id := PartitionOf(charge(good).Key(0))
	p := &tb.parts[id]
	for i, of := range []struct {
		what string
		do   func(now limiter.Tick, r limiter.Receipt)
	}{
		{"reset", func(now limiter.Tick, _ limiter.Receipt) { tb.Reset(now, charge(good)) }},
		{"refund", func(now limiter.Tick, r limiter.Receipt) { tb.Refund(now, charge(good), r) }},
		{"change", func(now limiter.Tick, _ limiter.Receipt) {
			p.changed(now, func(*partition) outcome { panic("changed") })
		}},
		{"sweep", func(now limiter.Tick, _ limiter.Receipt) { tb.reclaim(now+2*limiter.Minute, (*partition).sweepOne) }},
		{"drop", func(limiter.Tick, limiter.Receipt) { tb.Drop(id) }},
	} {
		now, d := limiter.Tick(i)*limiter.Hour, new(limiter.Decision) // what is emptied voids earlier receipts
		if err := tb.Decide(now, charge(good), d); err != nil || !d.Allowed || tb.Count(id) != 1 {
			t.Fatalf("before %s: %v, %+v", of.what, err, d)
		}
		for i := range p.slots.size {
			if s := p.slots.at(i); s.limit != 0 {
				s.limit = 0xfff0                 // no limit has this number
				s.words, s.class = 0xfff_fff, 63 // and no slab these words
			}
		}
		p.expiry.Store(0)
		tb.room.expiry.Store(0)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: it does not panic, so nothing is tested", of.what)
				}
			}()
			of.do(now, d.Receipt)
		}()
		if !p.mu.TryLock() {
			t.Fatalf("%s: the partition is still locked", of.what)
		}
		p.mu.Unlock()
		if n := tb.Count(id); n != 0 || tb.Stats().Keys != 0 {
			t.Fatalf("%s: %d counters are left, and the table counts %d", of.what, n, tb.Stats().Keys)
		}
	}
}

package table

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// A receipt with a number is good once, whoever comes first, and only for its life. The
// number is remembered for as long.
func TestReceiptsOnce(t *testing.T) {
	const start = limiter.Tick(1_767_355_200_000_000)
	var o once
	good := func(now limiter.Tick, number uint64, at limiter.Tick) bool {
		return o.take(arith.NewReceipt(arith.ReceiptFields{Once: number, Time: at}), now)
	}
	for i, c := range []struct {
		now, at limiter.Tick
		number  uint64
		want    bool
	}{
		{0, 0, 1, true}, {0, 0, 1, false}, {0, 0, 2, true}, {0, 0, 0, true}, {0, 0, 0, true},
		{9 * limiter.Minute, 9 * limiter.Minute, 3, true},
		{10*limiter.Minute - 1, 0, 4, true}, {10 * limiter.Minute, 0, 5, false},
		{10*limiter.Minute + 1, limiter.Minute, 3, false},
		{18 * limiter.Minute, 9 * limiter.Minute, 3, false}, // remembered through a change of sets
		{18 * limiter.Minute, 9 * limiter.Minute, 6, true},
		{60 * limiter.Minute, 59 * limiter.Minute, 7, true}, {60 * limiter.Minute, 59 * limiter.Minute, 7, false},
		{59 * limiter.Minute, 59 * limiter.Minute, 7, false}, // the clock goes back
	} {
		if got := good(start+c.now, c.number, start+c.at); got != c.want {
			t.Errorf("step %d: receipt %d is good: %v", i, c.number, got)
		}
	}
	var won atomic.Int32
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if good(start+limiter.Hour, 99, start+limiter.Hour) {
				won.Add(1)
			}
		})
	}
	if all.Wait(); won.Load() != 1 {
		t.Errorf("%d of 16 used one receipt", won.Load())
	}
}

// A clock that goes ahead and back again makes no used receipt good once more: neither
// where its number is forgotten, nor where it was too old in between.
func TestReceiptsOnceThoughTheClockGoesBack(t *testing.T) {
	const start = limiter.Tick(1_767_355_200_000_000)
	var o once
	for i, c := range []struct {
		now, at limiter.Tick
		number  uint64
		want    bool
	}{
		{0, 0, 1, true},
		{25 * limiter.Minute, 25 * limiter.Minute, 2, true}, // forgets number 1
		{limiter.Minute, 0, 1, false},
		{limiter.Minute, 0, 3, false},
		{limiter.Minute, 25 * limiter.Minute, 2, false},
		{limiter.Minute, 25 * limiter.Minute, 4, true},
	} {
		r := arith.NewReceipt(arith.ReceiptFields{Once: c.number, Time: start + c.at})
		if got := o.take(r, start+c.now); got != c.want {
			t.Errorf("step %d: receipt %d is good: %v", i, c.number, got)
		}
	}
}

// At its bound a table makes no refund rather than one twice, and goes on after a while.
func TestReceiptsAreBounded(t *testing.T) {
	const start = limiter.Tick(1_767_355_200_000_000)
	var o once
	for i := range uint64(maxOnce) {
		if !o.take(arith.NewReceipt(arith.ReceiptFields{Once: i + 1, Time: start}), start) {
			t.Fatal(i)
		}
	}
	if o.take(arith.NewReceipt(arith.ReceiptFields{Once: maxOnce + 1, Time: start}), start) ||
		o.take(arith.NewReceipt(arith.ReceiptFields{Once: 1, Time: start}), start) {
		t.Error("a receipt is good beyond the bound")
	}
	later := start + limiter.ReceiptLife
	if !o.take(arith.NewReceipt(arith.ReceiptFields{Once: maxOnce + 2, Time: later}), later) || len(o.latest) != 1 ||
		len(o.before) != maxOnce {
		t.Errorf("%d and %d numbers", len(o.latest), len(o.before))
	}
}

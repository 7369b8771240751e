package loadgen

import (
	"math/bits"
	"time"
)

// Waits counts how long something took, in classes of at most 1 % of their times. It is for one goroutine. The zero
// value is empty.
type Waits struct {
	classes []uint64
	count   uint64
	most    time.Duration
}

// A class of waits is one value below 2*perPower ns; above that each power of two has perPower classes.
const (
	perPower = 128
	longest  = time.Duration(1<<41 - 1) // 36 minutes; longer waits count as this
	classes  = (41-7)*perPower + perPower
)

func classOf(d time.Duration) int {
	shift := max(0, bits.Len64(uint64(d))-8)
	return shift*perPower + int(d>>shift)
}

// endOf returns the longest wait of a class.
func endOf(class int) time.Duration {
	shift := max(0, class/perPower-1)
	return time.Duration(class-shift*perPower+1)<<shift - 1
}

// Add counts a wait n times.
func (w *Waits) Add(d time.Duration, n uint64) {
	if w.classes == nil {
		w.classes = make([]uint64, classes)
	}
	d = min(max(d, 1), longest)
	w.classes[classOf(d)] += n
	w.count += n
	w.most = max(w.most, d)
}

// Merge adds what others counted; nil is empty.
func (w *Waits) Merge(o *Waits) {
	if o == nil || o.count == 0 {
		return
	}
	if w.classes == nil {
		w.classes = make([]uint64, classes)
	}
	for i, n := range o.classes {
		w.classes[i] += n
	}
	w.count += o.count
	w.most = max(w.most, o.most)
}

// Count returns how many there are.
func (w *Waits) Count() uint64 { return w.count }

// Most returns the longest.
func (w *Waits) Most() time.Duration { return w.most }

// At returns the wait that a part of all, such as 0.99, do not exceed; 0 if there are none.
func (w *Waits) At(part float64) time.Duration {
	rank, seen := max(1, uint64(part*float64(w.count)+0.5)), uint64(0)
	for class, n := range w.classes {
		if seen += n; seen >= rank {
			return min(endOf(class), w.most)
		}
	}
	return 0
}

package replay

import "github.com/weirlimit/weir/limiter"

// maxSlots is the most slots of a course: as many as fit on a line next to its name.
const maxSlots = 60

// slotLength returns the shortest round length that divides the time from first to last
// into at most [maxSlots] slots, which begin at multiples of it.
func slotLength(first, last limiter.Tick) limiter.Tick {
	const (
		s = limiter.Second
		m = limiter.Minute
		h = limiter.Hour
		d = limiter.Day
	)
	length := d
	for _, try := range []limiter.Tick{s, 2 * s, 5 * s, 10 * s, 15 * s, 30 * s, m, 2 * m, 5 * m, 10 * m, 15 * m, 30 * m, h,
		2 * h, 3 * h, 6 * h, 12 * h, d} {
		if slots(first, last, try) <= maxSlots {
			return try
		}
	}
	for slots(first, last, length) > maxSlots {
		length *= 2
	}
	return length
}

func slots(first, last, length limiter.Tick) int { return int(last/length-first/length) + 1 }

func (r *Result) startSeries(first, last limiter.Tick) {
	r.First, r.Last = first, last
	r.SlotLength = slotLength(first, last)
	r.SeriesStart = first - first%r.SlotLength
	r.Series = make([]Slot, slots(first, last, r.SlotLength))
}

func (r *Result) slot(at limiter.Tick) *Slot { return &r.Series[(at-r.SeriesStart)/r.SlotLength] }

// slotName returns the length of a slot in words, such as "minute" or "15m".
func (r *Result) slotName() string { return limiter.WindowName(r.SlotLength.Duration()) }

package slices

import "github.com/weirlimit/weir/limiter"

// Held is a slice that the owner's table counts: its holder may use Rate units a second and Burst units at once
// until an instant.
type Held struct {
	ID, Rate, Burst uint64
	Until           limiter.Tick
}

// Wish is what a holder asks for: Demand units a second, for a time. Demand is what the holder saw asked for,
// smoothed by whoever asks.
type Wish struct {
	ID, Demand, Burst uint64
	For               limiter.Tick
	Fast              bool // see Division
}

const (
	// MaxHolders bounds the holders of one key. Others are assigned nothing.
	MaxHolders = 128
	// maxRate bounds all rates, so that the sum of all holders does not overflow.
	maxRate = 1 << 53
	// spare is the part of an equal share, 1/spare, that each holder is assigned whatever it demands.
	spare = 32
	// eager is the part of what is free, 1/eager, that a holder may get beyond what it demands. So those that come
	// at the same time all get something.
	eager = 64
	// maxKept bounds the assignments of one holder that are kept apart.
	maxKept = 4
)

// Division divides the rate of one key. Its owner asks it whenever a holder asks for a slice or renews one. A
// division has no clock and no lock. The zero value has no holders.
//
// The target of a holder is its part of the total by water-filling: no holder is assigned more than it demands while
// another that demands more has less. If the total exceeds all demands, the holders and one that may come share the
// rest: each gets at most as much again as it demands, or a small part of what is free. A holder is assigned its
// target, as far as the total has room beside what counts for the others:
//
//   - strict: the highest of a holder's assignments that are not over. So at each instant all that any holder may
//     still use is at most the total.
//   - fast: its newest assignment. So a rate that is taken from one holder goes to others at once, although the
//     holder may not have heard of it yet.
//
// If the total has fallen below what counts, nothing more is assigned until there is room.
type Division struct {
	now     limiter.Tick
	holders []holder
}

// holder is who holds a slice, or wishes for one.
type holder struct {
	id     uint64
	demand uint64       // units a second
	wishes limiter.Tick // until when it counts as one that wishes
	fast   bool
	kept   uint8 // how many of given there are
	// given are its assignments that are not over, the newest last, without those that an other one exceeds in both
	// its rate and its end.
	given [maxKept]assignment
}

type assignment struct {
	rate  uint64
	until limiter.Tick
}

// Assign returns the rate that a holder is assigned for w.For from now on, and the rate that the table counts for it
// until its earlier assignments are over. held are the slices that the table counts now, also those of an earlier
// owner: a slice that the division does not know, or that lasts longer than it knows, is an assignment of its rate.
// total is the units a second of all holders together. Nothing assigned is 0: an earlier assignment lasts to its
// end.
//
// Who calls it makes the table count the result before the next call for this key, as from the same instant, until
// w.For is over or, if that is later, until what it counted before ends.
func (d *Division) Assign(now limiter.Tick, w Wish, total uint64, held []Held) (assigned, counted uint64) {
	d.now = max(d.now, now)
	total = min(total, maxRate)
	d.forget()
	beyond := d.take(held)
	at := d.find(w.ID, 0)
	if at < 0 {
		if w.For <= 0 || len(d.holders) == MaxHolders {
			return 0, 0
		}
		at = len(d.holders)
		d.holders = append(d.holders, holder{id: w.ID})
	}
	h := &d.holders[at]
	h.demand, h.fast, h.wishes = min(w.Demand, maxRate), w.Fast, d.now+max(0, w.For)
	for i := range d.holders {
		if i != at {
			beyond += d.holders[i].counts()
		}
	}
	target, rest := d.target(at, total)
	room := total - min(total, beyond)
	assigned = min(target, room)
	room -= assigned
	if assigned += min(rest, room, max(target, room/eager)); assigned > 0 && w.For > 0 {
		h.give(assignment{assigned, d.now + w.For})
	} else {
		assigned = 0
	}
	return assigned, h.counts()
}

// forget forgets assignments that are over, and holders that neither have one nor wish for one.
func (d *Division) forget() {
	d.keep(func(h *holder) bool { return !h.over(d.now) || h.wishes > d.now })
	for i := range d.holders {
		d.holders[i].end(d.now)
	}
}

// idle reports whether nothing is assigned or wished for.
func (d *Division) idle(now limiter.Tick) bool {
	for i := range d.holders {
		if h := &d.holders[i]; !h.over(now) || h.wishes > now {
			return false
		}
	}
	return true
}

func (d *Division) keep(which func(*holder) bool) {
	n := 0
	for i := range d.holders {
		if !which(&d.holders[i]) {
			continue
		}
		if n != i {
			d.holders[n] = d.holders[i]
		}
		n++
	}
	d.holders = d.holders[:n]
}

// take takes in what the table counts, and returns the rate of the slices that there is no room for.
func (d *Division) take(held []Held) (beyond uint64) {
	next := 0 // where the next one is looked for first: both are mostly in one order
	for _, s := range held {
		s.Rate = min(s.Rate, maxRate)
		at := d.find(s.ID, next)
		next = at + 1
		switch {
		case s.Until <= d.now:
			continue
		case at < 0 && len(d.holders) == MaxHolders:
			beyond += s.Rate
			continue
		case at < 0:
			at = len(d.holders)
			d.holders = append(d.holders, holder{id: s.ID, demand: s.Rate, wishes: s.Until})
		}
		if h := &d.holders[at]; s.Until > h.last() {
			h.give(assignment{s.Rate, s.Until})
		}
	}
	return beyond
}

// find returns where a holder is, -1 for nowhere. It looks from one place on first.
func (d *Division) find(id uint64, from int) int {
	for n := range d.holders {
		if at := (from + n) % len(d.holders); d.holders[at].id == id {
			return at
		}
	}
	return -1
}

// target returns the part of a holder by water-filling, and its part of the rest if there is one. Those of all
// holders are at most the total.
func (d *Division) target(at int, total uint64) (target, rest uint64) {
	n := uint64(0)
	for i := range d.holders {
		if d.holders[i].wishes > d.now {
			n++
		}
	}
	if n == 0 {
		return 0, 0
	}
	least := max(1, total/n/spare)
	wants := func(h *holder) uint64 { return min(max(h.demand, least), total) }
	w := wants(&d.holders[at])
	for level := total / n; ; {
		satisfied, others, before := uint64(0), uint64(0), uint64(0)
		for i := range d.holders {
			h := &d.holders[i]
			switch {
			case h.wishes <= d.now:
			case wants(h) <= level:
				satisfied += wants(h)
			default:
				if others++; i < at {
					before++
				}
			}
		}
		if others == 0 {
			return w, (total - satisfied) / (n + 1)
		}
		next := (total - satisfied) / others
		switch {
		case next > level:
			level = next
		case w <= level:
			return w, 0
		case before < (total-satisfied)%others:
			return level + 1, 0 // what does not divide
		default:
			return level, 0
		}
	}
}

// over reports whether all of the holder's assignments are over.
func (h *holder) over(now limiter.Tick) bool { return h.last() <= now }

// last returns when the last of the holder's assignments ends.
func (h *holder) last() (until limiter.Tick) {
	for _, a := range h.given[:h.kept] {
		until = max(until, a.until)
	}
	return until
}

// counts returns what counts for the holder. Assignments that are over have been ended.
func (h *holder) counts() (rate uint64) {
	switch given := h.given[:h.kept]; {
	case h.kept == 0:
	case h.fast:
		rate = given[h.kept-1].rate
	default:
		for _, a := range given {
			rate = max(rate, a.rate)
		}
	}
	return rate
}

// give adds an assignment. Those that it exceeds are forgotten; if there are too many, two become one that exceeds
// both.
func (h *holder) give(a assignment) {
	h.keep(func(b assignment) bool { return b.rate > a.rate || b.until > a.until })
	if h.kept == maxKept {
		first, second := h.given[0], h.given[1]
		h.keep(func(b assignment) bool { return b != first && b != second })
		copy(h.given[1:], h.given[:h.kept])
		h.given[0] = assignment{max(first.rate, second.rate), max(first.until, second.until)}
		h.kept++
	}
	h.given[h.kept] = a
	h.kept++
}

// cut lowers the newest assignment of a holder to a rate, since the table counts no more; 0: there is none.
func (d *Division) cut(id, rate uint64) {
	at := d.find(id, 0)
	if at < 0 || d.holders[at].kept == 0 {
		return
	}
	h := &d.holders[at]
	if rate == 0 {
		h.kept--
		return
	}
	last := &h.given[h.kept-1]
	last.rate = min(last.rate, rate)
}

// end forgets the assignments that are over.
func (h *holder) end(now limiter.Tick) {
	h.keep(func(b assignment) bool { return b.until > now })
}

func (h *holder) keep(which func(assignment) bool) {
	n := uint8(0)
	for _, a := range h.given[:h.kept] {
		if which(a) {
			h.given[n] = a
			n++
		}
	}
	h.kept = n
}

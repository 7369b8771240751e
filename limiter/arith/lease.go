package arith

import "github.com/weirlimit/weir/limiter"

const (
	// MaxLease bounds how long units are lent.
	MaxLease = limiter.Second
	// LeaseWait is for how many times as long an owner waits for what it has lent. After that it charges all.
	LeaseWait = 3
	// leaseFor is how long they are, if the windows are long enough: a tenth of the shortest is no less.
	leaseFor = 100 * limiter.Millisecond
	// leastLease is below what a lease is not worth its messages.
	leastLease = 20 * limiter.Millisecond
	// LeastLent is the least number of units that are worth a lease.
	LeastLent = 16
)

// LeaseFor returns for how long units of a rule's counters may be lent; 0 if they may not. What a lease admits is
// charged when it is given back, so it must not matter when within the lease that was: limits on concurrency, windows
// that begin with a first hit, drips, blocks and limits that count what they reject are not lent. Nor are rules in
// shadow, which deny nothing, and those without copies: an heir must know what is lent.
func LeaseFor(r *limiter.Rule) limiter.Tick {
	if !r.Leases || !lends(r) {
		return 0
	}
	span := leaseFor
	for _, limit := range r.Limits {
		span = min(span, of(limit).Window/10)
	}
	if span < leastLease {
		return 0
	}
	return span
}

func lends(r *limiter.Rule) bool {
	for _, limit := range r.Limits {
		l := of(limit)
		switch {
		case l.P.Algorithm >= limiter.Concurrency, l.P.Count != limiter.CountNone, l.P.Block > 0, l.byHit(),
			l.leaks() && !l.Shared:
			return false
		}
	}
	return !r.Shadow && r.Deny == nil && r.Replication != limiter.ReplicationOff && len(r.Limits) > 0
}

// LeaseStep returns after which multiples of time leases of a limit best end when it binds; 0 if that does not matter.
// What they admit is charged when they are given back. A window that slides by steps counts it for a step longer if
// that is in the next step, and units that are lent at the end of a step and not used are lost to it.
func LeaseStep(limit *limiter.Limit) limiter.Tick {
	switch l := of(limit); l.P.Algorithm {
	case limiter.SlidingWindow:
		return l.Sub
	case limiter.SlidingLog, limiter.SlidingCounter:
		return l.Window / 50
	default: // a bucket leaks on, and a fixed window ends, whenever it was charged
		return 0
	}
}

// borrowerBits of the id of a lease are those of its borrower.
const borrowerBits = 16

// LeaseID returns the id of a lease of a client. The high bits of it are those of a number that the leases of one
// caller have in common.
func LeaseID(caller, id uint64) uint64 {
	const own = 64 - borrowerBits
	return max(caller>>own<<own|id<<borrowerBits>>borrowerBits, 1)
}

// SameBorrower reports whether two leases of clients are of one caller. Of two others it may be wrong once in 65,536
// times.
func SameBorrower(a, b uint64) bool { return (a^b)>>(64-borrowerBits) == 0 }

// MovesTogether reports whether what all entries of some holds have charged to a counter at an instant may come back,
// and n units be charged from then on, as one. Nothing of it may be lost at the counter's bound, and no hit may be told
// from another one.
func MovesTogether(limit *limiter.Limit, s, holds *State, holdWords []uint64, at limiter.Tick, n uint64) bool {
	l, c := of(limit), s.Open(limit)
	return !l.byHit() && l.P.Algorithm != limiter.Concurrency && l.losesBy(&c, max(at, c.Time), n) == 0 &&
		!lostAny(holds, holdWords, l.countsID())
}

// GiveBackTogether takes n units back from their counter: those that all entries of some holds have charged to it at
// one instant, see [MovesTogether]. latest is as in [State.Refund].
func GiveBackTogether(limit *limiter.Limit, s *State, words []uint64, holds *State, holdWords []uint64, at, now,
	latest limiter.Tick, n uint64) {
	l := of(limit)
	if l.leaks() {
		GiveBackAll(limit, s, holds, holdWords, now, func(Hold) bool { return true })
		return
	}
	c := s.Open(limit)
	c.reduce(l, words, now, latest, at, n, 0, true)
	*s = c.State(limit)
}

// HoldsChargedAt makes all entries ones of the same units that are charged at another instant.
func HoldsChargedAt(holds *State, words []uint64, at limiter.Tick) {
	for i := range int(holds.A) {
		w := words[i*HoldWords:][:HoldWords]
		w[2], w[5], w[6], w[7] = uint64(at), 0, 0, 0
	}
}

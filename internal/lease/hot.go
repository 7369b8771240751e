package lease

import (
	"math"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// leased is what is known of a key.
type leased struct {
	key arith.Key // its rule is that of the asker: a reload ends its use
	// since is when the present time of hotFor began. In it checks asked for so many units, and in the one before for
	// unitsBefore.
	since              limiter.Tick
	checks, hotBefore  uint32
	units, unitsBefore uint64
	grown              uint64 // units that the next lease has at least, since one was used up before its time
	left               uint64 // by the latest answer of the owner, the least of all limits
	heard              bool   // there was one
	asking             bool   // for a lease
	notBefore          limiter.Tick
	now, next          *Lease
}

// find returns what is known of a key, whose shard is locked; nil if nothing is.
func (s *shard) find(set int, k *arith.Key) *leased {
	if s.sets == nil {
		return nil
	}
	for i := range s.sets[set] {
		if e := &s.sets[set][i]; e.key.Hash == k.Hash && e.key.Rule == k.Rule {
			return e
		}
	}
	return nil
}

// place returns the place of a key that is not known, nil if others keep it. The shard is locked.
func (s *shard) place(set int, k *arith.Key, now limiter.Tick) *leased {
	if s.sets == nil {
		s.sets = make([][ways]leased, sets)
	}
	var to *leased
	for i := range s.sets[set] {
		e := &s.sets[set][i]
		if e.now == nil && e.next == nil && !e.asking && (to == nil || e.since < to.since) {
			to = e
		}
	}
	if to != nil {
		*to = leased{key: *k, since: now}
	}
	return to
}

func (e *leased) count(now limiter.Tick, units uint64) {
	switch passed := now - e.since; {
	case passed >= 2*hotFor || passed < 0:
		e.since, e.checks, e.units, e.hotBefore, e.unitsBefore = now, 0, 0, 0, 0
	case passed >= hotFor:
		e.since, e.hotBefore, e.unitsBefore, e.checks, e.units = e.since+hotFor, e.checks, e.units, 0, 0
	}
	e.checks++
	e.units += units
}

// growth is how many times as many units a lease has as the one before it, if that was used up before its time. Who
// waits for an answer before it asks again asks more often once it need not wait.
const growth = 4

// wants returns how many units are worth a lease, among so many members: as many as are asked for,
// but no more than half of what is left if each of the others asks for as many; 0 if none are.
func (e *leased) wants(t Instant, others uint64) uint64 {
	if e.asking || e.next != nil || t.Now < e.notBefore || max(e.checks, e.hotBefore) < hotChecks {
		return 0
	}
	asked := max(e.units, e.unitsBefore)
	n := max(asked*uint64(arith.LeaseFor(e.key.Rule))/uint64(hotFor), e.grown)
	for _, limit := range e.key.Rule.Limits {
		if rest := endOfStep(limit, e.left, t.At); rest > 0 {
			n = min(n, asked*uint64(rest)/uint64(hotFor))
		}
	}
	if n = min(n, e.left/(2*max(1, others))); n < arith.LeastLent {
		return 0
	}
	e.grown = 0
	return n
}

// endOfStep returns for how long a lease that begins at an instant is best used if so many units of a limit are left; 0
// if that does not matter, since the limit is not nearly full. The clocks of members may differ: then leases are given
// back a little earlier or later than is best.
func endOfStep(limit *limiter.Limit, left uint64, at limiter.Tick) limiter.Tick {
	step := arith.LeaseStep(limit)
	if step == 0 || left >= limit.Capacity()/4 {
		return 0
	}
	return max(1, step-at%step-beforeStep)
}

// pause has nothing asked for during a time, or until the end of a step of a limit: there is room again then.
func (e *leased) pause(t Instant, span limiter.Tick) {
	for _, limit := range e.key.Rule.Limits {
		if step := arith.LeaseStep(limit); step > 0 {
			span = min(span, step-t.At%step)
		}
	}
	e.notBefore = t.Now + span
}

// beforeStep is how long before the end of a step a lease is given back, so that its owner hears of it in that step.
const beforeStep = 2 * limiter.Millisecond

// Warm counts a check of a key, and reports whether the key, or another that shares its count, is asked for so often
// that it may be hot. Most keys are not, so this needs no lock, and may miss a check. Of the time before, half of the
// checks count. Of a hot key the count stands still at warmMost, so that processors need not write what they share.
func (h *Holder) Warm(now limiter.Tick, of arith.Hash) bool {
	c := &h.warm[of.Hi>>20%warmKeys]
	was, time := c.Load(), uint32(now/hotFor)&math.MaxUint16
	n := was & math.MaxUint16
	switch passed := (time - was>>16) & math.MaxUint16; {
	case passed == 1:
		n /= 2
	case passed > 1:
		n = 0
	}
	n = min(n+1, warmMost)
	if next := time<<16 | n; next != was {
		c.Store(next)
	}
	return n >= hotChecks/2
}

// WasWarm reports whether the latest check that was counted with a key found it warm.
func (h *Holder) WasWarm(of arith.Hash) bool {
	return h.warm[of.Hi>>20%warmKeys].Load()&math.MaxUint16 >= hotChecks/2
}

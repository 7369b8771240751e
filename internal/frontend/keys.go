package frontend

import (
	"errors"

	"github.com/weirlimit/weir/limiter"
)

// newKeys returns of how many keys a decision is the first charge: none of their limits had
// anything that still counted. A check that is denied is the first charge of a key, too, if its
// limits count rejected checks.
func newKeys(d *limiter.Decision) (n int) {
	if d.Repeated || d.Never {
		return 0
	}
	for i := 0; i < d.Len(); {
		key, fresh, made := d.Limit(i).Key, true, false
		for ; i < d.Len() && d.Limit(i).Key == key; i++ {
			l := d.Limit(i)
			left := l.Remaining
			if charged(d, l) {
				left, made = left+l.Cost, true
			}
			fresh = fresh && !l.Overflow && l.InForce == 0 && left == l.Limit.Capacity()
		}
		if fresh && made {
			n++
		}
	}
	return n
}

// charged reports whether a decision charged a limit that has room. See [limiter.CountRejected].
func charged(d *limiter.Decision, l *limiter.LimitDecision) bool {
	switch {
	case l.Cost == 0:
		return false
	case d.Allowed && (l.Rule == nil || !l.Rule.Shadow || !d.ShadowDenied):
		return true
	case l.Limit.CountRejected() == limiter.CountRoom:
		return l.Allowed
	}
	return l.Limit.CountRejected() == limiter.CountAll
}

// countsKeys returns the caller's budget of new keys, nil if it has none.
func (s *Session) countsKeys() KeyBudget {
	if b, ok := s.caller.(KeyBudget); ok && b.CountsKeys() {
		return b
	}
	return nil
}

// made charges the budget of new keys with n of them, at once or when the gathering ends.
func (s *Session) made(b KeyBudget, n int) {
	switch {
	case n == 0:
	case s.gathers:
		s.gathered += n
	default:
		b.SpendKeys(n)
	}
}

// Gather has the keys that the decisions of a message make charged together, when the function that it
// returns is called. A budget goes less far below nothing by one charge than by many.
func (s *Session) Gather() (spend func()) {
	s.gathers = true
	return func() {
		n := s.gathered
		s.gathers, s.gathered = false, 0
		if b := s.countsKeys(); b != nil {
			s.made(b, n)
		}
	}
}

// madeOne charges the budget with a decision.
func (s *Session) madeOne(d *limiter.Decision) {
	if b := s.countsKeys(); b != nil {
		s.made(b, newKeys(d))
	}
}

// madeMany charges it with the decisions of a batch that ended with an error, nil for none. peeks says which
// are no checks; nil: all are.
func (s *Session) madeMany(ds []limiter.Decision, peeks []bool, err error) {
	b := s.countsKeys()
	if b == nil {
		return
	}
	some, ok := errors.AsType[*limiter.BatchError](err)
	if err != nil && !ok {
		return
	}
	n, failed := 0, 0
	for i := range ds {
		if ok && failed < len(some.Index) && some.Index[failed] == i {
			failed++
			continue
		}
		if peeks == nil || !peeks[i] {
			n += newKeys(&ds[i])
		}
	}
	s.made(b, n)
}

// amended charges it with a settlement that may have made keys.
func (s *Session) amended(a *limiter.Amended) {
	if b := s.countsKeys(); b != nil && a.State == limiter.AmendCharged {
		s.made(b, max(1, a.Keys)-a.Known) // a decider of another program may not say
	}
}

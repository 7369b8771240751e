package table

import (
	"cmp"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// adopt converts a slot into one of l, if it belongs to an equal or a changed limit.
// rule is the rule of l, nil for an import, and by is as in [arith.Key].
func (p *partition) adopt(s *slot, l *limiter.Limit, rule *limiter.Rule, by uint16, now limiter.Tick) bool {
	old := p.table.registry.limit(s.limit)
	if old.Equal(l) {
		p.table.registry.prefer(s.limit, l)
		return true
	}
	id := p.table.registry.id(l, rule, cmp.Or(by, arith.LabelOf(keyLo(s.lo, old))))
	if id == 0 {
		return false
	}
	if arith.CountsID(l) != arith.CountsID(old) {
		p.table.registry.left.note(old, l, rule, s.place, p.number, now, max(p.clock, now))
		b := p.ledgerAt(s.place, s.lo^arith.NameID(old))
		if l.Algorithm() != limiter.Concurrency {
			strip(b, arith.CountsID(l)) // they have charged another counter, which was swept since
		}
		if old.Algorithm() != limiter.Concurrency && !follow(b, s, l, old, now) { // else it is held still
			strip(b, arith.CountsID(old))
			p.lending.follow(b, old, l, now)
		}
	}
	charge, fresh := s.state.Adopt(l, old, p.table.words(s), now)
	if fresh {
		p.free(s)
	}
	p.table.registry.release(p.relabel(s, id), 1)
	if fresh {
		s.state.Roll(l, nil, now)
		if charge > 0 {
			s.state.Overdraw(l, nil, now, charge)
		}
	}
	p.countSlots(s, l)
	p.expiresAt(0) // it may recover sooner than before
	return true
}

// chosen reports whether each request chooses the numbers of a rule's limits.
func chosen(rule *limiter.Rule) bool {
	return rule != nil && rule.ChosenBy() >= limiter.ChosenByName
}

// look prepares a slot for a decision by a limit of a key, and returns what decides about its state: the limit, which
// has adopted it, or what [arith.Seen] makes of the state's own. nil: the limit gets no number.
func (p *partition) look(s *slot, l *limiter.Limit, k *arith.Key, now limiter.Tick) *limiter.Limit {
	have := p.table.registry.limit(s.limit)
	switch {
	case p.table.registry.stays(s.limit, l, &s.state, chosen(k.Rule), now):
		return arith.Seen(l, have)
	case !p.adopt(s, l, k.Rule, k.By, now):
		return nil
	}
	return l
}

// become prepares a slot for a charge by a limit of a key, and returns the limit as whose its state is charged: what
// it was, if the limit cannot hold it or gets no number.
func (p *partition) become(s *slot, l *limiter.Limit, k *arith.Key, now limiter.Tick) *limiter.Limit {
	have := p.table.registry.limit(s.limit)
	if have == l || !p.table.registry.stays(s.limit, l, &s.state, false, now) && p.adopt(s, l, k.Rule, k.By, now) {
		return l
	}
	return have
}

// convert notes in a charge that a slot had another limit.
func convert(c *arith.Charge, key int, had uint16, s *slot) {
	if s.limit != had {
		c.Converted |= 1 << key
	}
}

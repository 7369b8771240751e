package redisstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// part is the share of a charge that one call decides: the keys [first, last). Its
// limits have the numbers offset to offset+size-1 in the decision.
type part struct {
	call         *call
	when         when // the instant at which the whole charge is decided
	charge       int
	first, last  int
	ids          int // how many of its keys have an id in the call
	offset, size int
}

// Decide decides charges one after the other, each as [table.Table.Decide] does, and
// overwrites the decision with the same index. If no instant is given, the server's clock
// is used. name returns the names of keys, see [arith.KeyNamer].
//
// Decide waits for Redis for [Config.Timeout] at most, whatever the number of charges. On
// Redis Cluster the reservations of a charge with several keys end before a later charge
// with one of those keys is asked, so such a batch takes several rounds of calls. When the
// time is used up, the policies decide the charges that have no answer yet, and no further
// round is asked.
//
// The context is looked at between the rounds. A round with reservations is completed even
// if the context ends, since nobody else would cancel them. What of a round has to be
// cancelled when the time is used up is still sent to Redis, for as long again, but not
// waited for.
//
// Where Redis cannot be used, the policies of the rules decide. Decide returns
// [ErrClosed] or the context's error; some of the charges may have been made then.
//
// The rule of a decision is set for denials only. The caller fills in the rule of the
// others.
func (s *Store) Decide(ctx context.Context, now arith.Instant, cs []*arith.Charge, ds []*limiter.Decision,
	name arith.KeyNamer) error {
	b := batch{store: s, now: now, charges: cs, decisions: ds, name: name, until: s.config.deadline(),
		changing: changing(cs)}
	for _, c := range cs {
		if len(cs) > 1 && c.ID != nil && c.ID.Hold > 0 {
			// Also those before it: a script that does not know holds is repeated behind it.
			s.calls.expectHolds(c, 0, c.Len(), s.clock.around(s.clock.when(now, 1)))
		}
	}
	for first := 0; ; {
		if s.closed.Load() {
			return ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		last, late := s.round(cs, first), first > 0 && b.late()
		if late {
			last = len(cs) // nothing is asked
		}
		if err := b.decide(ctx, first, last, late); err != nil {
			return err
		}
		if first = last; first == len(cs) {
			return nil
		}
	}
}

// batch is one call of Decide.
type batch struct {
	store     *Store
	now       arith.Instant
	charges   []*arith.Charge
	decisions []*limiter.Decision
	name      arith.KeyNamer
	until     time.Time // until when it waits for Redis
	changing  map[arith.Hash]bool
}

// changing returns the keys that charges of one batch count by different limits, since each chooses its own. Their
// calls use the script that adopts from the beginning: one that has to be repeated with it would come behind later
// ones.
func changing(cs []*arith.Charge) (out map[arith.Hash]bool) {
	type counter struct {
		key   arith.Hash
		limit string // several that requests bring may be of one key
	}
	var by map[counter]*limiter.Limit
	for _, c := range cs {
		for i := range c.Len() {
			k := c.Key(i)
			if len(cs) == 1 || k.Rule.ChosenBy() == limiter.ChosenByNone && k.Rule.Name != limiter.RequestRule {
				continue
			}
			for _, l := range k.Rule.Limits {
				at := counter{k.Hash, l.Name()}
				was := by[at]
				if was == nil {
					if by == nil {
						by = map[counter]*limiter.Limit{}
					}
					by[at] = l
				} else if was != l && (arith.CountsID(was) != arith.CountsID(l) || was.Limit() != l.Limit()) {
					if out == nil {
						out = map[arith.Hash]bool{}
					}
					out[k.Hash] = true
				}
			}
		}
	}
	return out
}

// late reports whether the time of the batch is used up.
func (b *batch) late() bool { return !time.Now().Before(b.until) }

// errRounds is the error of calls that are not made, because the rounds before have used up
// the time of the batch.
var errRounds = errors.New("the checks before it in its batch took as long as a batch may wait for Redis: checks of " +
	"several keys wait for earlier ones with one of these keys")

// round returns the end of the round of charges that begins with the given one. In a
// round no charge that reserves has a key in common with another charge: a reservation
// may still be cancelled when the calls of the round have been made.
func (s *Store) round(cs []*arith.Charge, first int) (last int) {
	if s.cluster == nil || first == 0 && !slices.ContainsFunc(cs, reserves) {
		return len(cs)
	}
	reserved := map[arith.Hash]bool{} // the keys of the round: whether one that reserves has it
	for i, c := range cs[first:] {
		own := reserves(c)
		for n := range c.Len() {
			if by, ok := reserved[c.Key(n).Hash]; ok && (own || by) {
				return first + i
			}
		}
		for n := range c.Len() {
			h := c.Key(n).Hash
			reserved[h] = reserved[h] || own
		}
	}
	return len(cs)
}

// reserves reports whether a charge has several parts in a Redis Cluster, each of which
// charges what it admits until all are known.
func reserves(c *arith.Charge) bool { return c.Len() > 1 && !c.Peek }

// decide decides the charges [first, last), which are one round. If it is late, it asks
// nothing, and policies decide.
func (b *batch) decide(ctx context.Context, first, last int, late bool) error {
	s := b.store
	parts := make([]part, 0, last-first)
	calls := make([]*call, 0, last-first)
	several := false
	for i := first; i < last; i++ {
		c, begin := b.charges[i], len(parts)
		parts = s.divide(parts, c, i)
		several = several || len(parts)-begin > 1
		w := s.clock.when(b.now, len(parts)-begin)
		for p := begin; p < len(parts); p++ {
			parts[p].when = w
			if late {
				calls = append(calls, &call{err: errRounds})
				continue
			}
			made, err := s.calls.decision(w, s.modeOf(c), c, c.ID, i, parts[p].first, parts[p].last, b.name)
			if err != nil {
				return err
			}
			for n := parts[p].first; n < parts[p].last && !made.adopts; n++ {
				if b.changing[c.Key(n).Hash] {
					made.adopting(s.calls)
				}
			}
			parts[p].ids = made.ids
			calls = append(calls, made)
		}
	}
	if several {
		ctx = context.WithoutCancel(ctx)
	}
	switch {
	case len(calls) == 0:
	case late:
		s.failures.call(calls[0], errRounds)
	default:
		var err error
		if calls, err = s.ask(ctx, b.until, calls); err != nil {
			return err
		}
	}
	for p := range parts {
		parts[p].call = calls[p]
	}
	var u undo
	for i := first; i < last; i++ {
		n := 0
		for n < len(parts) && parts[n].charge == i {
			n++
		}
		b.conclude(i, parts[:n], &u)
		parts = parts[n:]
	}
	return b.cancel(ctx, &u)
}

// divide appends the parts of a charge: one part for all its keys, or in a Redis
// Cluster one part for each key, since two keys may lie in different slots.
func (s *Store) divide(parts []part, c *arith.Charge, i int) []part {
	offset := 0
	for n := range c.Len() {
		size := len(c.Key(n).Rule.Limits)
		if last := len(parts) - 1; n > 0 && s.cluster == nil {
			parts[last].last, parts[last].size = n+1, parts[last].size+size
		} else {
			parts = append(parts, part{charge: i, first: n, last: n + 1, offset: offset, size: size})
		}
		offset += size
	}
	return parts
}

// modeOf returns which limits the script may charge. modeCheck: all of them. modePeek:
// none, because the charge is a peek, or because its cost is above the capacity of a
// limit that is not in shadow, so it can never be admitted. modeShadowPeeks: only those
// that are not in shadow, because the cost is above the capacity of a limit in shadow. modeNever:
// none, as modePeek, but a hold that is over is told. modeDry: none, and nothing is written. With an id, the script
// that has all keys decides by those for which the id is not remembered.
func (s *Store) modeOf(c *arith.Charge) int64 {
	mode := int64(modeCheck)
	if c.Dry {
		return modeDry
	}
	if c.Peek {
		return modePeek
	}
	if c.ID != nil && s.cluster == nil {
		return modeCheck
	}
	for n := range c.Len() {
		k := c.Key(n)
		for _, l := range k.Rule.Limits {
			if max(k.Cost, 1) <= l.Capacity() {
				continue
			}
			switch {
			case !k.Rule.Shadow && c.ID != nil && c.ID.Hold > 0:
				return modeNever
			case !k.Rule.Shadow:
				return modePeek
			}
			mode = modeShadowPeeks
		}
	}
	return mode
}

// conclude combines the replies to the parts of charge i into its decision, or adds to u
// what has to be cancelled first.
func (b *batch) conclude(i int, parts []part, u *undo) {
	s, c, d := b.store, b.charges[i], b.decisions[i]
	d.Clear()
	if len(parts) == 0 {
		return
	}
	last := parts[len(parts)-1]
	d.Grow(last.offset + last.size)
	d.Source = limiter.SourceRedis
	failed := 0
	for p := range parts {
		if parts[p].call.err == nil && len(parts[p].call.reply) != 1+perLimit*parts[p].size+perID*parts[p].ids {
			parts[p].call.err = errReply
		}
		if parts[p].call.err != nil {
			failed++
			continue
		}
		parts[p].fill(c, d)
	}
	var ids *memory // of all charges few have an id
	if c.ID != nil {
		ids = s.recall(c, parts)
	}
	if failed == 0 && len(parts) == 1 {
		if parts[0].when.now == serverClock {
			s.clock.learn(limiter.Tick(parts[0].call.reply[0]))
		}
		ids.settle(c, d)
		ids.conclude(c, d)
		return
	}
	b.concludeParts(i, parts, ids, u)
}

// fill copies a script's reply into the decision.
func (p *part) fill(c *arith.Charge, d *limiter.Decision) {
	now, numbers := limiter.Tick(p.call.reply[0]), p.call.reply[1:]
	at := p.offset
	for n := p.first; n < p.last; n++ {
		k := c.Key(n)
		for _, l := range k.Rule.Limits {
			flags := numbers[0]
			*d.Limit(at) = limiter.LimitDecision{
				Rule: k.Rule, Limit: l, Key: n, KeyIndex: k.Index, Cost: k.Cost,
				Allowed: flags&flagAllowed != 0, Blocked: flags&flagBlocked != 0,
				Never: max(k.Cost, 1) > l.Capacity(), Remaining: uint64(flags >> flagBits),
				ResetAfter: limiter.Tick(numbers[1]).Duration(), RetryAfter: limiter.Tick(numbers[2]).Duration(),
			}
			if flags&flagCharged != 0 {
				arith.NoteCharged(d, at, now)
			}
			numbers, at = numbers[perLimit:], at+1
		}
	}
}

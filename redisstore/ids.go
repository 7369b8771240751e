package redisstore

import (
	"strconv"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// An id is remembered in an entry of its own for each key that was charged, in the slot of the
// key. The script that charges the key writes it, see lua/ids.lua.

// perID is how many numbers a script returns for each id. The first of them is noRoom if its
// hold found none, or isSpent if its hold is over and a limit on concurrency needs one.
const (
	perID   = 3
	noRoom  = -2
	isSpent = -3
)

// appendID appends the end of the name of an entry that remembers an id.
func appendID(tag []byte, id *arith.Idempotency) []byte {
	return strconv.AppendUint(append(tag, idSuffix...), id.ID, 36)
}

// addIDs adds to a call the entries that remember the id of a charge for its keys, and to the
// head of its arguments what the script takes for them, with a flag: of all keys, or of those with
// a cost.
func (s *composer) addIDs(head []byte, out *call, id *arith.Idempotency, c *arith.Charge, all bool, flag byte, i,
	first, last int, name arith.KeyNamer) []byte {
	var buf [512]byte
	head = strconv.AppendInt(append(head, ','), int64(limiter.Span(id.Life)), 10)
	head = append(append(head, ','), flag)
	limit := 1 // as Lua counts
	for n := first; n < last; n++ {
		k := c.Key(n)
		if k.Cost > 0 || all {
			out.keys = append(out.keys, string(appendID(appendTag(buf[:0], s.prefix, k, i, n, name), id)))
			head = strconv.AppendInt(append(head, ','), int64(limit), 10)
			head = strconv.AppendInt(append(head, ','), int64(limit+len(k.Rule.Limits)-1), 10)
			out.ids++
		}
		limit += len(k.Rule.Limits)
	}
	return head
}

// memory is what the replies to a charge say of its id. Keys are bits.
type memory struct {
	charged uint16 // the keys that have a cost
	known   uint16 // those that were charged before, by the entry in of
	made    uint16 // those for which this charge is remembered
	full    uint16 // those that have no room for its hold
	spent   uint16 // those with a limit on concurrency of which a check with it would hold nothing
	of      [limiter.MaxKeys]entry
}

// entry is a charge that is remembered: of a key the instant, the cost, and the limits as bits.
type entry struct {
	at   limiter.Tick
	cost uint64
	bits uint64
}

// recall reads what the replies to a charge say of its id. A part without a reply is decided
// by a policy, and remembers nothing.
func (s *Store) recall(c *arith.Charge, parts []part) *memory {
	m := &memory{}
	for p := range parts {
		var numbers []int64
		if parts[p].call.err == nil {
			numbers = parts[p].call.reply[1+perLimit*parts[p].size:]
		}
		for n := parts[p].first; n < parts[p].last; n++ {
			if c.Key(n).Cost == 0 {
				continue
			}
			m.charged |= 1 << n
			if numbers == nil {
				continue
			}
			switch {
			case numbers[0] > 0:
				m.known |= 1 << n
			case numbers[0] == noRoom:
				m.full |= 1 << n
			case numbers[0] == isSpent:
				m.spent |= 1 << n
			case numbers[0] < 0:
				m.made |= 1 << n
			}
			m.of[n] = entry{limiter.Tick(numbers[0]), uint64(numbers[1]), uint64(numbers[2])}
			numbers = numbers[perID:]
		}
	}
	if m.known != m.charged && !c.Peek && s.modeOf(c)&modePeek != 0 {
		m.known = 0 // nothing was charged
	}
	return m
}

// settle combines the results of the limits of a charge, see [arith.Combine]. Where its id is
// remembered for some keys, the others are decided alone. A nil m is of a charge without an id.
func (m *memory) settle(c *arith.Charge, d *limiter.Decision) {
	if m != nil && m.known != 0 {
		for j := range d.Len() {
			if l := d.Limit(j); m.has(l.Key) {
				l.Allowed, l.Never = true, false
			}
		}
	}
	if m != nil && m.spent != 0 {
		for j := range d.Len() {
			if l := d.Limit(j); m.spent&(1<<l.Key) != 0 && l.Limit.Algorithm() == limiter.Concurrency {
				l.Allowed, l.Never, l.RetryAfter = false, true, 0
			}
		}
		arith.Combine(d, true)
		d.Repeated = true // see engine.Spent
		return
	}
	if arith.Combine(d, c.Peek); m == nil || m.full == 0 || !d.Allowed {
		return
	}
	wait := time.Duration(0)
	for n, e := range m.of {
		if m.full&(1<<n) != 0 {
			wait = max(wait, limiter.Tick(e.cost).Duration())
		}
	}
	for j := range d.Len() {
		l := d.Limit(j)
		l.Overflow, l.Allowed, l.Remaining, l.RetryAfter = true, false, 0, wait
	}
	arith.Combine(d, true)
}

// has reports whether the id is remembered for a key.
func (m *memory) has(key int) bool { return m.known&(1<<key) != 0 }

// conclude completes a decision, as a table does that remembers ids.
func (m *memory) conclude(c *arith.Charge, d *limiter.Decision) {
	switch {
	case m == nil || m.known == 0:
	case m.known == m.charged:
		d.Receipt = m.receipt(c)
		arith.Repeat(d)
	case d.Allowed || c.Dry: // an explanation has all limits
		for j := range d.Len() {
			if l := d.Limit(j); m.has(l.Key) {
				arith.Admit(l)
			}
		}
	default:
		m.leaveOut(d)
	}
	arith.Conclude(d)
}

// receipt returns the receipt of the charge that is remembered, if it had the same costs and
// was one charge.
func (m *memory) receipt(c *arith.Charge) (r limiter.Receipt) {
	f := arith.Fields(&r)
	first := 0
	for n := range c.Len() {
		if k := c.Key(n); k.Cost > 0 {
			e := m.of[n]
			if e.cost != k.Cost || f.Time != 0 && f.Time != e.at {
				return limiter.Receipt{}
			}
			f.Time = e.at
			f.Charged |= e.bits << first
		}
		first += len(c.Key(n).Rule.Limits)
	}
	if f.Charged == 0 {
		return limiter.Receipt{}
	}
	return r
}

// leaveOut leaves the keys for which the id is remembered out of a denial: they were not asked.
func (m *memory) leaveOut(d *limiter.Decision) {
	var kept []limiter.LimitDecision
	var charged, byPolicy uint64
	of := arith.Fields(&d.Receipt)
	for j := range d.Len() {
		if m.has(d.Limit(j).Key) {
			continue
		}
		if j < 64 {
			charged |= of.Charged >> j & 1 << len(kept)
			byPolicy |= of.Epoch >> j & 1 << len(kept)
		}
		kept = append(kept, *d.Limit(j))
	}
	of.Charged, of.Epoch = charged, byPolicy
	d.Grow(len(kept))
	for j := range kept {
		*d.Limit(j) = kept[j]
	}
}

// forgotten is how a refund changes the entry of an id.
type forgotten struct {
	bits  uint64 // the limits, as bits, by which it must be remembered
	after int64  // the limits that remain; -1: the id is forgotten
}

// argument returns it as the script of refunds takes it.
func (f *forgotten) argument(cost uint64, hold bool) string {
	b := strconv.AppendUint([]byte{'['}, cost, 10)
	b = strconv.AppendUint(append(b, ','), f.bits, 10)
	b = strconv.AppendInt(append(b, ','), f.after, 10)
	if hold {
		return string(append(b, ",1]"...))
	}
	return string(append(b, ",0]"...))
}

// undo returns what the cancellation of some limits does to the entry that a part of a charge
// made for key n: nil if it made none, or nothing changes. The limits of the key are those from
// first on. The entry of a denied charge is forgotten.
func (m *memory) undo(p *part, n, first, size int, cancel []bool, allowed bool) *forgotten {
	if m == nil || m.made&(1<<n) == 0 {
		return nil
	}
	var bits, gone uint64
	for j := range size {
		if p.call.reply[1+perLimit*(first-p.offset+j)]&flagCharged != 0 {
			bits |= 1 << j
		}
		if cancel[first+j] {
			gone |= 1 << j
		}
	}
	switch {
	case !allowed:
		return &forgotten{bits, -1}
	case gone != 0:
		return &forgotten{bits, int64(bits &^ gone)}
	}
	return nil
}

// limitsOf returns the limits of key n as bits; the first of them is first.
func limitsOf(c *arith.Charge, n, first int) uint64 {
	return (1<<len(c.Key(n).Rule.Limits) - 1) << first
}

func digit(is bool) byte {
	if is {
		return '1'
	}
	return '0'
}

package redisstore

import (
	"context"
	"crypto/sha1" //nolint:gosec // the scripts name limits by it
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// A hold is kept in the entry of its id and in a set beside the counters of its key, see
// lua/holds.lua. Whichever script looks at the key next takes off what has ended.

// addHold adds to the head of a call what its script takes to hold a charge, or to extend its hold.
func (s *composer) addHold(head []byte, c *arith.Charge, id *arith.Idempotency, extend bool, first, last int) []byte {
	reach := limiter.Tick(0)
	for n := first; n < last; n++ {
		for _, l := range c.Key(n).Rule.Limits {
			if l.Algorithm() != limiter.Concurrency { // which counts no longer than the hold
				reach = max(reach, s.spelled.of(l).keeps, recovery(l))
			}
		}
	}
	head = strconv.AppendInt(append(head, ",["...), int64(limiter.Span(id.Hold)), 10)
	head = strconv.AppendInt(append(head, ','), int64(digit(id.Keep)-'0')+4*int64(id.Shape), 10)
	head = strconv.AppendInt(append(head, ','), limiter.Millis(reach.Duration()), 10)
	return append(append(head, ','), digit(extend), ']')
}

// expectHolds has the checks of the keys [first, last) of a charge use the script that knows holds, for
// a while from an instant on.
func (s *composer) expectHolds(c *arith.Charge, first, last int, now limiter.Tick) {
	for n := first; n < last; n++ {
		if ls := c.Key(n).Rule.Limits; len(ls) > 0 {
			s.spelled.of(ls[0]).held.Store(int64(now + holdsLinger))
		}
	}
}

// expectsHolds reports whether one of the keys [first, last) of a charge has met holds lately.
func (s *composer) expectsHolds(c *arith.Charge, first, last int, now limiter.Tick) bool {
	for n := first; n < last; n++ {
		if ls := c.Key(n).Rule.Limits; len(ls) > 0 && s.spelled.of(ls[0]).held.Load() > int64(now) {
			return true
		}
	}
	return false
}

// recovery returns how long a full bucket takes to recover, in ticks.
func recovery(l *limiter.Limit) limiter.Tick {
	per := limiter.Tick(l.Limit())
	return min((limiter.Tick(l.C.Full)+per-1)/per*limiter.Span(l.Window()), century)
}

// amend settles or extends the hold of the charge's ID, which must not be nil, as [table.Table.Amend] does. On Redis
// Cluster each key is settled or extended by itself, after all of them were asked whether they can be; there a denied
// extension of several is not counted as rejected. An error states that Redis did not answer, or not for all keys.
// The same settlement can be made again then: it changes nothing where it was made.
func (s *Store) amend(ctx context.Context, now arith.Instant, c *arith.Charge, a limiter.Amend,
	name arith.KeyNamer) (limiter.Amended, error) {
	if s.closed.Load() {
		return limiter.Amended{}, ErrClosed
	}
	parts := s.divide(nil, c, 0)
	m := amending{store: s, w: s.clock.when(now, len(parts)), charge: c, parts: parts, name: name}
	do := m.settle
	if a.Extend {
		do = m.extend
	}
	if len(parts) > 1 || a.Lacks {
		out, err := do(ctx, a, true)
		counts := len(parts) == 1 && out.State == limiter.AmendDenied // as rejected, which what is tried does not
		if err != nil || out.State != limiter.AmendDone && out.State != limiter.AmendCharged && !counts {
			return out, err
		}
	}
	return do(ctx, a, false)
}

// amending is one call of Amend.
type amending struct {
	store  *Store
	w      when
	charge *arith.Charge
	parts  []part
	name   arith.KeyNamer
	known  bool // some part has said that it knows the id
	whole  bool // all keys that the check has charged know it, or it is settled
}

// ask makes the calls for all parts.
func (m *amending) ask(ctx context.Context, make func(p *part) (*call, error)) error {
	var calls []*call
	for i := range m.parts {
		made, err := make(&m.parts[i])
		if err != nil {
			return err
		}
		made.kind = kindAmend
		calls = append(calls, made)
	}
	calls, err := m.store.finish(ctx, calls, "the reservation may be as it was: ask the same again")
	for i := range calls {
		m.parts[i].call = calls[i]
	}
	return err
}

// settle settles, or, if dry, says what would be done.
func (m *amending) settle(ctx context.Context, a limiter.Amend, dry bool) (out limiter.Amended, _ error) {
	err := m.ask(ctx, func(p *part) (*call, error) {
		mode := int64(amendSettle)
		if dry {
			mode = amendTry
		}
		how := a // a rule in shadow has not charged a check that is known elsewhere
		how.IgnoreUnknown = a.IgnoreUnknown || m.whole || m.known && p.last == p.first+1 && m.charge.Key(p.first).Rule.Shadow
		return m.store.calls.amendment(m.w, m.charge, mode, nil, how, p.first, p.last, m.name), nil
	})
	if err != nil {
		return out, err
	}
	best, inForce, held, shape, e, differs := -1, 0, false, arith.Shape(0), arith.Estimates{}, limiter.Amended{}
	for i := range m.parts {
		r := m.parts[i].call.reply
		if len(r) != 7 || r[1] < 0 || r[1] > int64(limiter.AmendDiffers) || r[5] < 0 || r[5] > int64(m.charge.Len()) {
			return out, errReply
		}
		state := limiter.AmendState(r[1])
		inForce, shape = inForce+int(r[6]%32), max(shape, arith.Shape(r[6]/32))
		if r[4] > 0 && r[5] > 0 {
			e.Add(m.charge.Key(int(r[5])-1), uint64(r[4]))
		}
		if state == limiter.AmendDiffers {
			differs = limiter.Amended{State: state, Estimate: uint64(r[2]), First: uint64(r[3])}
			continue
		}
		m.known = m.known || state != limiter.AmendCharged && state != limiter.AmendUnknown
		held = held || state == limiter.AmendDone || r[6] >= 32
		if rank := settledRank(state); rank > best {
			best, out.State = rank, state
		}
		switch {
		case state == limiter.AmendSettled && out.First == 0:
			out.First = uint64(r[2])
		case state != limiter.AmendSettled && out.Estimate == 0:
			out.Estimate = uint64(r[2])
		}
		out.Over = max(out.Over, uint64(r[3]))
	}
	m.whole = dry && !a.Named && inForce > 0 && (!held || shape.Whole(inForce))
	switch all, differ := e.Differ(shape); {
	case out.State == limiter.AmendSettled:
		out.Estimate = 0
	case dry && a.Lacks && inForce < shape.Keys():
		return limiter.Amended{State: limiter.AmendLacks}, nil // before the costs: whoever lacks one cannot name all
	case differ && (dry || differs.State == limiter.AmendDiffers):
		return all, nil
	case differs.State == limiter.AmendDiffers:
		return differs, nil
	}
	return out, nil
}

// settledRank orders what was done with the keys of a settlement by what is to be said of all.
func settledRank(s limiter.AmendState) int {
	for rank, of := range []limiter.AmendState{limiter.AmendUnknown, limiter.AmendRepeated, limiter.AmendDone,
		limiter.AmendCharged} {
		if s == of {
			return rank
		}
	}
	return 4
}

// extend extends, or, if dry, says what would be done. What one part does not extend, since another
// caller came in between, none does.
func (m *amending) extend(ctx context.Context, a limiter.Amend, dry bool) (out limiter.Amended, err error) {
	out, err = m.extendParts(ctx, a.Lacks, dry)
	if err == nil && !dry && len(m.parts) > 1 && out.State != limiter.AmendDone && out.State != limiter.AmendUnknown {
		m.retract(ctx)
	}
	return out, err
}

// retract takes back what an extension has done, where it is still the last. A call that is lost leaves
// the longer hold, and its raise, until it ends.
func (m *amending) retract(ctx context.Context) {
	var calls []*call
	for i := range m.parts {
		p := &m.parts[i]
		reply := p.call.reply
		if len(reply) == 3 { // it was not extended
			continue
		}
		end := reply[0] + int64(limiter.Span(m.charge.ID.Hold))
		c := m.store.calls.amendment(m.w, m.charge, end, reply[1+perLimit*p.size:], limiter.Amend{}, p.first, p.last, m.name)
		c.kind = kindCancel
		calls = append(calls, c)
	}
	_, _ = m.store.finish(context.WithoutCancel(ctx), calls, "")
}

func (m *amending) extendParts(ctx context.Context, lacks, dry bool) (out limiter.Amended, _ error) {
	mode := int64(modeCheck | extends)
	if dry {
		mode = modePeek | extends
	}
	err := m.ask(ctx, func(p *part) (*call, error) {
		return m.store.calls.decision(m.w, mode, m.charge, m.charge.ID, 0, p.first, p.last, m.name)
	})
	if err != nil {
		return out, err
	}
	var (
		rest arith.Charge // what is added to the estimates
		d    limiter.Decision
	)
	known, least := false, int64(math.MaxInt64) // how long the first of the holds that are raised lasts
	var raised []part
	inForce, shape := 0, arith.Shape(0)
	for i := range m.parts {
		p := &m.parts[i]
		if r := p.call.reply; len(r) == 3 {
			switch out.State = limiter.AmendState(r[1]); out.State {
			case limiter.AmendUnknown:
				continue
			case limiter.AmendSettled:
				out.First = uint64(r[2])
			}
			return out, nil
		} else if len(r) != 1+perLimit*p.size+perID*(p.last-p.first) {
			return out, errReply
		}
		known = true
		for n := p.first; n < p.last; n++ {
			id := p.call.reply[1+perLimit*p.size+perID*(n-p.first)]
			if shape = max(shape, arith.Shape(id>>1)); id != 0 && !m.charge.Key(n).Rule.Shadow {
				inForce++
			}
		}
		raised = m.raised(raised, p, &rest, &out, &least)
	}
	if !known {
		return limiter.Amended{State: limiter.AmendUnknown}, nil
	}
	if lacks && dry && inForce < shape.Keys() {
		return limiter.Amended{State: limiter.AmendLacks}, nil
	}
	out.State = limiter.AmendDone
	if len(raised) == 0 {
		return out, nil
	}
	last := raised[len(raised)-1]
	d.Grow(last.offset + last.size)
	for i := range raised {
		raised[i].fill(&rest, &d)
	}
	arith.Combine(&d, true)
	if arith.Conclude(&d); !d.Allowed {
		if int64(limiter.Span(d.RetryAfter)) >= least {
			d.RetryAfter = 0 // there is nothing to extend any more then
		}
		out = limiter.Amended{State: limiter.AmendDenied, RetryAfter: d.RetryAfter}
	}
	return out, nil
}

// raised appends the keys of a part whose estimates are raised, each as a part of a charge of what
// is added. It notes the first estimate, and how long the first of these holds lasts at least.
func (m *amending) raised(all []part, p *part, rest *arith.Charge, out *limiter.Amended, least *int64) []part {
	reply := p.call.reply
	ids, limit, offset := reply[1+perLimit*p.size:], 0, 0
	if len(all) > 0 {
		offset = all[len(all)-1].offset + all[len(all)-1].size
	}
	for n := p.first; n < p.last; n++ {
		k, size, id := *m.charge.Key(n), len(m.charge.Key(n).Rule.Limits), ids[perID*(n-p.first):]
		held, was := id[0] != 0, uint64(id[1])
		if held && out.Estimate == 0 {
			out.Estimate = max(was, k.Cost)
		}
		if held && k.Cost > was {
			*least = min(*least, id[2]-reply[0])
			k.Cost -= was
			numbers := append([]int64{reply[0]}, reply[1+perLimit*limit:][:perLimit*size]...)
			all = append(all, part{call: &call{reply: numbers}, first: rest.Len(), last: rest.Len() + 1, offset: offset,
				size: size})
			rest.Add(k)
			offset += size
		}
		limit += size
	}
	return all
}

// Modes of an amendment. Any other mode is the end that an extension gave to the holds, in µs: it is taken back.
const (
	amendSettle = 0
	amendTry    = 1 // says what a settlement would do
)

// amendment returns the call that amends the holds of the keys [first, last) of a charge in a mode. An
// extension is taken back by what its reply says of each id in before.
func (s *composer) amendment(w when, c *arith.Charge, mode int64, before []int64, a limiter.Amend, first, last int,
	name arith.KeyNamer) *call {
	var buf [512]byte
	out, around := &call{script: s.scripts.amend, args: make([]any, 1)}, s.clock.around(w)
	head := strconv.AppendInt(append(w.append(nil), ','), mode, 10)
	for n := first; n < last; n++ {
		k := c.Key(n)
		cost, end := int64(k.Cost), ruleNumber(c, n, a.Named)
		if before != nil {
			cost, end = before[perID*(n-first)+1], before[perID*(n-first)+2]
		}
		tag := appendTag(buf[:0], s.prefix, k, 0, n, name)
		for _, l := range k.Rule.Limits {
			out.keys = append(out.keys, string(append(append(tag, ':'), l.Name()...)))
			out.add(s.spelled.of(l), k.Rule, around)
			head = strconv.AppendInt(append(head, ','), cost, 10)
			head = strconv.AppendInt(append(head, ','), end, 10)
		}
	}
	unknown := digit(a.IgnoreUnknown)
	if a.Named && !a.IgnoreUnknown {
		unknown = '2' // see lua/amend.lua
	}
	head = s.addIDs(head, out, c.ID, c, true, unknown, 0, first, last, name)
	out.args[0] = string(append(head, ']'))
	out.route = out.keys[0]
	out.holding()
	return out
}

// ruleNumber returns a number of a key's rule, by which lua/amend.lua compares what rules have reserved; 0 if it
// does not, see [arith.Key.Compared] and [limiter.Amend.Named], and -1 if the rule is in shadow. It is 1 more than the
// index of a key with the rule.
func ruleNumber(c *arith.Charge, n int, named bool) int64 {
	switch {
	case c.Key(n).Rule.Shadow:
		return -1
	case named || !c.Key(n).Compared():
		return 0
	}
	for i := range n {
		if c.Key(i).Rule.Name == c.Key(n).Rule.Name {
			return int64(i) + 1
		}
	}
	return int64(n) + 1
}

// openHolds are the members of the set of a key's open holds.
type openHolds []string

// explainedHolds bounds the holds that an explanation lists.
const explainedHolds = 20

// openHolds returns the holds of the key of a counter that end after an instant.
func (s *Store) openHolds(ctx context.Context, now limiter.Tick, counter string) (openHolds, error) {
	key := counter[:strings.IndexByte(counter, '}')+1] + holdsSuffix
	all, err := s.client.ZRangeByScore(ctx, key, &redis.ZRangeBy{Min: "(" + strconv.FormatInt(int64(now), 10),
		Max: "+inf"}).Result()
	if err != nil {
		return nil, fmt.Errorf("redis did not return the holds in %s: %w", key, err)
	}
	return all, nil
}

// fields returns what is held of the limit that holds know by a name, and until when. See lua/holds.lua
// for the members.
func (h openHolds) fields(name string) (out []limiter.Field) {
	const header = 10
	sum, n := uint64(0), 0
	for _, m := range h {
		if len(m) < header {
			continue
		}
		units := 4 // the bytes of a cost
		if m[7]%4 >= 2 {
			units = 7
		}
		part := 7 + units + len(name)
		var end [8]byte
		copy(end[:7], m)
		then := "then given back"
		if m[7]%2 != 0 {
			then = "then kept"
		}
		parts := int(binary.LittleEndian.Uint16([]byte(m[8:])))
		for at := header; parts > 0 && at+part <= len(m); at, parts = at+part, parts-1 {
			if m[at+7+units:at+part] != name {
				continue
			}
			var whole [8]byte
			copy(whole[:], m[at+7:at+7+units])
			cost := binary.LittleEndian.Uint64(whole[:])
			sum, n = sum+cost, n+1
			if n <= explainedHolds {
				until := stamp(limiter.Tick(binary.LittleEndian.Uint64(end[:])))
				out = append(out, limiter.Field{Name: "hold", Value: fmt.Sprintf("%d until %s, %s", cost, until, then)})
			}
		}
	}
	if n == 0 {
		return nil
	}
	return append([]limiter.Field{{Name: "held", Value: fmt.Sprintf("%d, in %d charges", sum, n)}}, out...)
}

// counted returns the name by which holds know a limit: partly in lua/holds.lua, shortened.
func (p *params) counted(name string) string {
	text := p.text.(string)
	var n []float64
	if json.Unmarshal([]byte(text), &n) != nil || len(n) < 7 {
		return ""
	}
	text = luaNumber(n[0])
	if f, _ := isWide(int64(n[0])); f == familyLog {
		text += ";" + luaNumber(n[2])
	} else if f != familyBucket && f != familyDrip {
		text += "," + luaNumber(n[2])
		if f != familyCounter {
			text += "," + luaNumber(n[6]) + ","
			if len(n) > 7 {
				text += luaNumber(n[7])
			}
		}
	}
	sum := sha1.Sum([]byte(":" + name + text)) //nolint:gosec // see the import
	return hex.EncodeToString(sum[:6])
}

// luaNumber returns a number as Lua writes it, with 14 digits.
func luaNumber(n float64) string {
	if n < 1e14 {
		return strconv.FormatInt(int64(n), 10)
	}
	return strconv.FormatFloat(n, 'g', 14, 64)
}

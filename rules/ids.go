package rules

import (
	"cmp"
	"fmt"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/dchest/siphash"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// idTimes is how long ids of requests are remembered, and how long they are held. The zero
// value is the default.
type idTimes struct {
	ttl  time.Duration // 0: limiter.DefaultIDTTL
	hold time.Duration // at most; 0: limiter.MaxHold
	over expiry        // what becomes of what is held when it ends
	// slots means that the rule limits concurrency: a check has to be held, by default for the
	// rule's hold.
	slots bool
}

// expiry is what becomes of the estimate of a hold that ends unsettled.
type expiry uint8

// The expiries. The zero value is the default.
const (
	expiryRelease expiry = iota // it comes back
	expiryKeep                  // it stays charged
)

// String returns the name in a rules file.
func (e expiry) String() string {
	return nameOf(e, "release", "keep")
}

// fields decodes the fields of a rule, or of the defaults, that are about ids.
func (t *idTimes) fields(d *decoder) []field {
	return []field{d.idTime("id_ttl", &t.ttl), d.idTime("hold", &t.hold), choice(d, "on_expiry", &t.over)}
}

// idFieldNames returns the names of these fields, which a quota does not have.
func idFieldNames() []string { return []string{"id_ttl", "hold", "on_expiry"} }

// idTime returns a field for a time in the range of [limiter.MinIDTTL] and
// [limiter.MaxIDTTL].
func (d *decoder) idTime(name string, out *time.Duration) field {
	return field{name, func(_, v *node) {
		if !d.scalar(v, name) {
			return
		}
		t, bad := duration(v.Text)
		if bad == "" && (t < limiter.MinIDTTL || t > limiter.MaxIDTTL) {
			bad = fmt.Sprintf("%s is out of range: give 1ms to 24h", quote(v.Text))
		}
		if bad != "" {
			d.add(v, "%s: %s", name, bad)
			return
		}
		*out = t
	}}
}

// life returns how long ids are remembered, at most.
func (t *idTimes) life() time.Duration { return cmp.Or(t.ttl, limiter.DefaultIDTTL) }

// hashText returns what the hash of the rules includes of it: nothing if it is the default,
// so that a file without ids keeps the hash of earlier versions.
func (t *idTimes) hashText() string {
	text := ""
	if t.ttl != 0 && t.ttl != limiter.DefaultIDTTL {
		text = fmt.Sprintf(" id_ttl %d", t.ttl)
	}
	if t.hold != 0 && t.hold != limiter.MaxHold {
		text += fmt.Sprintf(" hold %d", t.hold)
	}
	if t.over == expiryKeep {
		text += " on_expiry keep"
	}
	return text
}

// Concurrent returns the name of the first rule that limits concurrency, empty if there is none.
func (s *Set) Concurrent() string {
	for i := range s.rules {
		if s.rules[i].ids.slots {
			return s.rules[i].limiter.Name
		}
	}
	return ""
}

// holding is what the rules in force that match a request say about its reservation.
type holding struct {
	// the first rule that limits concurrency, or else the first: its hold is the default, its on_expiry applies
	by   *rule
	most time.Duration // the smallest hold of these rules; 0: none has one
	any  bool          // one has alternatives
	// bars is the first of these rules of which the caller may settle nothing; nil: there is none
	bars *rule
}

func (h *holding) note(u *rule, r *limiter.Request) {
	if h.by == nil || u.ids.slots && !h.by.ids.slots {
		h.by = u
	}
	h.any = h.any || u.alternatives > 0
	if t := u.ids.hold; t > 0 && (h.most == 0 || t < h.most) {
		h.most = t
	}
	if h.bars == nil && r.Scope != nil {
		if s, ok := r.Scope.(holdScope); ok && !s.PermitsHold(u.limiter.Name) {
			h.bars = u
		}
	}
}

// holds returns the holding of a rule that decides alone.
func (u *rule) holds(r *limiter.Request) (h holding) {
	h.note(u, r)
	return h
}

// identify adds the id of a request to its charge. The rule u, which is the first that counts it,
// says how long the id is remembered, and h how long it is held; if u is nil, the request has limits of its own and
// says both itself. It reports whether the charge has an id, and no hold. A request that no settlement could
// repeat is not held: then it returns an error, and clears the charge.
func (s *Set) identify(r *limiter.Request, c *arith.Charge, u *rule, h holding) (unheld bool, err error) {
	if c.Len() == 0 {
		return false, nil
	}
	if h.any {
		return false, withoutID(r, c)
	}
	id := c.Identify()
	id.ID, id.Life, id.Hold, id.Keep, id.Lent = s.hashID(r), limiter.DefaultIDTTL, r.Hold, false, r.Lent
	id.Rate, id.Fast = 0, false
	if r.Lent && r.Hold > 0 {
		id.Rate = min(r.Rate, arith.MaxRate)
		id.Fast = r.Fast && r.Rate > 0
	}
	if u != nil {
		by := &h.by.ids
		id.Life, id.Keep = u.ids.life(), by.over == expiryKeep
		if h.most > 0 {
			id.Hold = min(r.Hold, h.most)
			if by.slots && r.Hold == 0 && !r.IDOptional { // an optional id is known to no caller
				switch {
				case h.bars == nil:
					id.Hold = min(by.hold, h.most)
				case r.Rule != "" || !h.bars.limiter.Shadow: // else an experiment: it refuses and holds nothing
					err = &scopeError{rule: h.bars.limiter.Name, named: r.Rule != "", hold: true}
				}
			}
		}
	}
	if r.IDTTL > 0 && (u == nil || r.IDTTL < id.Life) {
		id.Life = r.IDTTL
	}
	if id.Lent {
		if id.Keep, id.Hold, err = true, r.Hold, nil; r.Hold > 0 { // without, a lease comes back, whatever the rule says now
			err = lendable(c)
		}
	}
	if id.Hold > 0 && err == nil {
		err = repeatable(r)
	}
	if err != nil {
		c.Clear()
	}
	shape(c)
	return id.Hold == 0, err
}

// shape notes in the id of a held charge what its holds know of all its keys.
func shape(c *arith.Charge) {
	if c.ID != nil {
		c.ID.Shape = 0
		if c.ID.Hold > 0 {
			c.ID.Shape = arith.ShapeOf(c)
		}
	}
}

// lendable returns an error for a charge of which nothing is lent.
func lendable(c *arith.Charge) error {
	if c.Len() != 1 {
		return fmt.Errorf("%w: units of %d counters are to be lent at once: only those of one can be", limiter.ErrInvalid,
			c.Len())
	}
	u := c.Key(0).Rule
	if c.ID.Rate > 0 {
		return assignable(c, u)
	}
	switch span := arith.LeaseFor(u).Duration(); {
	case span == 0:
		return fmt.Errorf("%w: rule %q lends no units: it says leases: off, or has limits that cannot lend",
			limiter.ErrInvalid, u.Name)
	case c.ID.Hold > arith.LeaseWait*span:
		return fmt.Errorf("%w: units of rule %q are to be lent for %v: it waits for them for at most %v", limiter.ErrInvalid,
			u.Name, c.ID.Hold, arith.LeaseWait*span)
	}
	return nil
}

// assignable returns an error for a charge of which no slice is assigned.
func assignable(c *arith.Charge, u *limiter.Rule) error {
	switch least, longest, cost := arith.MinSlice.Duration(), arith.MaxSlice.Duration(), c.Key(0).Cost; {
	case !arith.Lends(u, true):
		return fmt.Errorf("%w: rule %q assigns nothing: a rule does whose limits are buckets or sliding or fixed windows, "+
			"without blocks, drips and count_rejected, with copies, and not in shadow", limiter.ErrInvalid, u.Name)
	case c.ID.Hold < least || c.ID.Hold > longest:
		return fmt.Errorf("%w: a rate of rule %q is to be assigned for %v: it is for %v to %v", limiter.ErrInvalid, u.Name,
			c.ID.Hold, least, longest)
	case cost == 0 || cost >= arith.MaxBurst:
		return fmt.Errorf("%w: a rate of rule %q is to be assigned with %d units at once: give 1 to %d", limiter.ErrInvalid,
			u.Name, cost, arith.MaxBurst-1)
	}
	c.Key(0).Cost++ // its rate is counted in whole units: a part of one may not be charged yet
	return nil
}

// identified adds the id of a request to its charge, and completes its match: see identify.
func (s *Set) identified(r *limiter.Request, c *arith.Charge, u *rule, h holding, m Match) (Match, error) {
	unheld, err := s.identify(r, c, u, h)
	if err != nil {
		return Match{}, err
	}
	m.Unheld = unheld && m.Unheld
	return m, nil
}

// repeatable returns an error for a request that JSON, or the messages that settle a reservation, cannot carry.
func repeatable(r *limiter.Request) error {
	no := func(what, text string) error {
		return fmt.Errorf("%w: %s is %.100q, which is not UTF-8: a reservation is settled by the same values, and these "+
			"cannot be sent: give them in another form, such as hexadecimal", limiter.ErrInvalid, what, text)
	}
	for _, f := range [...]struct{ name, text string }{
		{"the id", r.ID}, {"the path", r.Path}, {"the method", r.Method}, {"the user", r.User}, {"the ip", r.IP},
		{"the group", r.Group},
	} {
		if !utf8.ValidString(f.text) {
			return no(f.name, f.text)
		}
	}
	for name, text := range r.Attributes {
		if !utf8.ValidString(name) || !utf8.ValidString(text) {
			return no(fmt.Sprintf("attribute %.100q", name), text)
		}
	}
	return nil
}

// hashID returns the number by which an id is remembered. It is keyed as the counters of the
// set are, so that nobody outside can construct two ids with one number. It is never 0. An id is that of the
// caller who gives it: with the same text another caller has another number. So has a lease: what returns one ends no
// other hold.
func (s *Set) hashID(r *limiter.Request) uint64 {
	k0, k1 := s.own.k0, s.own.k1
	if r.Caller != "" {
		k0, k1 = siphash.Hash128(k0, ^k1, bytesOf(r.Caller))
	}
	if r.Lent {
		return arith.LeaseID(siphash.Hash(k0, k1, nil), siphash.Hash(^k0, k1, bytesOf(r.ID)))
	}
	return max(siphash.Hash(k0, k1, bytesOf(r.ID)), 1)
}

// bytesOf returns the bytes of a text, for those who only read them.
func bytesOf(text string) []byte { return unsafe.Slice(unsafe.StringData(text), len(text)) }

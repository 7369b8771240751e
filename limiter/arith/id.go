package arith

import (
	"time"

	"github.com/weirlimit/weir/limiter"
)

// Idempotency is the id of a charge, by which the charge is made once.
type Idempotency struct {
	// ID is the keyed hash of the caller's id. It is not 0.
	ID uint64
	// Life is how long the id is remembered, [limiter.MinIDTTL] to [limiter.MaxIDTTL]. The id of a hold is
	// remembered while the hold lasts, and for Life after it was settled or kept.
	Life time.Duration
	// Hold is how long the charge can be settled, see [Hold]: [limiter.MinHold] to [limiter.MaxHold]. 0 means
	// that the charge is final.
	Hold time.Duration
	// Keep leaves the charge in place if the hold ends unsettled. Otherwise it is given back.
	Keep bool
	// Lent makes the hold a lease: its units count as charged now at every instant until it is settled or ends, so
	// that whoever has it may use them at any of these instants. What a settlement names counts as charged then.
	// Keep must be set: a lease that nobody gives back is charged whole at its end. Where there is no room for the
	// hold the charge is denied.
	Lent bool
	// Rate, of a lease, makes it a slice: its holder may use so many units a second beside those of the cost, until the
	// hold ends. At most [MaxRate]; 0: it is none.
	Rate uint64
	// Fast lets a lower rate of a slice count at once, although its holder may still use the one before.
	Fast bool
	// Shape is what a hold knows of the whole check that made it; 0: nothing.
	Shape Shape
	// Came has a bit for each key of the charge for which the last decision has made its id the youngest of its
	// partition. The table sets it. For other keys the id had a place already, or is not remembered.
	Came uint16
}

// Shape is what is known of all keys of a reservation, beside the hold of each.
type Shape uint8

// shapeUnlike marks a reservation of which draws with different costs add up in one key.
const shapeUnlike Shape = 1 << 5

// Keys returns how many keys in force the check was charged to.
func (s Shape) Keys() int { return int(s &^ shapeUnlike) }

// Whole reports whether so many keys in force, whose ids are known, are all that the check was charged to. One number
// does not settle another key then, which cost nothing or of which a rule came later.
func (s Shape) Whole(known int) bool { return s != 0 && known == s.Keys() }

// Valid reports whether a check can have the shape.
func (s Shape) Valid() bool { return s.Keys() <= limiter.MaxKeys }

// Unlike reports whether draws of different costs add up in one of the keys, so that one number cannot settle it.
func (s Shape) Unlike() bool { return s&shapeUnlike != 0 }

// ShapeOf returns the shape of a check: rules in shadow, and keys that cost nothing, do not matter.
func ShapeOf(c *Charge) (s Shape) {
	unlike := Shape(0)
	for i := range c.Len() {
		if k := c.Key(i); k.Cost > 0 && !k.Rule.Shadow {
			s++
			if k.unlike && k.Compared() {
				unlike = shapeUnlike
			}
		}
	}
	return s | unlike
}

// Lend gives a charge memory for the id that [Charge.Identify] sets. [Charge.Clear] keeps the memory, and a
// clone does not get it. Each id overwrites the one before.
func (c *Charge) Lend(room *Idempotency) { c.room = room }

// Identify gives a charge an ID, in the memory that was lent to it, or else in new memory. The caller must set all
// fields, since lent memory has those of the id before.
func (c *Charge) Identify() *Idempotency {
	if c.ID = c.room; c.ID == nil {
		c.ID = new(Idempotency)
	}
	return c.ID
}

// Remembered is the algorithm of the counters in which tables remember ids. No rule and no
// request has a limit with it: it admits nothing and denies nothing. In its [State], Time is
// the instant from which the id is forgotten, Until that of the charge, A the cost, and B has
// a bit for each limit of the key that was charged, or is SettledID.
const Remembered limiter.Algorithm = 64

// SettledID is B of an id that was settled. No receipt names such a charge.
const SettledID = 1 << limiter.MaxLimits

// RememberedLimit returns the limit of the counters that remember ids. It is the same in all
// nodes.
func RememberedLimit() *limiter.Limit {
	return limiter.Params{Name: "id", Algorithm: Remembered, Limit: 1, Window: limiter.Span(limiter.MaxIDTTL)}.Compile(nil)
}

// rollID forgets an id whose time is over.
func (s *Counts) rollID(now limiter.Tick) {
	if s.Time <= now {
		*s = Counts{}
	}
}

// moveID shifts the instants of an id that is remembered at now by so many ticks.
func (s *Counts) moveID(now, by limiter.Tick) {
	if s.Time <= now {
		*s = Counts{}
		return
	}
	s.Time, s.Until = s.Time+by, s.Until+by
}

// checkID reports whether an exported id makes sense.
func (s *Counts) checkID() bool {
	most := limiter.Span(limiter.MaxHold + limiter.MaxIDTTL) // of a hold that is kept
	return s.Time > 0 && s.Time <= most && s.Until <= 0 && s.Until >= -limiter.Span(limiter.MaxWindow) &&
		(s.A > 0 || s.Time != 0 && (s.B == 0 || s.B == SettledID)) && s.B <= SettledID
}

// mergeID keeps an id as it was charged on this side: receipts and cancels that this side takes are of that
// charge. It is remembered as long as on the side that remembers it longer. An id that only the other
// side has settled is settled: that is the later of the two.
func mergeID(s, from *State) {
	switch settled := s.Settled(); {
	case settled && !from.Settled():
	case s.Time == 0, from.Settled() && !settled:
		*s = *from
	default:
		s.Time = max(s.Time, from.Time)
	}
}

// Settled reports whether the state remembers an id that has no hold, or none any more.
func (s *State) Settled() bool {
	b := s.B & idMask
	return s.Time != 0 && (b == 0 || b == SettledID)
}

// NewID returns the state of an id that is remembered until an instant, was charged cost units at
// another, and charged the limits of parts: see [IDParts].
func NewID(until, charged limiter.Tick, cost uint64, parts uint32) State {
	return packedID(&Counts{Time: until, Until: charged, A: cost, B: uint64(parts)})
}

// ExportID is [State.Export] for the state of an id. It reports false, and does nothing, if the id is not remembered at
// now any more.
func ExportID(s *State, now limiter.Tick) (remembered bool) {
	c := openID(s)
	now = max(now, c.Until) // see [State.NotBefore]
	if c.Time <= now {
		return false
	}
	c.moveID(now, -now)
	*s = packedID(&c)
	return true
}

// ImportID is [State.CheckExported] and [State.Import] for the state of an id. It reports false, and does nothing, if
// the state makes no sense.
func ImportID(s *State, now limiter.Tick) (sane bool) {
	c := openID(s)
	if !c.checkID() {
		return false
	}
	c.moveID(0, now)
	*s = packedID(&c)
	return true
}

// IDCost returns the cost of a remembered id, in units.
func IDCost(s *State) uint64 { return openID(s).A }

// SetIDCost sets the cost of a remembered id, in units up to [limiter.MaxUnits].
func SetIDCost(s *State, cost uint64) {
	c := openID(s)
	c.A = cost
	*s = packedID(&c)
}

// IDCharged returns the instant at which a remembered id was charged.
func IDCharged(s *State) limiter.Tick { return openID(s).Until }

// IDParts returns one bit for each limit that a remembered id charged, and [SettledID] once it
// is settled.
func IDParts(s *State) uint32 { return s.B & idMask }

// SetIDParts sets what [IDParts] returns.
func SetIDParts(s *State, parts uint32) { s.B = s.B&^uint32(idMask) | parts }

package arith

import (
	"cmp"

	"github.com/weirlimit/weir/limiter"
)

// Hash identifies a rule and its key values, without the limit. It is a keyed 128-bit
// hash, so nobody outside can construct a collision.
type Hash struct{ Hi, Lo uint64 }

// Key identifies one counter for every limit of its rule.
type Key struct {
	// Hash identifies rule and key values.
	Hash Hash
	// Rule holds the limits.
	Rule *limiter.Rule
	// Cost in units; 0 is a peek at this key.
	Cost uint64
	// Index is the index of this key in its rule, for a rule with several keys.
	Index uint8
	// By is the label of the identity that asks, see [TenantLabel], if it has no tenant, for a key of
	// [limiter.RequestRule] or in a time zone that the request names: each has its share of such limits. 0: it is not
	// known, or not needed.
	By uint16

	draws  uint8 // how many costs were drawn on the key beside the first
	unlike bool  // they differ
}

// Draw adds the cost of another draw on the key.
func (k *Key) Draw(cost uint64) {
	k.draws++
	k.unlike = k.unlike || k.Cost != uint64(k.draws)*cost
	k.Cost = min(k.Cost+cost, limiter.MaxUnits)
}

// Who returns the label of who asks: of the tenant of the key, or else By.
func (k *Key) Who() uint16 { return cmp.Or(k.Hash.Tenant(), k.By) }

const inlineKeys = 2

// Charge is the input of a decider: the keys, their limits and the cost. The zero value
// has no keys. The caller owns it, and may use it again after [Charge.Clear]. The first
// two keys need no allocation.
type Charge struct {
	// Peek makes the whole check a peek: it is answered as if its cost were charged,
	// and changes nothing.
	Peek bool
	// Dry, with Peek, leaves what is stored as it is: a backend does not even store what becomes of a counter whose
	// limit has changed. A table ignores it.
	Dry bool

	// Unnamed is set by the decider: bit i requests the name of key i, because the key
	// has entered a list of top keys.
	Unnamed uint32

	// Converted is set by the decider, and stays until Clear: bit i says that a counter of key i was another limit's, so
	// that it may recover sooner now.
	Converted uint32

	// ID makes the charge one that is made once: if it is remembered, nothing is charged. nil,
	// the usual case: each charge is made. It is read, never changed.
	ID *Idempotency

	room *Idempotency // memory for ID, see [Charge.Lend]

	// Trace is the span that the check is part of; nil if it is not traced.
	Trace *TraceContext

	n      int
	inline [inlineKeys]Key
	more   []Key
}

// Clear empties the charge and keeps its memory.
func (c *Charge) Clear() {
	c.Peek, c.Dry, c.Unnamed, c.Converted, c.ID, c.Trace, c.n, c.more = false, false, 0, 0, nil, nil, 0, c.more[:0]
}

// Len returns the number of keys.
func (c *Charge) Len() int { return c.n }

// Add appends a key. Its hash must differ from those of the other keys; of two equal
// keys only one is charged. If the charge has [limiter.MaxKeys] keys already, Add changes
// nothing and reports false.
func (c *Charge) Add(k Key) bool {
	switch {
	case c.n < inlineKeys:
		to := &c.inline[c.n] // field by field: a key is too large for registers as a whole
		to.Hash, to.Rule, to.Cost, to.Index, to.By = k.Hash, k.Rule, k.Cost, k.Index, k.By
		to.draws, to.unlike = k.draws, k.unlike
	case c.n < limiter.MaxKeys:
		c.more = append(c.more, k)
	default:
		return false
	}
	c.n++
	return true
}

// Key returns key i, 0 <= i < Len. The pointer is valid until the next Add or Clear.
func (c *Charge) Key(i int) *Key {
	if i < inlineKeys {
		return &c.inline[i]
	}
	return &c.more[i-inlineKeys]
}

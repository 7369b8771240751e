package limiter

import "cmp"

// Hash identifies a rule and its key values, without the limit. It is a keyed 128-bit
// hash, so nobody outside can construct a collision.
type Hash struct{ Hi, Lo uint64 }

// Class is which way the counters of a rule fail when the cluster has a fault.
type Class uint8

// The classes of partitions.
const (
	// Available prefers an answer that may be too generous to no answer (policies local
	// and open).
	Available Class = iota
	// Closed prefers no answer to one that may be too generous.
	Closed
)

// Unreachable is the policy of a rule if neither the owner of a counter nor its heir
// can be reached.
type Unreachable uint8

// The policies. The zero value is the default.
const (
	// UnreachableLocal decides with this node's share of the limit (default).
	UnreachableLocal Unreachable = iota
	// UnreachableOpen decides with the whole limit.
	UnreachableOpen
	// UnreachableClosed denies.
	UnreachableClosed
)

// String returns the policy's name in a rules file.
func (u Unreachable) String() string {
	return nameOf([]string{"local", "open", "closed"}, int(u))
}

// Replication is how an owner's counters are copied to its heir.
type Replication uint8

// The modes of replication. The zero value is the default.
const (
	// ReplicationLag answers before the heir has the charge, within a fixed bound
	// (default).
	ReplicationLag Replication = iota
	// ReplicationStrict answers an admission only after the heir has it.
	ReplicationStrict
	// ReplicationOff never waits for a copy, so after a crash any number of counts may
	// be missing. Copies are still made, in batches, so most counts survive.
	ReplicationOff
)

// String returns the mode's name in a rules file.
func (r Replication) String() string {
	return nameOf([]string{"lag", "strict", "off"}, int(r))
}

// Rule is what a decider needs of a rule: its name, its limits and its policies. Once
// built, it is immutable and safe for concurrent use.
type Rule struct {
	// Name is unique in its rules file.
	Name string
	// Limits are decided together: all of them or none.
	Limits []*Limit
	// Shadow rules count and report but never deny.
	Shadow bool
	// Quota is set for a quota of a rules file, on which rules draw. No decision depends on
	// it.
	Quota bool
	// Deny, if it is not nil, denies each request that the rule matches; the rule has no limits then.
	Deny *Denial
	// OnUnreachable is the policy if neither owner nor heir can be reached.
	OnUnreachable Unreachable
	// Replication is how the counters are copied.
	Replication Replication
	// MaxShare bounds the share of a table that the rule's counters may take, in
	// thousandths; 0: only the table's own bounds apply.
	MaxShare uint16

	// zone and zones are those of a rule made by [Zoned]. zone is empty for the rule itself.
	zone  string
	zones *zones
}

// WholeShare is the [Rule.MaxShare] of a rule that may take the whole table.
const WholeShare = 1000

// Class returns the class of partitions that hold the rule's counters.
func (r *Rule) Class() Class {
	if r.OnUnreachable == UnreachableClosed {
		return Closed
	}
	return Available
}

// Key identifies one counter for every limit of its rule.
type Key struct {
	// Hash identifies rule and key values.
	Hash Hash
	// Rule holds the limits.
	Rule *Rule
	// Cost in units; 0 is a peek at this key.
	Cost uint64
	// Index is the index of this key in its rule, for a rule with several keys.
	Index uint8
	// By is the label of the identity that asks, see [TenantLabel], if it has no tenant, for a key of
	// [RequestRule] or in a time zone that the request names: each has its share of such limits. 0: it is not known, or
	// not needed.
	By uint16
}

// Who returns the label of who asks: of the tenant of the key, or else By.
func (k *Key) Who() uint16 { return cmp.Or(k.Hash.Tenant(), k.By) }

// Bounds of one check. A request that would need more is refused with an error
// that wraps [ErrInvalid].
const (
	// MaxKeys is the most keys of one check, over all matching rules.
	MaxKeys = 16
	// MaxLimits is the most limits of one rule.
	MaxLimits = 16
	// MaxKeyBytes is the greatest length of all values of one key together, in bytes, at which
	// names of keys show them as they are. Longer values are counted, too, and shown by their
	// begins and hashes.
	MaxKeyBytes = 256
	// MaxKeyParts is the most parts of one key.
	MaxKeyParts = 8
)

const inlineKeys = 2

// Charge is the input of a decider: the keys, their limits and the cost. The zero value
// has no keys. The caller owns it, and may use it again after [Charge.Clear]. The first
// two keys need no allocation.
type Charge struct {
	// Peek makes the whole check a peek: it is answered as if its cost were charged,
	// and changes nothing.
	Peek bool

	// Unnamed is set by the decider: bit i requests the name of key i, because the key
	// has entered a list of top keys.
	Unnamed uint32

	// ID makes the charge one that is made once: if it is remembered, nothing is charged. nil,
	// the usual case: each charge is made. It is read, never changed.
	ID *Idempotency

	room *Idempotency // memory for ID, see [Lend]

	// Trace is the span that the check is part of; nil if it is not traced.
	Trace *TraceContext

	n      int
	inline [inlineKeys]Key
	more   []Key
}

// Clear empties the charge and keeps its memory.
func (c *Charge) Clear() {
	c.Peek, c.Unnamed, c.ID, c.Trace, c.n, c.more = false, 0, nil, nil, 0, c.more[:0]
}

// Len returns the number of keys.
func (c *Charge) Len() int { return c.n }

// Add appends a key. Its hash must differ from those of the other keys; of two equal
// keys only one is charged. If the charge has [MaxKeys] keys already, Add changes
// nothing and reports false.
func (c *Charge) Add(k Key) bool {
	switch {
	case c.n < inlineKeys:
		to := &c.inline[c.n] // field by field: a key is too large for registers as a whole
		to.Hash, to.Rule, to.Cost, to.Index, to.By = k.Hash, k.Rule, k.Cost, k.Index, k.By
	case c.n < MaxKeys:
		c.more = append(c.more, k)
	default:
		return false
	}
	c.n++
	return true
}

// Wide reports whether a cost of the charge is above [NarrowUnits], or a limit is wide, see [Wide].
func (c *Charge) Wide() bool {
	for i := range c.Len() {
		k := c.Key(i)
		if k.Cost > NarrowUnits {
			return true
		}
		for _, l := range k.Rule.Limits {
			if l.p.wide {
				return true
			}
		}
	}
	return false
}

// Key returns key i, 0 <= i < Len. The pointer is valid until the next Add or Clear.
func (c *Charge) Key(i int) *Key {
	if i < inlineKeys {
		return &c.inline[i]
	}
	return &c.more[i-inlineKeys]
}

func nameOf(names []string, i int) string {
	if i < 0 || i >= len(names) {
		return "unknown"
	}
	return names[i]
}

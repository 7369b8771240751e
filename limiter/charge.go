package limiter

// Hash is the identity of a rule and its key values, without the limit: a
// 128-bit keyed hash, so that nobody outside can construct a collision.
type Hash struct{ Hi, Lo uint64 }

// Class says which way the counters of a rule lean when the cluster is in
// trouble.
type Class uint8

// The classes of partitions.
const (
	// Available prefers an answer that may be too generous to none (policies
	// local and open).
	Available Class = iota
	// Closed prefers no answer to one that may be too generous.
	Closed
)

// Unreachable is the policy of a rule for when neither the owner of a counter
// nor its heir can be asked.
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

// Replication says how an owner's counters are copied to its heir.
type Replication uint8

// The modes of replication. The zero value is the default.
const (
	// ReplicationLag answers before the heir has the charge, within a stated
	// bound (default).
	ReplicationLag Replication = iota
	// ReplicationStrict answers an admission only after the heir has it.
	ReplicationStrict
	// ReplicationOff never waits for a copy, and nothing is promised of the count
	// after a crash. Copies are made all the same, in batches, so most of it is there.
	ReplicationOff
)

// String returns the mode's name in a rules file.
func (r Replication) String() string {
	return nameOf([]string{"lag", "strict", "off"}, int(r))
}

// Rule is what a decider knows of a rule: its name, its limits and how to treat
// them. It is immutable once built and safe for concurrent use.
type Rule struct {
	// Name is unique in its rules file.
	Name string
	// Limits are decided together: all of them or none.
	Limits []*Limit
	// Shadow limits are counted and reported but never deny.
	Shadow bool
	// OnUnreachable is the policy when owner and heir cannot be asked.
	OnUnreachable Unreachable
	// Replication is how the counters are copied.
	Replication Replication
	// MaxShare bounds the part of a table that the rule's counters may take, in
	// thousandths; 0: no bound but the table's.
	MaxShare uint16
}

// WholeShare is the [Rule.MaxShare] of a rule that may take all.
const WholeShare = 1000

// Class returns the class of partitions that the rule's counters live in.
func (r *Rule) Class() Class {
	if r.OnUnreachable == UnreachableClosed {
		return Closed
	}
	return Available
}

// Key is one counter of a charge for every limit of its rule.
type Key struct {
	// Hash identifies rule and key values.
	Hash Hash
	// Rule holds the limits.
	Rule *Rule
	// Cost in units; 0 peeks at this key.
	Cost uint32
	// Index tells which of the rule's keys this is, counted from 0, for a rule
	// that counts by several.
	Index uint8
}

// Bounds of one check. A request that would need more is refused with an error
// that wraps [ErrInvalid].
const (
	// MaxKeys is how many keys one check may have, over all rules that match.
	MaxKeys = 16
	// MaxLimits is how many limits one rule may have.
	MaxLimits = 16
	// MaxKeyBytes is how long the values of one key may be together, in bytes.
	MaxKeyBytes = 256
)

const inlineKeys = 2

// Charge is what a decider needs: the keys, their limits and the cost. The zero
// value has no keys. It is owned by the caller and may be used again after
// [Charge.Clear]; the first two keys need no allocation.
type Charge struct {
	// Peek makes the whole check a question: it is answered as if its cost were
	// charged, and changes nothing.
	Peek bool

	// Unnamed is set by the decider: bit i asks the caller to tell it the name
	// of key i, because the key entered a list of top keys.
	Unnamed uint32

	n      int
	inline [inlineKeys]Key
	more   []Key
}

// Clear empties the charge and keeps its memory.
func (c *Charge) Clear() { c.Peek, c.Unnamed, c.n, c.more = false, 0, 0, c.more[:0] }

// Len returns the number of keys.
func (c *Charge) Len() int { return c.n }

// Add appends a key, whose hash must differ from those of the others: of two
// that are the same only one is charged. It reports false, and adds nothing, when the charge has
// [MaxKeys] keys already.
func (c *Charge) Add(k Key) bool {
	switch {
	case c.n < inlineKeys:
		c.inline[c.n] = k
	case c.n < MaxKeys:
		c.more = append(c.more, k)
	default:
		return false
	}
	c.n++
	return true
}

// Key returns key i, 0 <= i < Len. The pointer is good until the next Add or
// Clear.
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

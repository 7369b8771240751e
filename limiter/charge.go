package limiter

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
	// Leases lets an owner lend units of a key that is asked for often to the members that are asked. It has no effect
	// where that could be told from deciding at the owner, as with a limit on concurrency.
	Leases bool
	// MaxShare bounds the share of a table that the rule's counters may take, in
	// thousandths; 0: only the table's own bounds apply.
	MaxShare uint16

	// choice is what a request chose of the variants, empty for the rule without a choice.
	// variants is nil if there is nothing to choose.
	choice   string
	variants *variants
	ceiling  uint8 // percent, see [Rule.UpTo]; 0: none
	onward   bool  // see [Rule.Onward]
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

func nameOf(names []string, i int) string {
	if i < 0 || i >= len(names) {
		return "unknown"
	}
	return names[i]
}

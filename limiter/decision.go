package limiter

// Source tells who decided.
type Source uint8

// The sources of a decision.
const (
	// SourceNone: no rule matched, so nothing was decided and all is allowed.
	SourceNone Source = iota
	// SourceOwner: the owner of the counters.
	SourceOwner
	// SourceHeir: the owner's heir, because the owner could not be asked. It is the
	// owner when it has an heir in turn.
	SourceHeir
	// SourceFallbackOpen, SourceFallbackLocal and SourceFallbackClosed: the
	// rule's policy, because neither could be asked.
	SourceFallbackOpen
	SourceFallbackLocal
	SourceFallbackClosed
	// SourceRedis: a script in Redis.
	SourceRedis
	// SourceCached: the node that was asked, as the owner of the counters had denied
	// it the same a moment before.
	SourceCached
)

// String returns the source as answers spell it.
func (s Source) String() string {
	return nameOf([]string{"no_rule", "owner", "heir", "fallback_open", "fallback_local", "fallback_closed", "redis", "cached"}, int(s))
}

// LimitDecision is the answer of one limit for one key.
type LimitDecision struct {
	// Rule and Limit name the counter, together with Key, the index of the key
	// in the charge.
	Rule  *Rule
	Limit *Limit
	Key   int
	// KeyIndex tells which of the rule's keys it is, see [Key.Index].
	KeyIndex uint8
	// Owner is the name of the member that decided, where a cluster did; empty
	// elsewhere, and where a policy answered.
	Owner string
	// Allowed tells whether this limit alone allows the check.
	Allowed bool
	// Never tells that the cost is above the limit's capacity: no wait helps.
	Never bool
	// Blocked tells that the key is serving a block, see [Spec.Block]: one that
	// was on when the check came, or that this denial began.
	Blocked bool
	// Overflow tells that the key is new and the table is full; RetryAfter is
	// then the earliest instant at which room may appear, not a promise.
	Overflow bool
	// Cost is what the check costs here, in units: 0 for a peek.
	Cost uint32
	// Remaining is the largest cost that the limit would admit now, after this
	// check was charged (if it was).
	Remaining uint32
	// ResetAfter is the time until the key equals one never seen, if nobody
	// asks.
	ResetAfter Tick
	// RetryAfter is, in a check that was denied or where a shadow limit would
	// deny, the least wait after which the
	// same cost is allowed by this limit, if nobody else asks; exact to the
	// tick, and reckoned after whatever the denial charged. It is 0 where the
	// limit would admit the cost at once, and for one that never can.
	RetryAfter Tick
}

// Receipt names one charge, so that it can be taken back, once: a receipt that
// is used again takes back what others were charged. It is meaningful for the
// request and the decider that issued it.
type Receipt struct {
	// Epoch of the partition's ownership in which the charge was made; 0 where
	// there is no cluster.
	Epoch uint64
	// Time of the charge, in the decider's own clock.
	Time Tick
	// Charged has a bit for each of the decision's first 64 limits: whether it
	// was charged. Limits beyond are not refunded.
	Charged uint64
	// Set is a hash of what was decided: the names of the limits and the costs,
	// in their order. A receipt that does not fit the request and the rules in
	// force is void.
	Set uint64
}

// Has reports whether limit i of the decision was charged.
func (r Receipt) Has(i int) bool { return i < 64 && r.Charged&(1<<i) != 0 }

// setHash continues the hash of a receipt's set by a limit and its cost
// (multiplication by the 64-bit prime of FNV).
func setHash(h uint64, l *Limit, cost uint32) uint64 {
	return (h ^ l.nameID ^ uint64(cost)<<1) * 1099511628211
}

// Fits reports whether the receipt was issued for a charge of these keys, costs
// and limits.
func (c *Charge) Fits(r Receipt) bool {
	var h uint64
	for i := range c.Len() {
		k := c.Key(i)
		for _, l := range k.Rule.Limits {
			h = setHash(h, l, k.Cost)
		}
	}
	return r.Charged != 0 && h == r.Set
}

// Charged notes in the receipt that limit i was charged at now; it is for
// deciders.
func (d *Decision) Charged(i int, now Tick) {
	d.Receipt.Time = now
	if i < 64 {
		d.Receipt.Charged |= 1 << i
	}
}

const inlineLimits = 4

// Decision is the answer to one check. The caller owns it and may use it again:
// a decider overwrites it whole. The first four limits need no allocation.
type Decision struct {
	// Allowed is the answer.
	Allowed bool
	// Never tells that the check can never be allowed at this cost.
	Never bool
	// ShadowDenied tells that a shadow rule would have denied the check.
	ShadowDenied bool
	// Source tells who decided.
	Source Source
	// RetryAfter is the least wait after which the same check is allowed, if
	// nobody else asks: the largest of its limits'. It is 0 where Allowed or
	// Never is set.
	RetryAfter Tick
	// Receipt names the charge, if one was made.
	Receipt Receipt
	// Rule is the name of the first rule that matched, also one without limits;
	// empty where none did. For a denial it is the rule that denied.
	Rule string

	charges, shadowCharges bool // what Settle decided
	began                  bool // a block

	blocked int32 // 1 + index of the limit that denied, 0 if none
	n       int32
	inline  [inlineLimits]LimitDecision
	more    []LimitDecision
}

// Clear makes d the answer "allowed, no rule" and keeps its memory.
func (d *Decision) Clear() {
	d.Allowed, d.Never, d.ShadowDenied = true, false, false
	d.Source, d.RetryAfter, d.Receipt, d.Rule = SourceNone, 0, Receipt{}, ""
	d.began, d.blocked, d.n, d.more = false, 0, 0, d.more[:0]
}

// BlockBegan tells whether this check began a block, of a limit that is Blocked. A
// denial while one is on begins none.
func (d *Decision) BlockBegan() bool { return d.began }

// Len returns the number of limits that were decided.
func (d *Decision) Len() int { return int(d.n) }

// Limit returns the answer of limit i, 0 <= i < Len: the limits of the first
// key in the order of its rule, then those of the next. The pointer is good
// until d is used again.
func (d *Decision) Limit(i int) *LimitDecision {
	if d.n <= inlineLimits {
		return &d.inline[i]
	}
	return &d.more[i]
}

// BlockedBy returns the limit that denied the check, the one with the longest
// wait if there are several (one that can never allow it before all others), or
// nil if the check was allowed.
func (d *Decision) BlockedBy() *LimitDecision {
	if d.blocked == 0 {
		return nil
	}
	return d.Limit(int(d.blocked) - 1)
}

// Grow makes room for n limits, whose contents are then undefined, and is for
// deciders. Above four it allocates, once for a Decision that is used again.
func (d *Decision) Grow(n int) {
	if n > inlineLimits {
		if cap(d.more) < n {
			d.more = make([]LimitDecision, n)
		}
		d.more = d.more[:n]
	}
	d.n = int32(n)
}

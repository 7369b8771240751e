package limiter

import (
	"time"

	"github.com/weirlimit/weir/internal/receipt"
)

// Source is what made a decision.
type Source uint8

// The sources of a decision.
const (
	// SourceNone: no rule matched, so the check is allowed without counting.
	SourceNone Source = iota
	// SourceOwner: the owner of the counters.
	SourceOwner
	// SourceHeir: the owner's heir, because the owner could not be reached. Once it has
	// an heir of its own, it is the owner.
	SourceHeir
	// SourceFallbackOpen, SourceFallbackLocal and SourceFallbackClosed: the rule's
	// policy, because neither owner nor heir could be reached.
	SourceFallbackOpen
	SourceFallbackLocal
	SourceFallbackClosed
	// SourceRedis: a script in Redis.
	SourceRedis
	// SourceCached: the node that was asked denied the check, because the owner of the
	// counters had denied the same check a moment before.
	SourceCached
	// SourceShare: the owner of the counters, or its heir, decided by a share of a limit. It
	// sees at most half of the members, so other members may decide by their shares.
	SourceShare
	// SourceRule: a rule that denies each request that it matches. Nothing was counted.
	SourceRule
	// SourceLeased: the node that was asked, by units that the owner of the counters has lent it.
	SourceLeased
)

// String returns the name of the source in answers.
func (s Source) String() string {
	return nameOf([]string{"no_rule", "owner", "heir", "fallback_open", "fallback_local", "fallback_closed", "redis",
		"cached", "share", "rule", "leased"}, int(s))
}

// ByPolicy reports whether the rule's policy decided, because no holder of the counters
// was reached.
func (s Source) ByPolicy() bool { return s >= SourceFallbackOpen && s <= SourceFallbackClosed }

// LimitDecision is the result of one limit for one key.
type LimitDecision struct {
	// Rule and Limit identify the counter together with Key, the index of the key in
	// the charge.
	// Rule.Name is the name of the rule or quota that the limit belongs to, also at a client; it is
	// [RequestRule] for a limit of the request.
	Rule  *Rule
	Limit *Limit
	Key   int
	// Owner is the name of the member that decided. It is empty outside a cluster, and
	// if a policy decided.
	Owner string
	// Allowed reports whether this limit by itself allows the check.
	Allowed bool
	// Never reports that the cost is above the limit's capacity, so no wait helps. It is
	// false if the cost is above the share in force only: see InForce.
	Never bool
	// Blocked reports that the key is blocked, see [Spec.Block]: the block was in force
	// when the check came, or this denial began it.
	Blocked bool
	// Overflow reports that the key is new and the table is full. If that denies the
	// check, Remaining is 0, and RetryAfter ends at the earliest instant at which there may be
	// room. There may still be none then.
	Overflow bool
	// KeyIndex is the index of the key in its rule, for a rule with several keys.
	KeyIndex uint8
	// InForce is the limit, in units per window, that was applied in place of Limit: the
	// share that an owner in a minority has, or the policy local. 0 means that Limit
	// itself was. Bursts are scaled by the same factor. If the cost is above the share only,
	// RetryAfter is a second, which does not promise that the check is allowed then.
	InForce uint64
	// Cost is the cost of the check for this limit, in units; 0 for a peek.
	Cost uint64
	// Remaining is the largest cost that the limit would admit now, after this check
	// was charged, if it was.
	Remaining uint64
	// ResetAfter is the time until the key is the same as one never seen, if there are
	// no further checks. What is held counts until then as if it stayed charged.
	ResetAfter time.Duration
	// RetryAfter is the shortest wait until this limit allows the same cost, if there
	// are no other checks: units come back by time, and when holds end. It is set if the check was
	// denied, or if this shadow limit would have denied it. It is exact to the microsecond, and includes what the denial
	// itself charged. It is 0 if the limit would admit the cost at once, or never. Where only units that are lent stand in
	// the way it ends when they are given back at the latest: if they were used, the cost may be denied again.
	RetryAfter time.Duration
}

// Receipt names one charge, so that it can be refunded once. Using it again takes back
// charges of others. It is valid only for the request and the decider that issued it. Nothing
// of it can be read but its sealed text, and its zero value names no charge. Receipts that are
// equal by == name the same charge.
type Receipt receipt.Receipt[Tick]

// SealedReceipt returns the receipt with a text that [Receipt.Sealed] returned, here or at another
// node. The node that is asked for the refund finds out whether the text is one.
func SealedReceipt(text string) (r Receipt) {
	fieldsOf(&r).Sealed = text
	return r
}

// Sealed returns the receipt as a text, if a server or SealReceipt of a node made it; else it is empty. Whoever
// has it can neither change it nor use it for another request, and its second use does nothing.
func (r Receipt) Sealed() string { return fieldsOf(&r).Sealed }

func fieldsOf(r *Receipt) *receipt.Fields[Tick] { return receipt.Of((*receipt.Receipt[Tick])(r)) }

// ReceiptLife is how long a receipt that is good for one use can be used.
const ReceiptLife = 10 * Minute

// Credit returns a receipt that names no charge. A refund with it subtracts a cost from what
// counts at its instant, down to 0 and regardless of who was charged. It has no effect on a
// sliding_log or a sliding_window, which count each charge by its instant.
func Credit() (r Receipt) {
	*fieldsOf(&r) = receipt.Credit[Tick]()
	return r
}

const inlineLimits = 4

// Decision is the result of one check. The caller owns it and may use it again: a
// decider overwrites all of it. Up to four limits need no allocation.
type Decision struct {
	// Allowed reports whether the check is allowed.
	Allowed bool
	// Never reports that the check can never be allowed at this cost, or that a rule denies it whatever it costs.
	Never bool
	// ShadowDenied reports that a shadow rule would have denied the check.
	ShadowDenied bool
	// Repeated reports that the id of the request was remembered: this is the answer of the
	// first check with it, and nothing was charged. The numbers of the limits are those of now.
	Repeated bool
	// Overridden reports that an operator's override decided in place of a rule's limits.
	Overridden bool
	// Source is what made the decision.
	Source Source

	steps Steps
	n     int32

	// RetryAfter is the shortest wait until the same check is allowed, if there are no
	// other checks: the longest wait of its limits. It is 0 if Allowed or Never is set.
	RetryAfter time.Duration
	// Receipt names the charge, if there was one.
	Receipt Receipt
	// Rule is the name of the rule that decided: for a denial the rule or quota that denied,
	// else the first rule in force that matched, even if it has no limits. If only shadow
	// rules matched, it is the first of these; empty if none matched.
	Rule string

	remarks *Remarks // nil: none
	more    []LimitDecision
	inline  [inlineLimits]LimitDecision // last: most decisions have one, and so need the first bytes of d alone
}

// Steps is what package arith notes in a decision from one of its steps to the next. It is not promised.
type Steps struct {
	Charges, ShadowCharges bool  // limits are charged; those of rules in shadow, too
	Began                  bool  // a block began
	Blocked                int16 // 1 + index of the limit that denied, 0 if none
}

// Steps returns what package arith notes.
func (d *Decision) Steps() *Steps { return &d.steps }

// Clear resets d to "allowed, no rule" and keeps its memory.
func (d *Decision) Clear() {
	d.Allowed, d.Never, d.ShadowDenied, d.Repeated, d.Overridden = true, false, false, false, false
	d.Source, d.RetryAfter, d.Rule = SourceNone, 0, ""
	d.Receipt = Receipt{} // of its own: among others it would be made and copied
	d.remarks, d.steps, d.n, d.more = nil, Steps{}, 0, d.more[:0]
}

// Refuse overwrites d with a denial without a reason. Callers use it for a request that could not be decided: d may
// still hold the answer to an earlier one.
func (d *Decision) Refuse() {
	d.Clear()
	d.Allowed = false
}

// Remarks are what an answer of a node says beside the numbers of a decision, as in
// [Answer].
type Remarks struct {
	// DrawnBy, of a denial by a quota, is the rule that draws on it.
	DrawnBy string
	// Assigned, of a slice that was asked for, is how many units a second its holder may use, see [Request.Rate].
	Assigned uint64
	// ZoneDefault is the rule or quota whose default time zone counted, since the attribute
	// of the request names no time zone.
	ZoneDefault string
	// Deny, of a denial by a rule that denies each request, is what the rule says about it; else nil. It must not be
	// changed.
	Deny *Denial
}

// Denial is what a rule says about the requests that it denies.
type Denial struct {
	// Status is the HTTP status with which a service should answer the request, 400 to 499.
	Status int `json:"status"`
	// Reason is a text for the caller; it may be empty.
	Reason string `json:"reason,omitempty"`
}

// Remarks returns the remarks of the node that decided. Those about quotas and zones only decisions of package client
// have; Answer of a node makes those of its own decisions.
func (d *Decision) Remarks() Remarks {
	if d.remarks == nil {
		return Remarks{}
	}
	return *d.remarks
}

// SetRemarks sets the remarks of a decision. It is for clients.
func (d *Decision) SetRemarks(r Remarks) {
	if d.remarks = nil; r != (Remarks{}) {
		d.remarks = new(r)
	}
}

// Len returns the number of limits that were decided.
func (d *Decision) Len() int { return int(d.n) }

// Limit returns the result of limit i, 0 <= i < Len: first the limits of the first key,
// in the order of its rule, then those of the next key. The pointer is valid until d is
// used again.
func (d *Decision) Limit(i int) *LimitDecision {
	if d.n <= inlineLimits {
		return &d.inline[i]
	}
	return &d.more[i]
}

// Limits returns the results of all limits, each as [Decision.Limit] does. They are valid until d is used again.
func (d *Decision) Limits() []LimitDecision {
	if d.n <= inlineLimits {
		return d.inline[:d.n]
	}
	return d.more
}

// BlockedBy returns the limit that denied the check, nil if the check was allowed. If
// several denied, it is the one with the longest wait; one that can never allow the
// check precedes all others.
func (d *Decision) BlockedBy() *LimitDecision {
	if d.steps.Blocked == 0 {
		return nil
	}
	return d.Limit(int(d.steps.Blocked) - 1)
}

// Grow makes room for n limits with undefined contents. It is for deciders. Above four
// it allocates, once for a Decision that is used again.
func (d *Decision) Grow(n int) {
	if n > inlineLimits {
		if cap(d.more) < n {
			d.more = make([]LimitDecision, n)
		}
		d.more = d.more[:n]
	}
	d.n = int32(n)
}

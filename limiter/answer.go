package limiter

// Answer is a decision in the form of its JSON, with names and whole milliseconds
// (rounded up) instead of pointers and ticks. Its field tags define the JSON of every
// interface.
type Answer struct {
	Allowed      bool   `json:"allowed"`
	Never        bool   `json:"never,omitempty"`
	ShadowDenied bool   `json:"shadow_denied,omitempty"`
	Rule         string `json:"rule,omitempty"`
	BlockedBy    string `json:"blocked_by,omitempty"`
	DrawnBy      string `json:"drawn_by,omitempty"` // of a denial by a quota: the rule that draws on it
	// the rule whose default time zone counted, for want of a valid one in the request
	ZoneDefault  string        `json:"zone_default,omitempty"`
	RetryAfterMs *int64        `json:"retry_after_ms,omitempty"`
	Source       string        `json:"source"`
	Repeated     bool          `json:"repeated,omitempty"`   // the answer of the first check with its id
	Overridden   bool          `json:"overridden,omitempty"` // an operator's override decided in place of a rule's limits
	Deny         *Denial       `json:"deny,omitempty"`       // of a denial by a rule that denies each request
	Receipt      string        `json:"receipt,omitempty"`    // to take the charge back with, where it was asked for
	Limits       []LimitAnswer `json:"limits"`
}

// LimitAnswer is one limit of an [Answer].
type LimitAnswer struct {
	Name      string `json:"name"`
	Key       string `json:"key"`
	Algorithm string `json:"algorithm"`
	Limit     uint64 `json:"limit"` // units per window
	// Capacity is the largest cost that is ever admitted, and what remains of an unused
	// counter: the burst of a bucket. It is left out if it equals Limit.
	Capacity uint64 `json:"capacity,omitempty"`
	// InForce is the share of Limit that was applied in its place; 0: Limit was.
	InForce      uint64 `json:"in_force,omitempty"`
	Remaining    uint64 `json:"remaining"`
	ResetAfterMs int64  `json:"reset_after_ms"`
	RetryAfterMs *int64 `json:"retry_after_ms,omitempty"`
	Never        bool   `json:"never,omitempty"`
	Blocked      bool   `json:"blocked,omitempty"`
	Shadow       bool   `json:"shadow,omitempty"`
	Overflow     bool   `json:"overflow,omitempty"`
	Owner        string `json:"owner,omitempty"`
}

// NewAnswer converts a decision. keyName returns the displayed name of the counter of
// limit i, such as "/towns:ada:minute".
func NewAnswer(d *Decision, keyName func(i int) string) Answer {
	a := Answer{
		Allowed: d.Allowed, Never: d.Never, ShadowDenied: d.ShadowDenied, Rule: d.Rule,
		DrawnBy: d.Remarks().DrawnBy, ZoneDefault: d.Remarks().ZoneDefault, Deny: d.Remarks().Deny,
		Source: d.Source.String(), Repeated: d.Repeated, Overridden: d.Overridden, Limits: make([]LimitAnswer, d.Len()),
	}
	if !d.Allowed && !d.Never {
		a.RetryAfterMs = new(Millis(d.RetryAfter))
	}
	if b := d.BlockedBy(); b != nil {
		a.BlockedBy = b.FullName()
	}
	for i := range a.Limits {
		l := d.Limit(i)
		a.Limits[i] = LimitAnswer{
			Name: l.FullName(), Key: keyName(i), Algorithm: l.Limit.Algorithm().String(),
			Limit: l.Limit.Limit(), InForce: l.InForce, Remaining: l.Remaining, ResetAfterMs: Millis(l.ResetAfter),
			Never: l.Never, Blocked: l.Blocked, Shadow: l.Rule.Shadow, Overflow: l.Overflow, Owner: l.Owner,
		}
		if c := l.Limit.Capacity(); c != l.Limit.Limit() {
			a.Limits[i].Capacity = c
		}
		if l.RetryAfter > 0 {
			a.Limits[i].RetryAfterMs = new(Millis(l.RetryAfter))
		}
	}
	return a
}

// FullName returns the names of rule and limit, such as "towns/minute".
func (l *LimitDecision) FullName() string { return l.Rule.Name + "/" + l.Limit.Name() }

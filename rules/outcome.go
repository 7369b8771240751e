package rules

// Outcome is what rules decide without a counter, as bits. They share a field since [Matched] has room for no other.
type Outcome uint8

// The bits of an outcome.
const (
	// Unlimited: rules matched, but none of them counts anything, so the request is allowed without asking a decider.
	Unlimited Outcome = 1 << iota
	// Denied: a rule in force denies the request. It is the rule of the match, and the charge is empty.
	Denied
	// ShadowDenied: a shadow rule would deny it.
	ShadowDenied
	// Overridden: an override decides in place of a rule.
	Overridden
)

// Has reports whether an outcome has all bits of another.
func (o Outcome) Has(bits Outcome) bool { return o&bits == bits }

// unlimited sets or clears the bit Unlimited.
func (m *Match) unlimited(is bool) {
	m.Outcome &^= Unlimited
	if is {
		m.Outcome |= Unlimited
	}
}

// denies notes that a rule denies the request, and reports whether it is in force.
func (m *Match) denies(u *rule) bool {
	if u.limiter.Shadow {
		m.Outcome |= ShadowDenied
		return false
	}
	m.Outcome |= Denied
	return true
}

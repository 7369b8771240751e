package rules

import (
	"github.com/weirlimit/weir/limiter"
)

// holdScope is implemented by scopes of callers that may not settle what every rule holds.
type holdScope interface {
	// PermitsHold reports whether the caller may settle what a rule holds.
	PermitsHold(rule string) bool
}

// permitted returns why the caller may not use a rule, nil if it may.
func permitted(r *limiter.Request, u *rule) error {
	if r.Scope == nil || u.limiter.Shadow && r.Rule == "" || r.Scope.Permits(u.limiter.Name) {
		return nil // a shadow rule is an experiment and refuses nothing
	}
	return &scopeError{rule: u.limiter.Name, named: r.Rule != ""}
}

const toSettle = `the operator must allow "refund" to it, for all rules that match, in the permissions file`

// scopeError is the error for a rule outside the scope of a request.
type scopeError struct {
	rule  string
	named bool // by the request
	hold  bool // what the rule holds is what the caller may not settle
}

// Error returns a text for the caller. It has the name of the rule only if the request has it:
// names of rules may tell something of another tenant.
func (e *scopeError) Error() string {
	switch {
	case e.named:
		return e.AuditText()
	case e.hold:
		return "a rule that matches holds a slot for this check, and the caller may not settle it: " + toSettle
	}
	return limiter.ErrScope.Error() +
		" in this way: the operator must list it, or a prefix of its name, in the permissions file, and finds its name in " +
		"the audit"
}

// AuditText returns a text for the operator, which names the rule.
func (e *scopeError) AuditText() string {
	if e.hold {
		return "the caller may not settle what rule " + quote(e.rule) + " holds for this check: " + toSettle
	}
	return "the caller may not use rule " + quote(e.rule) +
		" in this way: the operator must list the rule, or a prefix of its name, in the permissions file"
}

// Unwrap returns [limiter.ErrForbidden], and [limiter.ErrScope] if the request does not name the rule.
func (e *scopeError) Unwrap() []error {
	if e.named {
		return []error{limiter.ErrForbidden}
	}
	return []error{limiter.ErrForbidden, limiter.ErrScope}
}

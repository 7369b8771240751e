package frontend

import (
	"fmt"
	"strconv"

	"github.com/weirlimit/weir/limiter"
)

// Admit returns why the caller may not do something with a request, nil if it may. The
// request then has the caller, its tenant and its scope. A check or a peek with a hold needs the
// permission to refund as well, to the same rule, and so does a check for which a rule says the hold; a lease needs
// that to check. Without an Access the configuration
// decides.
func (s *Session) Admit(r *limiter.Request, a Action) error {
	if s.caller == nil {
		return s.of.admit(r, a)
	}
	scope, err := s.caller.May(a)
	if also, needed := besides(r, a); err == nil && needed {
		var scoped limiter.Scope
		if scoped, err = s.caller.May(also); scoped != nil {
			scope = both{scope, scoped}
		}
	}
	if err == nil && a == ActionCheck && r.ID != "" && r.Hold == 0 && !r.IDOptional {
		scope = s.holding(scope)
	}
	if err == nil {
		err = s.admitParts(r)
	}
	if err == nil {
		r.Tenant, r.Caller, r.Scope = s.caller.Tenant(), s.caller.Name(), scope
	}
	return err
}

// besides returns what a caller must be allowed besides an action with a request.
func besides(r *limiter.Request, a Action) (also Action, needed bool) {
	if a == ActionLease {
		return ActionCheck, true
	}
	return ActionRefund, r.Hold != 0 && a != ActionRefund
}

// AdmitCheck admits a check or a peek. To get a receipt needs the permission to refund, too.
func (s *Session) AdmitCheck(r *limiter.Request, peek, receipt bool) error {
	if receipt {
		if _, err := s.May(ActionRefund); err != nil {
			return err
		}
	}
	return s.Admit(r, CheckOrPeek(peek))
}

// both is what two scopes permit. The first one may be nil, for all rules.
type both struct{ first, second limiter.Scope }

func (s both) Permits(rule string) bool {
	return (s.first == nil || s.first.Permits(rule)) && s.second.Permits(rule)
}

// holding returns a scope for checks for which rules may say a hold, see [unsettling]. That is made once in a session,
// and for no caller that may settle what every rule holds.
func (s *Session) holding(scope limiter.Scope) limiter.Scope {
	if s.holds == nil {
		refund, err := s.caller.May(ActionRefund)
		if err == nil && refund == nil {
			return scope
		}
		s.holds = &unsettling{scope, refund, err == nil}
	}
	return s.holds
}

// unsettling is the scope of a caller that may not settle what every rule holds. A rule that holds what the caller may
// not settle refuses its checks, or each would take its slot for as long as the hold lasts.
type unsettling struct {
	check, refund limiter.Scope // nil for all rules
	may           bool          // it may settle at all
}

// Permits implements [limiter.Scope].
func (u *unsettling) Permits(rule string) bool { return u.check == nil || u.check.Permits(rule) }

// PermitsHold reports whether the caller may settle what a rule holds.
func (u *unsettling) PermitsHold(rule string) bool {
	return u.may && (u.refund == nil || u.refund.Permits(rule))
}

// admitParts returns why the caller may not name the rule, or send the limits, of a
// request.
func (s *Session) admitParts(r *limiter.Request) error {
	if r.Rule != "" {
		named, err := s.caller.May(ActionRule)
		if err != nil {
			return err
		}
		if named != nil && !named.Permits(r.Rule) {
			return ForbiddenError("rule " + Quote(r.Rule) + " is not one that the caller may name")
		}
	}
	if len(r.Limits) > 0 {
		_, err := s.caller.May(ActionLimits)
		return err
	}
	return nil
}

// About lets an administrator ask about the counters of a tenant; empty: the caller's own. It comes after Admit,
// which has set those.
func (s *Session) About(r *limiter.Request, tenant string, a Action) error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: tenant"+format, append([]any{limiter.ErrInvalid}, args...)...)
	}
	switch {
	case tenant == "":
		return nil
	case len(tenant) > limiter.MaxTenantBytes:
		return invalid(" has %d bytes; at most %d are possible", len(tenant), limiter.MaxTenantBytes)
	case s.caller == nil:
		return invalid(": this node has no permissions file, and so no tenants: leave it out")
	case tenant == s.caller.Tenant():
		return nil
	}
	if _, err := s.caller.May(ActionAdmin); err != nil || s.caller.Tenant() != "" {
		return ForbiddenError("only an administrator without a tenant may ask about the counters of another tenant")
	}
	if a != ActionPeek && a != ActionExplain && a != ActionReset {
		return invalid(`: a check counts for the caller's own tenant: ask with "peek": true, for an explanation or for a ` +
			`reset`)
	}
	r.Tenant = tenant
	return nil
}

// Quote quotes a text from a client for use in an error, shortened if it is long.
func Quote(s string) string {
	const most = 100
	if len(s) > most {
		return fmt.Sprintf("%q...", s[:most])
	}
	return strconv.Quote(s)
}

package envoy

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/peer"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/transport"
)

// asker is who sends a request, over gRPC or over HTTP.
type asker struct {
	ofGRPC context.Context // nil: over HTTP
	ofHTTP *http.Request
	bytes  int // of the message
	// caller is the identity, once it is known; nil: there is none.
	caller transport.Caller
	made   int // new keys so far
}

// over is what the audit calls this service.
const over = "envoy"

func (a *asker) credentials() transport.Credentials {
	if a.ofGRPC != nil {
		return transport.GRPCCredentials(a.ofGRPC)
	}
	return transport.Credentials{Authorization: a.ofHTTP.Header.Values("Authorization"), TLS: a.ofHTTP.TLS}
}

// from returns the address of the connection.
func (a *asker) from() string {
	if a.ofHTTP != nil {
		return a.ofHTTP.RemoteAddr
	}
	if p, ok := peer.FromContext(a.ofGRPC); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}

// tenant returns the owner of the counters, "" for nobody. The asker may be nil.
func (a *asker) tenant() string {
	if a == nil || a.caller == nil {
		return ""
	}
	return a.caller.Tenant()
}

// name returns the identity that asks, "" for none. The asker may be nil.
func (a *asker) name() string {
	if a == nil || a.caller == nil {
		return ""
	}
	return a.caller.Name()
}

// admit identifies who asks, charges the budget with a check for each descriptor, and returns
// why the request may not be sent, nil if it may.
func (a *asker) admit(in *rls.RateLimitRequest, access transport.Access) error {
	if access == nil {
		return nil
	}
	caller, err := access.Identify(a.credentials())
	if err != nil {
		return err
	}
	a.caller = caller
	if err := caller.Spend(len(in.GetDescriptors()), a.bytes); err != nil {
		return err
	}
	for i, d := range in.GetDescriptors() {
		if err := a.may(actionOf(in, i), in.GetDomain()); err != nil {
			return err
		}
		if d.GetLimit() == nil {
			continue
		}
		if _, err := caller.May(transport.ActionLimits); err != nil {
			return err
		}
	}
	return nil
}

// may returns why the caller may not do something in a domain, nil if it may. The asker may be
// nil.
func (a *asker) may(action transport.Action, domain string) error {
	if a == nil || a.caller == nil {
		return nil
	}
	scope, err := a.caller.May(action)
	if err == nil && scope != nil && !scope.Permits(domain) {
		err = notAllowedError(fmt.Sprintf("caller %q may not use the domain %.100q in this way: the operator must list the domain, or a prefix of its name, in the permissions file",
			a.caller.Name(), domain))
	}
	return err
}

// charged notes the new keys of a decision.
func (a *asker) charged(d *limiter.Decision) {
	if a != nil && a.caller != nil {
		a.made += transport.NewKeys(d)
	}
}

// spendKeys charges the budget of new keys with those that were noted.
func (a *asker) spendKeys() {
	if b, ok := a.caller.(transport.KeyBudget); ok && a.made > 0 && b.CountsKeys() {
		b.SpendKeys(a.made)
	}
}

// actionOf returns what descriptor i asks for.
func actionOf(in *rls.RateLimitRequest, i int) transport.Action {
	switch {
	case in.GetDescriptors()[i].GetIsNegativeHits():
		return transport.ActionRefund
	case hitsOf(in, i) == 0:
		return transport.ActionPeek
	}
	return transport.ActionCheck
}

// account tells the audit of a request: of a refusal, or of any end if hits were to be taken
// back. Refusals over HTTP are told by the site.
func (a *asker) account(in *rls.RateLimitRequest, to transport.Auditor, err error) {
	if to == nil {
		return
	}
	e := transport.AuditEvent{Action: transport.ActionCheck.String(), Over: over}
	back := false
	for i := range in.GetDescriptors() {
		back = back || actionOf(in, i) == transport.ActionRefund
	}
	if back {
		e.Action = transport.ActionRefund.String()
	}
	var bad invalidError
	switch no := refused(err); {
	case no && a.ofGRPC == nil, !no && !back:
		return
	case no:
		e.Outcome, e.Why = transport.AuditRefused, transport.AuditText(err)
	case err == nil:
		e.Outcome = transport.AuditDone
	case errors.As(err, &bad), errors.Is(err, limiter.ErrInvalid): // that text has parts of the request
		e.Outcome = transport.AuditFailed
	default:
		e.Outcome, e.Why = transport.AuditFailed, err.Error()
	}
	if e.From = a.from(); a.caller != nil {
		e.Caller, e.Tenant = a.caller.Name(), a.caller.Tenant()
	}
	to.Audited(e)
}

// refused reports whether an error means that the caller may not send a request.
func refused(err error) bool {
	return errors.Is(err, transport.ErrUnauthenticated) || errors.Is(err, limiter.ErrForbidden)
}

// notAllowedError is why a request is not allowed.
type notAllowedError string

func (e notAllowedError) Error() string { return string(e) }

// Unwrap returns [limiter.ErrForbidden].
func (notAllowedError) Unwrap() error { return limiter.ErrForbidden }

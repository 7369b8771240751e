package envoy

import (
	"fmt"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weirlimit/weir/internal/address"
	"github.com/weirlimit/weir/internal/frontend"
)

// asker is who sends a request, over gRPC or over HTTP.
type asker struct {
	session frontend.Session
	shown   frontend.Credentials
	from    fmt.Stringer
	header  func(name string) []string // of the call; nil: it has none
	bytes   int                        // of the message
	site    bool                       // over HTTP, where the site tells the audit of refusals
}

// sender returns the address for the log, "" if it is not known.
func (a *asker) sender() string {
	if a.from == nil {
		return ""
	}
	return a.from.String()
}

// share names who shares what all callers may take: the tenant, else the identity; of a caller that is not known the
// address, or its network of 64 bits of IPv6.
func (a *asker) share() string {
	switch name := a.session.Name(); {
	case a.session.Tenant() != "":
		return "tenant " + a.session.Tenant()
	case name != "" && name != "anonymous":
		return "caller " + name
	case a.from == nil:
		return ""
	}
	from, _ := address.Parse(a.from.String())
	return "address " + address.Counted(from, address.IPv6Bits).String()
}

// protocol returns what the protocol calls what may not be allowed.
func protocol() frontend.Protocol {
	return frontend.Protocol{Over: "envoy", Refunds: "is_negative_hits is"}
}

// admit identifies who asks, charges the budget with a check for each descriptor, and returns
// why the request may not be sent, nil if it may.
func (a *asker) admit(in *rls.RateLimitRequest, front *frontend.Frontend) (err error) {
	if a.session, err = front.Identify(a.from, a.shown); err != nil || !a.session.Identified() {
		return err
	}
	if err := a.session.Spend(len(in.GetDescriptors()), a.bytes); err != nil {
		return err
	}
	for i, d := range in.GetDescriptors() {
		if err := a.may(actionOf(in, i), in.GetDomain()); err != nil {
			return err
		}
		if d.GetLimit() == nil {
			continue
		}
		if _, err := a.session.May(frontend.ActionLimits); err != nil {
			return err
		}
	}
	return nil
}

// may returns why the caller may not do something in a domain, nil if it may.
func (a *asker) may(action frontend.Action, domain string) error {
	scope, err := a.session.May(action)
	if err == nil && scope != nil && !scope.Permits(domain) {
		err = frontend.ForbiddenError(fmt.Sprintf("caller %q may not use the domain %.100q in this way: the operator must "+
			"list the domain, or a prefix of its name, in the permissions file",
			a.session.Name(), domain))
	}
	return err
}

func actionOf(in *rls.RateLimitRequest, i int) frontend.Action {
	if in.GetDescriptors()[i].GetIsNegativeHits() {
		return frontend.ActionRefund
	}
	return frontend.CheckOrPeek(hitsOf(in, i) == 0)
}

// account tells the audit of a request: of a refusal, or of any end if hits were to be taken
// back. Refusals over HTTP are told by the site.
func (a *asker) account(in *rls.RateLimitRequest, err error) {
	action, back := frontend.ActionCheck, false
	for i := range in.GetDescriptors() {
		if actionOf(in, i) == frontend.ActionRefund {
			action, back = frontend.ActionRefund, true
		}
	}
	if !a.site || !frontend.Refused(err) {
		a.session.Account(action.String(), back, err)
	}
}

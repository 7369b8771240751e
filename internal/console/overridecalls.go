package console

import "github.com/weirlimit/weir/transport"

// Calls are the methods of gRPC about overrides: they do what the paths of HTTP do.
type Calls struct{ *Console }

func calledFor(o *transport.Override) *Wanted {
	w := &Wanted{Rule: o.Rule, Tenant: o.Tenant, User: o.User, IP: o.IP, Deny: o.Deny, Unlimited: o.Unlimited,
		Limit: o.Limit, Why: o.Why}
	if o.For > 0 {
		w.For = o.For.String()
	}
	return w
}

// SetOverride implements [transport.Overrides].
func (c Calls) SetOverride(o *transport.Override, by *transport.AdminCaller) error {
	w := calledFor(o)
	by.Subject(subjectOf(w), w.what())
	return c.set(w, by)
}

// RemoveOverride implements [transport.Overrides].
func (c Calls) RemoveOverride(o *transport.Override, by *transport.AdminCaller) error {
	w := calledFor(o)
	by.Subject(subjectOf(w), "removed")
	return c.remove(w, by)
}

// ActiveOverrides implements [transport.Overrides].
func (c Calls) ActiveOverrides(by *transport.AdminCaller) (list []transport.Override, only string) {
	active := c.activeOverrides(by.Tenant())
	for i := range active.Overrides {
		e := &active.Overrides[i]
		list = append(list, transport.Override{Rule: e.Rule, Tenant: e.Tenant, User: e.User, IP: e.IP, Deny: e.Deny,
			Unlimited: !e.Deny && e.Limit == "", Limit: e.Limit, Why: e.Why, By: e.By, Member: e.Member, ToldBy: e.ToldBy,
			Set: e.Set, Until: e.Until})
	}
	return list, active.Only
}

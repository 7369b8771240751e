package console

import (
	"time"

	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/transport"
)

// SetOverride implements [transport.Overrides].
func (o *Overriding) SetOverride(m *weirv1.SetOverrideRequest, by *transport.AdminCaller) error {
	w := &Wanted{Rule: m.GetRule(), Tenant: m.GetTenant(), User: m.GetUser(), IP: m.GetIp(), Deny: m.GetDeny(),
		Unlimited: m.GetUnlimited(), Limit: m.GetLimit(), Why: m.GetWhy()}
	if us := m.GetForUs(); us > 0 {
		w.For = (time.Duration(us) * time.Microsecond).String()
	}
	by.Subject(subjectOf(w), w.what())
	return o.set(w, by)
}

// RemoveOverride implements [transport.Overrides].
func (o *Overriding) RemoveOverride(m *weirv1.RemoveOverrideRequest, by *transport.AdminCaller) error {
	w := &Wanted{Rule: m.GetRule(), Tenant: m.GetTenant(), User: m.GetUser(), IP: m.GetIp()}
	by.Subject(subjectOf(w), "removed")
	return o.remove(w, by)
}

// ActiveOverrides implements [transport.Overrides].
func (o *Overriding) ActiveOverrides(by *transport.AdminCaller) *weirv1.OverridesResponse {
	active := o.active(by.Tenant())
	out := &weirv1.OverridesResponse{Only: active.Only}
	for i := range active.Overrides {
		e := &active.Overrides[i]
		out.Overrides = append(out.Overrides, &weirv1.Override{Rule: e.Rule, Tenant: e.Tenant, User: e.User, Ip: e.IP,
			Decision: e.What(), By: e.By, Member: e.Member, Why: e.Why, ToldBy: e.ToldBy, SetUnixUs: e.Set.UnixMicro(),
			UntilUnixUs: e.Until.UnixMicro()})
	}
	return out
}

package transport

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// Overrides serve the methods of gRPC about overrides.
type Overrides interface {
	// SetOverride puts one in force, and RemoveOverride ends one, for a caller that may.
	SetOverride(o *Override, by *AdminCaller) error
	RemoveOverride(o *Override, by *AdminCaller) error
	// ActiveOverrides returns those in force that a caller may see. only says why they are in force on this node
	// only; empty: they are on all members.
	ActiveOverrides(by *AdminCaller) (list []Override, only string)
}

// Override is what an operator decided about one user, or address, in place of a rule's limits.
type Override struct {
	Rule, Tenant, User, IP string
	// One of these three.
	Deny, Unlimited bool
	Limit           string
	// For is how long one lasts that is to be set; 0: the default.
	For time.Duration
	// Why is the reason. By set it, as Member says, of which ToldBy told.
	Why, By, Member, ToldBy string
	// Set and Until are when one in force was set and ends.
	Set, Until time.Time
}

// overrideCalls are the methods.
func overrideCalls(of Overrides) map[string]AdminRoute {
	active := func(by *AdminCaller) proto.Message {
		list, only := of.ActiveOverrides(by)
		out := &weirv1.OverridesResponse{Only: only}
		for i := range list {
			out.Overrides = append(out.Overrides, list[i].message())
		}
		return out
	}
	return map[string]AdminRoute{
		weirv1.Administration_SetOverride_FullMethodName: {Changes: true, Action: "override",
			call: func(text []byte, by *AdminCaller) (proto.Message, error) {
				m := new(weirv1.SetOverrideRequest)
				if err := readMessage(text, m); err != nil {
					return nil, err
				}
				const most = int64(1<<63-1) / 1000
				if us := m.GetForUs(); us < 0 || us > most {
					return nil, fmt.Errorf("%w: for_us is %d, which is no time to come", limiter.ErrInvalid, us)
				}
				o := &Override{Rule: m.GetRule(), Tenant: m.GetTenant(), User: m.GetUser(), IP: m.GetIp(),
					Deny: m.GetDeny(), Unlimited: m.GetUnlimited(), Limit: m.GetLimit(), Why: m.GetWhy(),
					For: time.Duration(m.GetForUs()) * time.Microsecond}
				if err := of.SetOverride(o, by); err != nil {
					return nil, err
				}
				return active(by), nil
			}},
		weirv1.Administration_RemoveOverride_FullMethodName: {Changes: true, Action: "override remove",
			call: func(text []byte, by *AdminCaller) (proto.Message, error) {
				m := new(weirv1.RemoveOverrideRequest)
				if err := readMessage(text, m); err != nil {
					return nil, err
				}
				o := &Override{Rule: m.GetRule(), Tenant: m.GetTenant(), User: m.GetUser(), IP: m.GetIp()}
				if err := of.RemoveOverride(o, by); err != nil {
					return nil, err
				}
				return active(by), nil
			}},
		weirv1.Administration_ListOverrides_FullMethodName: {Action: "override list",
			call: func(text []byte, by *AdminCaller) (proto.Message, error) {
				if err := readMessage(text, new(weirv1.ListOverridesRequest)); err != nil {
					return nil, err
				}
				return active(by), nil
			}},
	}
}

func (o *Override) message() *weirv1.Override {
	m := &weirv1.Override{Rule: o.Rule, Tenant: o.Tenant, User: o.User, Ip: o.IP, Decision: o.Limit, By: o.By,
		Member: o.Member, Why: o.Why, ToldBy: o.ToldBy, SetUnixUs: o.Set.UnixMicro(), UntilUnixUs: o.Until.UnixMicro()}
	switch {
	case o.Deny:
		m.Decision = "deny"
	case o.Limit == "":
		m.Decision = "unlimited"
	}
	return m
}

// readMessage decodes the message of a call.
func readMessage(text []byte, to proto.Message) error {
	if err := proto.Unmarshal(text, to); err != nil {
		return fmt.Errorf("%w: the message cannot be decoded", limiter.ErrInvalid)
	}
	return nil
}

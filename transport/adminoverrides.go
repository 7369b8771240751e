package transport

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// Overrides serve the methods of gRPC about overrides.
type Overrides interface {
	// SetOverride puts one in force, and RemoveOverride ends one, for a caller that may.
	SetOverride(m *weirv1.SetOverrideRequest, by *AdminCaller) error
	RemoveOverride(m *weirv1.RemoveOverrideRequest, by *AdminCaller) error
	// ActiveOverrides returns those in force that a caller may see.
	ActiveOverrides(by *AdminCaller) *weirv1.OverridesResponse
}

// overrideCalls are the methods.
func overrideCalls(of Overrides) map[string]AdminRoute {
	return map[string]AdminRoute{
		weirv1.Administration_SetOverride_FullMethodName: {Changes: true, Action: "override",
			call: overrideCall(of, func(m *weirv1.SetOverrideRequest, by *AdminCaller) error {
				const most = int64(1<<63-1) / 1000
				if us := m.GetForUs(); us < 0 || us > most {
					return fmt.Errorf("%w: for_us is %d, which is no time to come", limiter.ErrInvalid, us)
				}
				return of.SetOverride(m, by)
			})},
		weirv1.Administration_RemoveOverride_FullMethodName: {Changes: true, Action: "override remove",
			call: overrideCall(of, of.RemoveOverride)},
		weirv1.Administration_ListOverrides_FullMethodName: {Action: "override list",
			call: overrideCall(of, func(*weirv1.ListOverridesRequest, *AdminCaller) error { return nil })},
	}
}

// overrideCall does what a message asks for, and answers with the overrides in force then.
func overrideCall[T any, M interface {
	*T
	proto.Message
}](of Overrides, do func(M, *AdminCaller) error) func([]byte, *AdminCaller) (proto.Message, error) {
	return func(text []byte, by *AdminCaller) (proto.Message, error) {
		m := M(new(T))
		if err := readMessage(text, m); err != nil {
			return nil, err
		}
		if err := do(m, by); err != nil {
			return nil, err
		}
		return of.ActiveOverrides(by), nil
	}
}

// readMessage decodes the message of a call.
func readMessage(text []byte, to proto.Message) error {
	if err := proto.Unmarshal(text, to); err != nil {
		return fmt.Errorf("%w: the message cannot be decoded", limiter.ErrInvalid)
	}
	return nil
}

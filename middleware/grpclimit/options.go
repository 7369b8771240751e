package grpclimit

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"github.com/weirlimit/weir/internal/front"
	"github.com/weirlimit/weir/limiter"
)

// Option configures a [Limiter]. Functions given to options are called from many
// goroutines, once for each call that is decided.
type Option func(*Limiter) error

// sets returns an option that cannot be wrong.
func sets(set func(*Limiter)) Option {
	return func(l *Limiter) error {
		set(l)
		return nil
	}
}

// needs returns an option of a name that sets a function, which must be given.
func needs(name string, given bool, set func(*Limiter)) Option {
	if given {
		return sets(set)
	}
	return func(l *Limiter) error { return l.core.NeedsFunction(name) }
}

// Rule names the rule that decides, instead of the one whose conditions match.
func Rule(name string) Option {
	return func(l *Limiter) error { return l.core.SetRule(name, "method") }
}

// Skip lets calls pass for which f returns true, uncounted and without metadata, such
// as health checks. f must not depend on anything that callers can choose.
func Skip(f func(context.Context, *Call) bool) Option {
	return needs("Skip", f != nil, func(l *Limiter) { l.skip = f })
}

// TrustedProxies names the networks of the proxies in front of the service; default
// none. For a connection from one of them, the caller is the right-most address in
// x-forwarded-for (or see [ForwardedKey] and [AddressKey]) that is not in these
// networks; the caller itself may have written what stands to the left. Any other
// connection is counted by its own address, whatever its metadata says. Do not name
// networks from which callers connect.
func TrustedProxies(networks ...netip.Prefix) Option {
	return func(l *Limiter) error { return l.core.Trust(networks) }
}

// TrustUnixSockets treats a connection over a Unix socket, which has no address, as one
// from a trusted proxy. By default all such connections count as one caller.
func TrustUnixSockets() Option {
	return sets(func(l *Limiter) { l.core.UnixSocket = true })
}

// ForwardedKey takes the caller's address from the key forwarded (RFC 7239), set by
// trusted proxies, instead of x-forwarded-for.
func ForwardedKey() Option {
	return sets(func(l *Limiter) { l.core.Addresses.Chain, l.core.AddressIn = front.Forwarded, "forwarded" })
}

// AddressKey takes the caller's address from a key that contains nothing else, such as
// x-real-ip, instead of x-forwarded-for. The trusted proxy must overwrite the key in
// every call; otherwise callers can choose their address.
func AddressKey(key string) Option {
	return func(l *Limiter) error {
		if key == "" {
			return errors.New("grpclimit: AddressKey needs a key of the metadata, such as x-real-ip")
		}
		l.core.Addresses.Chain, l.core.AddressIn = front.Single, strings.ToLower(key)
		return nil
	}
}

// IPv6Bits sets how many leading bits of an IPv6 address identify one caller, 1 to 128;
// default 64, the network that one customer usually has. With more bits, a caller with
// a whole network has as many counters as addresses. With fewer, neighbours share a
// counter.
func IPv6Bits(bits int) Option {
	return func(l *Limiter) error { return l.core.SetIPv6Bits(bits) }
}

// Attribute sets a further attribute that rules may match on or count by, under its
// name in the rules file. An empty value counts as absent.
func Attribute(name string, from Extract) Option {
	return func(l *Limiter) error { return l.core.AddAttribute(name, from, from != nil) }
}

// CostFunc sets the cost of a call; the zero Cost leaves it to the rule. If callers can
// influence the number, give it a lower bound, or calls cost nothing.
func CostFunc(f func(context.Context, *Call) limiter.Cost) Option {
	return needs("CostFunc", f != nil, func(l *Limiter) { l.cost = f })
}

// PerMessage also checks each message that a server receives on a stream. By default a
// stream is checked once, when it opens, however many messages it carries.
func PerMessage() Option {
	return sets(func(l *Limiter) { l.perMessage = true })
}

// NoMetadata leaves the metadata of responses unchanged. The error of a denial still
// has its details.
func NoMetadata() Option {
	return sets(func(l *Limiter) { l.quiet = true })
}

// OnDenied makes the error of denied calls, instead of [Denial]. If f returns nil, the
// call proceeds. The metadata is set already. The decision is valid until f returns.
func OnDenied(f func(context.Context, *Call, *limiter.Decision) error) Option {
	return needs("OnDenied", f != nil, func(l *Limiter) { l.onDenied = f })
}

// OnError makes the error of calls that could not be decided; if f returns nil, the
// call proceeds uncounted. An error that wraps limiter.ErrInvalid concerns the call,
// and callers can cause it (by a user of 300 bytes): letting such a call proceed lets
// callers bypass the limit. The same is true of limiter.ErrScope, limiter.ErrBudget and
// limiter.ErrSettled, and of a call whose own context has ended.
//
// By default the code is INVALID_ARGUMENT for limiter.ErrInvalid, PERMISSION_DENIED for
// limiter.ErrScope, RESOURCE_EXHAUSTED for limiter.ErrBudget, FAILED_PRECONDITION for
// limiter.ErrSettled, that of the context if it has ended, and otherwise UNAVAILABLE.
func OnError(f func(context.Context, *Call, error) error) Option {
	return needs("OnError", f != nil, func(l *Limiter) { l.onError = f })
}

// FailOpen lets calls proceed uncounted while the decider fails, if being reachable
// matters more than being limited. A call that cannot be counted, that is refused for what its
// caller chose (see [OnError]), or that its caller cancelled, is refused as without FailOpen. It has
// no effect together with [OnError].
func FailOpen() Option {
	return sets(func(l *Limiter) { l.core.FailOpen = true })
}

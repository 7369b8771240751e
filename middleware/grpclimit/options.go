package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/internal/front"
)

// Option sets something of a [Limiter]. Functions that are given to options are
// called from many goroutines, once for each call that is decided.
type Option func(*Limiter) error

// Rule names the rule that decides, instead of the one whose conditions match.
func Rule(name string) Option {
	return func(l *Limiter) error {
		if name == "" {
			return errors.New("grpclimit: Rule needs the name of a rule; leave it out to let the method find one")
		}
		l.rule = name
		return nil
	}
}

// Skip lets calls pass for which f is true, uncounted and without metadata:
// health checks, say. What f looks at must not be for the caller to choose.
func Skip(f func(context.Context, *Call) bool) Option {
	return func(l *Limiter) error {
		if f == nil {
			return isNil("Skip")
		}
		l.skip = f
		return nil
	}
}

// TrustedProxies names the networks of proxies that stand in front and tell
// where a call came from. Of the addresses in x-forwarded-for (or see
// [ForwardedKey] and [AddressKey]) the right-most that is not in these networks
// is the caller: what stands left of it was written by the caller. A connection
// from anywhere else is counted by its own address, whatever its metadata says.
// Name no network from which callers connect. By default there is none.
func TrustedProxies(networks ...netip.Prefix) Option {
	return func(l *Limiter) error {
		trusted, err := front.Trust(networks)
		if err != nil {
			return fmt.Errorf("grpclimit: TrustedProxies: %w", err)
		}
		l.addresses.Trusted = append(l.addresses.Trusted, trusted...)
		return nil
	}
}

// TrustUnixSockets takes a connection over a Unix socket, which has no address,
// for one from a trusted proxy. Without it all of these count as one caller.
func TrustUnixSockets() Option {
	return func(l *Limiter) error {
		l.unixSocket = true
		return nil
	}
}

// ForwardedKey takes the caller's address from the key forwarded (RFC 7239) that
// trusted proxies set, instead of x-forwarded-for.
func ForwardedKey() Option {
	return func(l *Limiter) error {
		l.addresses.Chain, l.addrKey = front.Forwarded, "forwarded"
		return nil
	}
}

// AddressKey takes the caller's address from a key that holds nothing else, such
// as x-real-ip, instead of x-forwarded-for. The trusted proxy must overwrite it
// in every call: if it passes on what came, every caller chooses an address.
func AddressKey(key string) Option {
	return func(l *Limiter) error {
		if key == "" {
			return errors.New("grpclimit: AddressKey needs a key of the metadata, such as x-real-ip")
		}
		l.addresses.Chain, l.addrKey = front.Single, strings.ToLower(key)
		return nil
	}
}

// IPv6Bits is how many leading bits of an IPv6 address are one caller, 1 to 128;
// default 64, the network that one customer is given. More lets a caller with a
// whole network have as many counters as it has addresses, fewer makes
// neighbours share one.
func IPv6Bits(bits int) Option {
	return func(l *Limiter) error {
		if bits < 1 || bits > 128 {
			return fmt.Errorf("grpclimit: IPv6Bits %d is out of range: give 1 to 128", bits)
		}
		l.addresses.IPv6Bits = bits
		return nil
	}
}

type attribute struct {
	name string
	from Extract
}

// Attribute gives a further fact that rules may match on or count by, under its
// name in the rules file. An empty one is left out.
func Attribute(name string, from Extract) Option {
	return func(l *Limiter) error {
		if name == "" || from == nil {
			return errors.New("grpclimit: Attribute needs a name and a function")
		}
		l.attributes = append(l.attributes, attribute{name, from})
		return nil
	}
}

// CostFunc gives the cost of a call; the zero Cost leaves it to the rule. A
// number that the caller chooses needs a lower bound, or it costs nothing.
func CostFunc(f func(context.Context, *Call) limiter.Cost) Option {
	return func(l *Limiter) error {
		if f == nil {
			return isNil("CostFunc")
		}
		l.cost = f
		return nil
	}
}

// PerMessage asks for each message that a server receives on a stream too, not
// only when it opens. By default one stream, however many messages it carries,
// is one check.
func PerMessage() Option {
	return func(l *Limiter) error {
		l.perMessage = true
		return nil
	}
}

// NoMetadata sets no metadata of responses. A denial's error has its details all
// the same.
func NoMetadata() Option {
	return func(l *Limiter) error {
		l.quiet = true
		return nil
	}
}

// OnDenied makes the error for calls that are denied, instead of [Denial]. If it
// is nil the call goes on. The metadata is set already. The decision is good
// until f returns.
func OnDenied(f func(context.Context, *Call, *limiter.Decision) error) Option {
	return func(l *Limiter) error {
		if f == nil {
			return isNil("OnDenied")
		}
		l.onDenied = f
		return nil
	}
}

// OnError makes the error for calls that could not be decided; if it is nil the
// call goes on, uncounted. An error that wraps limiter.ErrInvalid is about the
// call, and may be of the caller's making (a user of 300 bytes): what lets it go
// on lets callers go on without a limit. So does letting one go on whose own
// context has ended.
//
// By default that is INVALID_ARGUMENT, the code of the ended context, or, for
// any other, UNAVAILABLE.
func OnError(f func(context.Context, *Call, error) error) Option {
	return func(l *Limiter) error {
		if f == nil {
			return isNil("OnError")
		}
		l.onError = f
		return nil
	}
}

// FailOpen lets calls go on, uncounted, while the decider fails: what is limited
// is then worth less than being reachable. A call that cannot be counted, or was
// given up by its caller, is refused as without it. It has no effect beside
// [OnError].
func FailOpen() Option {
	return func(l *Limiter) error {
		l.failOpen = true
		return nil
	}
}

func isNil(option string) error { return fmt.Errorf("grpclimit: %s needs a function", option) }

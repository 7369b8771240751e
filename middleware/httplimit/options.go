package httplimit

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/front"
	"github.com/weirlimit/weir/limiter"
)

// Option configures a [Limiter]. Functions given to options are called from many
// goroutines, once for each request.
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

// Rule names the rule that decides, instead of the one whose conditions match. It suits
// a limiter around one handler.
func Rule(name string) Option {
	return func(l *Limiter) error { return l.core.SetRule(name, "path") }
}

// Skip lets requests pass for which f returns true, uncounted and without fields, such
// as the probes of a load balancer. f must not depend on anything that callers can
// choose.
func Skip(f func(*http.Request) bool) Option {
	return needs("Skip", f != nil, func(l *Limiter) { l.skip = f })
}

// Path sets the path by which a request is counted. If f returns an empty string, the
// default path is used: the one that the handler at this place sees, for instance
// without the prefix that http.StripPrefix removed, in the form that the package
// comment describes.
func Path(f func(*http.Request) string) Option {
	return needs("Path", f != nil, func(l *Limiter) { l.path = f })
}

// PathFromPattern counts a request by the pattern of its route, such as /towns/{name},
// which net/http's ServeMux stores in Request.Pattern, so that all towns share a
// counter. The router must run first: put the limiter around its handlers, not around
// the router. A request without a pattern is counted by its path.
func PathFromPattern() Option { return Path(patternPath) }

// TrustedProxies names the networks of the proxies in front of the service; default
// none. For a connection from one of them, the caller is the right-most address in
// X-Forwarded-For (or see [ForwardedField] and [AddressField]) that is not in these
// networks; the caller itself may have written what stands to the left. Any other
// connection is counted by its own address, whatever its header says. Do not name
// networks from which callers connect.
func TrustedProxies(networks ...netip.Prefix) Option {
	return func(l *Limiter) error { return l.core.Trust(networks) }
}

// TrustUnixSockets treats a connection over a Unix socket, which has no address, as one
// from a trusted proxy. By default all such connections count as one caller.
func TrustUnixSockets() Option {
	return sets(func(l *Limiter) { l.core.UnixSocket = true })
}

// ForwardedField takes the caller's address from the field Forwarded (RFC 7239) instead
// of X-Forwarded-For. Use the field that your proxies write. They must set the whole
// field, or remove the one they received.
func ForwardedField() Option {
	return sets(func(l *Limiter) { l.core.Addresses.Chain, l.core.AddressIn = front.Forwarded, "Forwarded" })
}

// AddressField takes the caller's address from a field that contains nothing else, such
// as X-Real-IP or CF-Connecting-IP, instead of X-Forwarded-For. The trusted proxy must
// overwrite the field in every request; otherwise callers can choose their address.
func AddressField(name string) Option {
	return func(l *Limiter) error {
		if name == "" {
			return errors.New("httplimit: AddressField needs the name of a header field, such as X-Real-IP")
		}
		l.core.Addresses.Chain, l.core.AddressIn = front.Single, http.CanonicalHeaderKey(name)
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

// CostByMethod sets the cost of requests by their method, in units; other methods cost
// what the rule says. A cost of 0 is a peek: such requests are denied when other
// requests have used up the limit.
func CostByMethod(costs map[string]int64) Option {
	return func(l *Limiter) error {
		l.costs = make(map[string]limiter.Cost, len(costs))
		for _, method := range slices.Sorted(maps.Keys(costs)) {
			c := limiter.Units(costs[method])
			if _, err := c.Value(0); err != nil {
				return fmt.Errorf("httplimit: CostByMethod, %s: %w", method, err)
			}
			l.costs[strings.ToUpper(method)] = c
		}
		return nil
	}
}

// CostFunc sets the cost of a request; the zero Cost leaves it to the rule. It takes
// precedence over [CostByMethod]. If callers can influence the number, give it a lower
// bound, or requests cost nothing.
func CostFunc(f func(*http.Request) limiter.Cost) Option {
	return needs("CostFunc", f != nil, func(l *Limiter) { l.cost = f })
}

// OnDenied replaces the answer to denied requests. The header fields that report the
// limits, and Retry-After, are set already. The decision is valid until f returns.
func OnDenied(f func(http.ResponseWriter, *http.Request, *limiter.Decision)) Option {
	return needs("OnDenied", f != nil, func(l *Limiter) { l.onDenied = f })
}

// OnError is called for requests that could not be decided. It either answers and
// returns false, or returns true to let the request pass uncounted. An error that wraps
// limiter.ErrInvalid concerns the request, and callers can cause it (by a path of 9 KiB):
// letting such a request pass lets callers bypass the limit. The same is true of limiter.ErrScope,
// limiter.ErrBudget and limiter.ErrSettled, and of a request whose own context has ended.
//
// By default a request is answered with 400 for limiter.ErrInvalid (414 for a path that is
// too long), 403 for limiter.ErrScope, 429 for limiter.ErrBudget, 409 for limiter.ErrSettled, and
// 503 for any other error.
func OnError(f func(http.ResponseWriter, *http.Request, error) bool) Option {
	return needs("OnError", f != nil, func(l *Limiter) { l.onError = f })
}

// FailOpen lets requests pass uncounted while the decider fails, if being reachable
// matters more than being limited. A request that cannot be counted, that is refused for what its
// caller chose (see [OnError]), or that its caller cancelled, is answered as without FailOpen. It has
// no effect together with [OnError].
func FailOpen() Option {
	return sets(func(l *Limiter) { l.core.FailOpen = true })
}

// Headers chooses the header fields that report the limits; default IETF. Without
// arguments there are none. Retry-After is set in any case.
func Headers(spellings ...Spelling) Option {
	return func(l *Limiter) error {
		for _, s := range spellings {
			if s >= spellingCount {
				return fmt.Errorf("httplimit: there is no spelling %d of header fields", s)
			}
		}
		l.spellings = slices.Clone(spellings)
		return nil
	}
}

// ResetAs chooses the form of X-RateLimit-Reset and X-Rate-Limit-Reset; default
// ResetDelta.
func ResetAs(r Reset) Option {
	return func(l *Limiter) error {
		if r > ResetEpoch {
			return fmt.Errorf("httplimit: there is no form %d of a reset", r)
		}
		l.reset = r
		return nil
	}
}

// Now sets the clock of [ResetEpoch], for tests; default time.Now.
func Now(f func() time.Time) Option {
	return needs("Now", f != nil, func(l *Limiter) { l.now = f })
}

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

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/internal/front"
)

// Option sets something of a [Limiter]. Functions that are given to options are
// called from many goroutines, once for each request.
type Option func(*Limiter) error

// Rule names the rule that decides, instead of the one whose conditions match:
// for a limiter around one handler.
func Rule(name string) Option {
	return func(l *Limiter) error {
		if name == "" {
			return errors.New("httplimit: Rule needs the name of a rule; leave it out to let the path find one")
		}
		l.rule = name
		return nil
	}
}

// Skip lets requests pass for which f is true, uncounted and without fields:
// probes of a load balancer, say. What f looks at must not be for the caller to
// choose.
func Skip(f func(*http.Request) bool) Option {
	return func(l *Limiter) error {
		if f == nil {
			return isNil("Skip")
		}
		l.skip = f
		return nil
	}
}

// Path gives the path that a request is counted by. Where f returns an empty
// string it is the path as it is normally counted (see the package). By default
// that is the path that the handler at this place sees: without what
// http.StripPrefix took away, for instance.
func Path(f func(*http.Request) string) Option {
	return func(l *Limiter) error {
		if f == nil {
			return isNil("Path")
		}
		l.path = f
		return nil
	}
}

// PathFromPattern counts a request by the pattern of the route, such as
// /towns/{name}, as net/http's ServeMux leaves it in Request.Pattern, so that
// all towns share a counter. The router must have run: the limiter stands around
// its handlers, not around itself. A request without a pattern is counted by its
// path.
func PathFromPattern() Option { return Path(patternPath) }

// TrustedProxies names the networks of proxies that stand in front and tell
// where a request came from. Of the addresses in X-Forwarded-For (or see
// [ForwardedField] and [AddressField]) the right-most that is not in these
// networks is the caller: what stands left of it was written by the caller. A
// connection from anywhere else is counted by its own address, whatever its
// header says. Name no network from which callers connect. By default there is
// none.
func TrustedProxies(networks ...netip.Prefix) Option {
	return func(l *Limiter) error {
		trusted, err := front.Trust(networks)
		if err != nil {
			return fmt.Errorf("httplimit: TrustedProxies: %w", err)
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

// ForwardedField takes the caller's address from the field Forwarded (RFC 7239)
// that trusted proxies set, instead of X-Forwarded-For. Proxies must either set
// it all or drop what came: use the one that yours write.
func ForwardedField() Option {
	return func(l *Limiter) error {
		l.addresses.Chain, l.addrField = front.Forwarded, "Forwarded"
		return nil
	}
}

// AddressField takes the caller's address from a field that holds nothing else,
// such as X-Real-IP or CF-Connecting-IP, instead of X-Forwarded-For. The trusted
// proxy must overwrite it in every request: if it passes on what came, every
// caller chooses an address.
func AddressField(name string) Option {
	return func(l *Limiter) error {
		if name == "" {
			return errors.New("httplimit: AddressField needs the name of a header field, such as X-Real-IP")
		}
		l.addresses.Chain, l.addrField = front.Single, http.CanonicalHeaderKey(name)
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
			return fmt.Errorf("httplimit: IPv6Bits %d is out of range: give 1 to 128", bits)
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
			return errors.New("httplimit: Attribute needs a name and a function")
		}
		l.attributes = append(l.attributes, attribute{name, from})
		return nil
	}
}

// CostByMethod gives the cost of requests by their method, in units; others
// cost what the rule says. A cost of 0 peeks: such requests are limited by what
// others have spent.
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

// CostFunc gives the cost of a request; the zero Cost leaves it to the rule. It
// goes before [CostByMethod]. A number that the caller chooses needs a lower
// bound, or it costs nothing.
func CostFunc(f func(*http.Request) limiter.Cost) Option {
	return func(l *Limiter) error {
		if f == nil {
			return isNil("CostFunc")
		}
		l.cost = f
		return nil
	}
}

// OnDenied answers denied requests. The header fields that tell the limits, and
// Retry-After, are set already. The decision is good until f returns.
func OnDenied(f func(http.ResponseWriter, *http.Request, *limiter.Decision)) Option {
	return func(l *Limiter) error {
		if f == nil {
			return isNil("OnDenied")
		}
		l.onDenied = f
		return nil
	}
}

// OnError is called for requests that could not be decided. It either answers
// and returns false, or returns true to let the request go on, uncounted. An
// error that wraps limiter.ErrInvalid is about the request, and may be of the
// caller's making (a path of 300 bytes): what lets it go on lets callers go on
// without a limit. So does letting one go on whose own context has ended.
//
// By default such a request is answered 400 (414 for a path that is too long), and
// any other 503.
func OnError(f func(http.ResponseWriter, *http.Request, error) bool) Option {
	return func(l *Limiter) error {
		if f == nil {
			return isNil("OnError")
		}
		l.onError = f
		return nil
	}
}

// FailOpen lets requests go on, uncounted, while the decider fails: what is
// limited is then worth less than being reachable. A request that cannot be
// counted, or was given up by its caller, is answered as without it. It has no
// effect beside [OnError].
func FailOpen() Option {
	return func(l *Limiter) error {
		l.failOpen = true
		return nil
	}
}

// Headers chooses the header fields that tell the limits; default IETF, and
// none at all if none is named. Retry-After does not depend on it.
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

// ResetAs chooses what X-RateLimit-Reset and X-Rate-Limit-Reset say; default
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

// Now is the clock for [ResetEpoch], for tests; default time.Now.
func Now(f func() time.Time) Option {
	return func(l *Limiter) error {
		if f == nil {
			return isNil("Now")
		}
		l.now = f
		return nil
	}
}

func isNil(option string) error { return fmt.Errorf("httplimit: %s needs a function", option) }

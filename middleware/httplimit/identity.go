package httplimit

import (
	"errors"
	"net/http"

	"github.com/weirlimit/weir/internal/front"
	"github.com/weirlimit/weir/internal/middle"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/identity"
)

// Extract reads a value, such as the user, from a request. An empty string means that
// it is absent.
type Extract func(*http.Request) string

// FromHeader reads a header field. Any client can send one, so use it for the user only
// behind a proxy that sets or removes it in every request.
func FromHeader(name string) Extract {
	return func(r *http.Request) string { return r.Header.Get(name) }
}

// FromBaggage reads a name of the baggage that OpenTelemetry carries from service to service
// in the field baggage (of the W3C). Any client can send one: use it for the user only where
// what is in front of the service sets or removes the field. Baggage of more than 8 KiB is not
// read.
func FromBaggage(name string) Extract {
	return func(r *http.Request) string { return front.Baggage(r.Header["Baggage"], name) }
}

// FromHost returns the host that a request is sent to, with its port if the request names
// one. With Attribute("host", FromHost), rules can match on it with "host" and
// "not_host". Any client can name any host.
func FromHost(r *http.Request) string { return r.Host }

// ID sets the sources of the id that makes a check safe to repeat: another request with the
// same id and keys gets the answer of the first one and is not counted. Callers must not be
// able to choose the id, since a caller that sends one id twice is not charged for the second
// request. A proxy that repeats requests can write it into them, for example. A request is
// counted each time if no source returns a value. Rules with "any" take no ids, see [Settle].
func ID(from ...Extract) Option {
	set := identify("ID", from, func(q *limiter.Request) *string { return &q.ID })
	return func(l *Limiter) error {
		l.named = true
		return set(l)
	}
}

// User sets the sources of the user; the first one that returns a value is used.
// Several User options are tried in their order.
func User(from ...Extract) Option {
	return identify("User", from, func(q *limiter.Request) *string { return &q.User })
}

// Group sets the sources of the group, as User does for the user.
func Group(from ...Extract) Option {
	return identify("Group", from, func(q *limiter.Request) *string { return &q.Group })
}

func identify(option string, from []Extract, field func(*limiter.Request) *string) Option {
	return func(l *Limiter) error {
		for _, f := range from {
			if f == nil {
				return l.core.NeedsFunction(option)
			}
			l.identify = append(l.identify, func(r *http.Request, q *limiter.Request) {
				if at := field(q); *at == "" {
					*at = f(r)
				}
			})
		}
		return nil
	}
}

// maxCookies bounds how many cookies with the same name are verified.
const maxCookies = 4

// Session takes user and group from a cookie that s has sealed. A request whose cookie
// is missing, forged or expired is anonymous.
func Session(cookie string, s *identity.Sessions) Option {
	return func(l *Limiter) error {
		if cookie == "" || s == nil {
			return errors.New("httplimit: Session needs the name of a cookie and the sessions that seal it")
		}
		l.identify = append(l.identify, func(r *http.Request, q *limiter.Request) {
			if q.User != "" {
				return
			}
			// Other sites of the domain can add cookies with the same name, so the
			// first valid one is used, among the first maxCookies.
			for i, c := range r.CookiesNamed(cookie) {
				if i == maxCookies {
					return
				}
				if who, err := s.Open(c.Value); err == nil {
					middle.Name(q, who.User, who.Group)
					return
				}
			}
		})
		return nil
	}
}

// Token takes user and group from claims of the JSON Web Token in the field
// Authorization ("Bearer"). An empty groupClaim leaves the group unset. A request whose
// token is missing, forged, expired or lacks the user claim is anonymous. For a token
// in another place, use [identity.Tokens] in a function.
func Token(t *identity.Tokens, userClaim, groupClaim string) Option {
	return func(l *Limiter) error {
		if t == nil || userClaim == "" {
			return errors.New("httplimit: Token needs the tokens that verify and the claim that names the user, such as sub")
		}
		l.identify = append(l.identify, func(r *http.Request, q *limiter.Request) {
			middle.Claim(q, t, r.Header.Get("Authorization"), userClaim, groupClaim)
		})
		return nil
	}
}

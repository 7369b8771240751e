package httplimit

import (
	"errors"
	"net/http"
	"strings"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/identity"
)

// Extract reads a fact, such as who the user is, from a request; the empty
// string says that it is not there.
type Extract func(*http.Request) string

// FromHeader reads a header field. Anyone can write one, so it says who a user
// is only behind a proxy that sets it, or takes it off, in every request.
func FromHeader(name string) Extract {
	return func(r *http.Request) string { return r.Header.Get(name) }
}

// User says where to find the user, the first place that has one. Several
// options that name users are asked in their order.
func User(from ...Extract) Option {
	return identify("User", from, func(q *limiter.Request) *string { return &q.User })
}

// Group says where to find the group, as User does.
func Group(from ...Extract) Option {
	return identify("Group", from, func(q *limiter.Request) *string { return &q.Group })
}

func identify(option string, from []Extract, field func(*limiter.Request) *string) Option {
	return func(l *Limiter) error {
		for _, f := range from {
			if f == nil {
				return isNil(option)
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

// maxCookies bounds how many cookies of one name are looked at.
const maxCookies = 4

// Session takes user and group from a cookie that was sealed by s. A request
// whose cookie is missing, forged or expired is anonymous.
func Session(cookie string, s *identity.Sessions) Option {
	return func(l *Limiter) error {
		if cookie == "" || s == nil {
			return errors.New("httplimit: Session needs the name of a cookie and the sessions that seal it")
		}
		l.identify = append(l.identify, func(r *http.Request, q *limiter.Request) {
			if q.User != "" {
				return
			}
			// Another site of the domain can add cookies of the same name, so
			// the first that is good counts, of as many as are worth a hash.
			for i, c := range r.CookiesNamed(cookie) {
				if i == maxCookies {
					return
				}
				if who, err := s.Open(c.Value); err == nil {
					name(q, who.User, who.Group)
					return
				}
			}
		})
		return nil
	}
}

// Token takes user and group from claims of the JSON Web Token that the field
// Authorization carries as "Bearer"; an empty groupClaim leaves the group alone.
// A request whose token is missing, forged, expired or has no such user is
// anonymous. For a token elsewhere, use [identity.Tokens] in a function.
func Token(t *identity.Tokens, userClaim, groupClaim string) Option {
	return func(l *Limiter) error {
		if t == nil || userClaim == "" {
			return errors.New("httplimit: Token needs the tokens that verify and the claim that names the user, such as sub")
		}
		l.identify = append(l.identify, func(r *http.Request, q *limiter.Request) {
			raw := bearer(r.Header.Get("Authorization"))
			if q.User != "" || raw == "" {
				return
			}
			claims, err := t.Verify(raw)
			if user := claims.Text(userClaim); err == nil && user != "" {
				name(q, user, claims.Text(groupClaim))
			}
		})
		return nil
	}
}

// name sets the user, and the group unless it is known already.
func name(q *limiter.Request, user, group string) {
	q.User = user
	if q.Group == "" {
		q.Group = group
	}
}

// bearer returns the token of an Authorization field, empty if it has none.
func bearer(field string) string {
	const scheme = "Bearer "
	if len(field) < len(scheme) || !strings.EqualFold(field[:len(scheme)], scheme) {
		return ""
	}
	return strings.TrimSpace(field[len(scheme):])
}

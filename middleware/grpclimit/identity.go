package grpclimit

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/identity"
	"github.com/weirlimit/weir/middleware/internal/front"
)

// Extract reads a fact, such as who the user is, from a call and its context;
// the empty string says that it is not there.
type Extract func(context.Context, *Call) string

// FromMetadata reads a key of the metadata that came with the call, or, in a
// client, that is about to be sent. Anyone can write one, so in a server it says
// who a user is only behind a proxy that sets it, or takes it off, in every
// call.
func FromMetadata(key string) Extract {
	key = strings.ToLower(key)
	return func(ctx context.Context, c *Call) string { return first(ctx, c, key) }
}

// first returns the first value of a key, which is in lower case.
func first(ctx context.Context, c *Call, key string) string {
	var values []string
	if c.Client {
		md, _ := metadata.FromOutgoingContext(ctx)
		values = md[key]
	} else {
		values = metadata.ValueFromIncomingContext(ctx, key)
	}
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// FromTLS reads the certificate that the peer proved to own and that this
// server verified; there is none if the server does not verify the certificates
// of clients. If f is nil it is the first URI of the certificate (a SPIFFE
// identity), its first DNS name, or its common name.
func FromTLS(f func(*x509.Certificate) string) Extract {
	if f == nil {
		f = certificateName
	}
	return func(ctx context.Context, _ *Call) string {
		p, ok := peer.FromContext(ctx)
		if !ok {
			return ""
		}
		info, ok := p.AuthInfo.(credentials.TLSInfo)
		if !ok || len(info.State.VerifiedChains) == 0 || len(info.State.VerifiedChains[0]) == 0 {
			return ""
		}
		return f(info.State.VerifiedChains[0][0])
	}
}

func certificateName(c *x509.Certificate) string {
	switch {
	case len(c.URIs) > 0:
		return c.URIs[0].String()
	case len(c.DNSNames) > 0:
		return c.DNSNames[0]
	}
	return c.Subject.CommonName
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
			l.identify = append(l.identify, func(ctx context.Context, c *Call, q *limiter.Request) {
				if at := field(q); *at == "" {
					*at = f(ctx, c)
				}
			})
		}
		return nil
	}
}

// Token takes user and group from claims of the JSON Web Token that the key
// authorization carries as "Bearer"; an empty groupClaim leaves the group alone.
// A call whose token is missing, forged, expired or has no such user is
// anonymous. With [PerMessage] the token is verified for every message, so a
// stream outlives its token's expiry as an anonymous one.
func Token(t *identity.Tokens, userClaim, groupClaim string) Option {
	return func(l *Limiter) error {
		if t == nil || userClaim == "" {
			return errors.New("grpclimit: Token needs the tokens that verify and the claim that names the user, such as sub")
		}
		l.identify = append(l.identify, func(ctx context.Context, c *Call, q *limiter.Request) {
			if q.User != "" {
				return
			}
			raw := bearer(first(ctx, c, "authorization"))
			if raw == "" {
				return
			}
			claims, err := t.Verify(raw)
			if user := claims.Text(userClaim); err == nil && user != "" {
				q.User = user
				if q.Group == "" {
					q.Group = claims.Text(groupClaim)
				}
			}
		})
		return nil
	}
}

// bearer returns the token of an authorization, empty if it has none.
func bearer(value string) string {
	const scheme = "Bearer "
	if len(value) < len(scheme) || !strings.EqualFold(value[:len(scheme)], scheme) {
		return ""
	}
	return strings.TrimSpace(value[len(scheme):])
}

// client returns the address that sent the call, as far as is known.
func (l *Limiter) client(ctx context.Context) netip.Addr {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return netip.Addr{}
	}
	var remote netip.Addr
	switch a := p.Addr.(type) {
	case *net.TCPAddr:
		remote = a.AddrPort().Addr()
	case *net.UnixAddr:
		if l.unixSocket {
			return l.addresses.Behind(metadata.ValueFromIncomingContext(ctx, l.addrKey))
		}
		return netip.Addr{}
	default:
		remote, _ = front.ParseAddr(a.String())
	}
	if !remote.IsValid() || len(l.addresses.Trusted) == 0 {
		return remote
	}
	return l.addresses.Client(remote, metadata.ValueFromIncomingContext(ctx, l.addrKey))
}

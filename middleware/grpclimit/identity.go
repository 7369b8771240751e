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

	"github.com/weirlimit/weir/internal/address"
	"github.com/weirlimit/weir/internal/front"
	"github.com/weirlimit/weir/internal/middle"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/identity"
)

// Extract reads a value, such as the user, from a call and its context. An empty string
// means that it is absent.
type Extract func(context.Context, *Call) string

// FromMetadata reads a key of the call's metadata, incoming in a server and outgoing in
// a client. Any client can send a key, so in a server use it for the user only behind a
// proxy that sets or removes it in every call.
func FromMetadata(key string) Extract {
	key = strings.ToLower(key)
	return func(ctx context.Context, c *Call) string { return first(ctx, c, key) }
}

// FromBaggage reads a name of the baggage that OpenTelemetry carries from service to service
// in the metadata baggage (of the W3C). Any client can send it: in a server use it for the user
// only where what is in front of the server sets or removes it. Baggage of more than 8 KiB is
// not read.
func FromBaggage(name string) Extract {
	return func(ctx context.Context, c *Call) string {
		return front.Baggage(values(ctx, c, "baggage"), name)
	}
}

// first returns the first value of a key, which must be in lower case.
func first(ctx context.Context, c *Call, key string) string {
	all := values(ctx, c, key)
	if len(all) == 0 {
		return ""
	}
	return all[0]
}

// values returns all values of a key, which must be in lower case.
func values(ctx context.Context, c *Call, key string) []string {
	if c.Client {
		md, _ := metadata.FromOutgoingContext(ctx)
		return md[key]
	}
	return metadata.ValueFromIncomingContext(ctx, key)
}

// FromTLS reads the client certificate that this server verified; it returns an empty
// string if the server does not verify client certificates. If f is nil, the value is
// the first URI of the certificate (a SPIFFE identity), else its first DNS name, else
// its common name.
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
			l.identify = append(l.identify, func(ctx context.Context, c *Call, q *limiter.Request) {
				if at := field(q); *at == "" {
					*at = f(ctx, c)
				}
			})
		}
		return nil
	}
}

// Token takes user and group from claims of the JSON Web Token in the key authorization
// ("Bearer"). An empty groupClaim leaves the group unset. A call whose token is
// missing, forged, expired or lacks the user claim is anonymous. With [PerMessage] the
// token is verified for every message, so after its expiry the messages of a stream
// count as anonymous.
func Token(t *identity.Tokens, userClaim, groupClaim string) Option {
	return func(l *Limiter) error {
		if t == nil || userClaim == "" {
			return errors.New("grpclimit: Token needs the tokens that verify and the claim that names the user, such as sub")
		}
		l.identify = append(l.identify, func(ctx context.Context, c *Call, q *limiter.Request) {
			middle.Claim(q, t, first(ctx, c, "authorization"), userClaim, groupClaim)
		})
		return nil
	}
}

// client returns the address of the caller, as far as it is known.
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
		if l.core.UnixSocket {
			return l.core.Addresses.Behind(metadata.ValueFromIncomingContext(ctx, l.core.AddressIn))
		}
		return netip.Addr{}
	default:
		remote, _ = address.Parse(a.String())
	}
	if !remote.IsValid() || len(l.core.Addresses.Trusted) == 0 {
		return remote
	}
	return l.core.Addresses.Client(remote, metadata.ValueFromIncomingContext(ctx, l.core.AddressIn))
}

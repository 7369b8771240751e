package grpclimit_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/weirlimit/weir/internal/certs/certstest"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/grpclimit"
)

// A12 and E1 for gRPC: user and group from a function, metadata and a JWT
// claim.
func TestUserAndGroup(t *testing.T) {
	const rules = `
  - {name: pros, match: {group: pro}, key: [user], limits: [3/minute]}
  - {name: others, key: [user], limits: [2/minute]}
`
	at := newClock()
	for _, c := range []struct {
		name string
		opts []grpclimit.Option
		as   func(user, group string) []string
	}{
		{
			"function", []grpclimit.Option{
				grpclimit.User(func(ctx context.Context, c *grpclimit.Call) string {
					return strings.Join(metadata.ValueFromIncomingContext(ctx, "u"), "")
				}),
				grpclimit.Group(func(ctx context.Context, c *grpclimit.Call) string {
					return strings.Join(metadata.ValueFromIncomingContext(ctx, "g"), "")
				}),
			},
			func(user, group string) []string { return []string{"u", user, "g", group} },
		},
		{
			"metadata", []grpclimit.Option{
				grpclimit.User(grpclimit.FromMetadata("none"), grpclimit.FromMetadata("X-User")),
				grpclimit.Group(grpclimit.FromMetadata("x-group")),
			},
			func(user, group string) []string { return []string{"x-user", user, "x-group", group} },
		},
		{
			"baggage", []grpclimit.Option{
				grpclimit.User(grpclimit.FromBaggage("none"), grpclimit.FromBaggage("user")),
				grpclimit.Group(grpclimit.FromBaggage("plan")),
			},
			func(user, group string) []string {
				return []string{"baggage", "user=" + user + ";p=1", "baggage", "a=b, plan=" + group}
			},
		},
		{
			"claim", []grpclimit.Option{grpclimit.Token(tokens(t, at), "sub", "plan")},
			func(user, group string) []string {
				return []string{"authorization", signed(t, jwt.SigningMethodHS256, secret(1), user, group, at.at.Add(time.Hour))}
			},
		},
	} {
		client := limited(t, node(t, at, rules), c.opts...)
		for _, who := range []struct {
			user, group string
			want        int
		}{{"ada", "", 2}, {"bob", "", 2}, {"eve", "pro", 3}} {
			if got := until(t, client, same(c.as(who.user, who.group)...)); got != who.want {
				t.Errorf("%s, %s of %q: %d passed, want %d", c.name, who.user, who.group, got, who.want)
			}
		}
	}
}

// Tokens that prove nothing, and addresses that a caller writes, do not escape:
// the calls are counted by the peer's address.
func TestForgeriesDoNotEscape(t *testing.T) {
	at := newClock()
	end := at.at.Add(time.Hour)
	name := func(i int) string { return fmt.Sprintf("user%d", i) }
	token := func(m jwt.SigningMethod, key any, end time.Time) func(int) []string {
		return func(i int) []string {
			return []string{"authorization", signed(t, m, key, name(i), "admin", end)}
		}
	}
	opts := []grpclimit.Option{grpclimit.Token(tokens(t, at), "sub", "plan")}
	elsewhere := grpclimit.TrustedProxies(netip.MustParsePrefix("10.0.0.0/8"))
	spoofed := func(i int) []string {
		a := fmt.Sprintf("198.51.100.%d", i)
		return []string{"x-forwarded-for", a, "forwarded", "for=" + a, "x-real-ip", a}
	}
	for what, c := range map[string]struct {
		opts  []grpclimit.Option
		pairs func(int) []string
	}{
		"nothing":           {opts, same()},
		"a forged token":    {opts, token(jwt.SigningMethodHS256, secret(2), end)},
		"an unsigned token": {opts, token(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, end)},
		"an expired token":  {opts, token(jwt.SigningMethodHS256, secret(1), at.at)},
		"another algorithm": {opts, token(jwt.SigningMethodHS384, secret(1), end)},
		"rubbish": {opts, func(i int) []string {
			return []string{"authorization", "Bearer " + name(i)}
		}},
		"another scheme":              {opts, func(i int) []string { return []string{"authorization", "Basic " + name(i)} }},
		"addresses, no proxy":         {nil, spoofed},
		"addresses, past the proxies": {[]grpclimit.Option{elsewhere}, spoofed},
		"addresses, past, forwarded":  {[]grpclimit.Option{elsewhere, grpclimit.ForwardedKey()}, spoofed},
		"addresses, past, single":     {[]grpclimit.Option{elsewhere, grpclimit.AddressKey("X-Real-IP")}, spoofed},
		"addresses, through the proxy": {[]grpclimit.Option{grpclimit.TrustedProxies(netip.MustParsePrefix("127.0.0.0/8"))},
			func(i int) []string {
				return []string{"x-forwarded-for", name(i) + ", 203.0.113.9"}
			}},
	} {
		client := limited(t, node(t, at, `
  - {name: admins, match: {group: admin}, unlimited: true}
  - {name: all, key: [user], limits: [2/minute]}
`), c.opts...)
		if got := until(t, client, c.pairs); got != 2 {
			t.Errorf("%s: %d calls passed, want 2", what, got)
		}
	}
	for what, o := range map[string]grpclimit.Option{
		"x-forwarded-for": grpclimit.IPv6Bits(64), "forwarded": grpclimit.ForwardedKey(),
		"x-real-ip": grpclimit.AddressKey("X-Real-IP"),
	} {
		client := limited(t, node(t, at, `  - {name: all, key: [ip], limits: [2/minute]}`),
			grpclimit.TrustedProxies(netip.MustParsePrefix("127.0.0.0/8")), o)
		if got := until(t, client, spoofed); got != 10 {
			t.Errorf("premise: %s from a trusted proxy passed %d times", what, got)
		}
	}
}

// addr is an address of a network that is not TCP's.
type addr string

func (addr) Network() string  { return "other" }
func (a addr) String() string { return string(a) }

// ipOf returns the address that a call is counted by.
func ipOf(t *testing.T, from net.Addr, md metadata.MD, opts ...grpclimit.Option) string {
	t.Helper()
	var ip string
	l := limit(t, deciderFunc(func(_ context.Context, r *limiter.Request, d *limiter.Decision) error {
		ip = r.IP
		d.Clear()
		return nil
	}), opts...)
	ctx := metadata.NewIncomingContext(t.Context(), md)
	if from != nil {
		ctx = peer.NewContext(ctx, &peer.Peer{Addr: from})
	}
	_, err := l.UnaryServer()(ctx, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) {
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ip
}

func TestPeers(t *testing.T) {
	said := metadata.Pairs("x-forwarded-for", "1.2.3.4", "x-forwarded-for", "198.51.100.1")
	proxies := grpclimit.TrustedProxies(netip.MustParsePrefix("10.0.0.0/8"))
	tcp := func(a string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(a)) }
	for _, c := range []struct {
		name string
		from net.Addr
		opts []grpclimit.Option
		want string
	}{
		{"TCP", tcp("203.0.113.9:80"), nil, "203.0.113.9"},
		{"IPv6", tcp("[2001:db8::7]:80"), nil, "2001:db8::7"},
		{"IPv6, all bits", tcp("[2001:db8::7%eth0]:80"), []grpclimit.Option{grpclimit.IPv6Bits(128)}, "2001:db8::7/128"},
		{"IPv4 inside IPv6", tcp("[::ffff:203.0.113.9]:80"), nil, "203.0.113.9"},
		{"a proxy", tcp("10.0.0.1:80"), []grpclimit.Option{proxies}, "198.51.100.1"},
		{"a proxy, inside IPv6", tcp("[::ffff:10.0.0.1]:80"), []grpclimit.Option{proxies}, "198.51.100.1"},
		{"another network", addr("203.0.113.9:80"), nil, "203.0.113.9"},
		{"another network, proxy", addr("10.0.0.1"), []grpclimit.Option{proxies}, "198.51.100.1"},
		{"a network without addresses", addr("bufconn"), []grpclimit.Option{proxies}, ""},
		{"a Unix socket", &net.UnixAddr{Name: "@"}, []grpclimit.Option{proxies}, ""},
		{"a trusted Unix socket", &net.UnixAddr{Name: "@"}, []grpclimit.Option{grpclimit.TrustUnixSockets()}, "198.51.100.1"},
		{"nobody", nil, []grpclimit.Option{grpclimit.TrustUnixSockets()}, ""},
	} {
		if got := ipOf(t, c.from, said, c.opts...); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// A TLS identity is believed only where the server verified it.
func TestFromTLS(t *testing.T) {
	ca, stranger := certstest.New(t, "ca"), certstest.New(t, "ca") // of one name, so that a client shows what is asked for
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.PEM)
	issue := func(by *certstest.Authority, l certstest.Leaf) []tls.Certificate {
		pair, err := tls.X509KeyPair(by.Issue(t, l))
		if err != nil {
			t.Fatal(err)
		}
		return []tls.Certificate{pair}
	}
	server := issue(ca, certstest.Leaf{Hosts: []string{"127.0.0.1"}})
	const spiffe = "spiffe://weir.example/billing"
	all := certstest.Leaf{Name: "cn", Hosts: []string{"dns.example"}, URI: spiffe}
	for _, c := range []struct {
		name string
		auth tls.ClientAuthType
		by   []tls.Certificate
		f    func(*x509.Certificate) string
		want string
	}{
		{"URI", tls.RequireAndVerifyClientCert, issue(ca, all), nil, spiffe},
		{"DNS name", tls.RequireAndVerifyClientCert, issue(ca, certstest.Leaf{Name: "cn", Hosts: all.Hosts}), nil,
			"dns.example"},
		{"common name", tls.VerifyClientCertIfGiven, issue(ca, certstest.Leaf{Name: "cn"}), nil, "cn"},
		{"function", tls.VerifyClientCertIfGiven, issue(ca, all), func(c *x509.Certificate) string {
			return "my " + c.Subject.CommonName
		}, "my cn"},
		{"no certificate", tls.VerifyClientCertIfGiven, nil, nil, ""},
		{"not verified", tls.RequireAnyClientCert, issue(stranger, all), nil, ""},
	} {
		var user string
		l := limit(t, deciderFunc(func(_ context.Context, r *limiter.Request, d *limiter.Decision) error {
			user = r.User
			d.Clear()
			return nil
		}), grpclimit.User(grpclimit.FromTLS(c.f)))
		api := serve(t, new(service), credentials.NewTLS(&tls.Config{RootCAs: pool, Certificates: c.by,
			MinVersion: tls.VersionTLS13}), nil,
			grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: server, ClientAuth: c.auth,
				ClientCAs: pool, MinVersion: tls.VersionTLS13})),
			grpc.UnaryInterceptor(l.UnaryServer()))
		if _, err := api.UnaryCall(t.Context(), &testpb.SimpleRequest{}); err != nil || user != c.want {
			t.Errorf("%s: got %q, want %q, %v", c.name, user, c.want, err)
		}
	}
	if got := grpclimit.FromTLS(nil)(t.Context(), &grpclimit.Call{}); got != "" {
		t.Errorf("no peer: got %q", got)
	}
}

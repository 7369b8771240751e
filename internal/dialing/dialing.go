package dialing

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/internal/certs"
)

// Config names the files.
type Config struct {
	// TLS connects with TLS. It is implied by CAFile and CertFile.
	TLS bool
	// CAFile has the authorities of nodes; default those of the system. CertFile and
	// KeyFile are the caller's own certificate; default none. All are PEM.
	CAFile, CertFile, KeyFile string
	// ServerName is the name that a node's certificate must have; default the host of the
	// address that is asked.
	ServerName string
	// TokenFile has a token, which goes with each call; default none.
	TokenFile string
}

// Secure reports whether connections have TLS.
func (c *Config) Secure() bool { return c.TLS || c.CAFile != "" || c.CertFile != "" || c.KeyFile != "" }

// Credentials are files that are read. They are safe for concurrent use. The zero value
// shows nothing, without TLS.
type Credentials struct {
	config Config
	store  *certs.Store // nil: no TLS
	token  *tokenFile   // nil: none
}

// Open reads the files.
func Open(c Config) (*Credentials, error) {
	out := &Credentials{config: c}
	var err error
	switch {
	case c.Secure():
		out.store, err = certs.Open(certs.Config{
			What: "client", CertFile: c.CertFile, KeyFile: c.KeyFile, CAFile: c.CAFile, System: true,
		})
		if err != nil {
			return nil, err
		}
	case c.ServerName != "":
		return nil, fmt.Errorf("the server name %q is for TLS: give the authorities of nodes too", c.ServerName)
	}
	if c.TokenFile != "" {
		if out.token, err = openToken(c.TokenFile); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Secure reports whether connections have TLS.
func (c *Credentials) Secure() bool { return c.store != nil }

// Config returns the configuration.
func (c *Credentials) Config() Config { return c.config }

// Poll reads the files of certificates again, and reports whether they have changed and are
// valid. Connections that exist keep what they were made with. The token's file is read
// when it is needed.
func (c *Credentials) Poll() bool {
	if c.store == nil {
		return false
	}
	changed, _ := c.store.Poll() // Problem has the error
	return changed
}

// errPlainToken is why a token is not sent.
var errPlainToken = errors.New("a token is not sent to another machine without TLS, where anyone on the way could " +
	"read it: give the authorities of nodes")

// allowed returns why what is shown may not be sent to an address, nil if it may.
func (c *Credentials) allowed(addr string) error {
	if c.token != nil && c.store == nil && !onThisMachine(addr) {
		return errPlainToken
	}
	return nil
}

func onThisMachine(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Dial returns the options of a gRPC connection to HOST:PORT.
func (c *Credentials) Dial(addr string) ([]grpc.DialOption, error) {
	if err := c.allowed(addr); err != nil {
		return nil, err
	}
	var out []grpc.DialOption
	if c.store == nil {
		out = append(out, grpc.WithTransportCredentials(insecure.NewCredentials()))
	} else {
		out = append(out, grpc.WithTransportCredentials(&clientTLS{credentials.NewTLS(c.client(addr)), c.store}))
	}
	if c.token != nil {
		out = append(out, grpc.WithPerRPCCredentials(perCall{c.token, c.store != nil}))
	}
	return out, nil
}

func (c *Credentials) client(addr string) *tls.Config {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	return c.store.Client(cmp.Or(c.config.ServerName, host), nil)
}

// clientTLS is TLS whose errors say when the files have changed for the worse, and why a node ended the connection.
type clientTLS struct {
	credentials.TransportCredentials
	store *certs.Store
}

func (c *clientTLS) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn,
	credentials.AuthInfo, error) {
	out, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, conn)
	if err == nil {
		out = &alerted{out}
	}
	return out, info, explained(c.store, err)
}

// alerted is a connection whose failed writes have the alert of the other side as their error: in TLS 1.3 a node
// looks at the client's certificate after the handshake has ended for the client, which may write before it reads.
type alerted struct{ net.Conn }

// alertWait bounds the wait for an alert after a failed write: what a node had to say is there already.
const alertWait = 100 * time.Millisecond

func (c *alerted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err == nil || c.SetReadDeadline(time.Now().Add(alertWait)) != nil {
		return n, err
	}
	_, failed := c.Read(make([]byte, 1)) // nothing else is answered here any more
	if remote := (*net.OpError)(nil); errors.As(failed, &remote) && remote.Op == "remote error" {
		err = failed
	}
	return n, err
}

func (c *clientTLS) Clone() credentials.TransportCredentials {
	return &clientTLS{c.TransportCredentials.Clone(), c.store}
}

// explained adds to a failed handshake that the files cannot be used.
func explained(store *certs.Store, err error) error {
	if problem := store.Problem(); err != nil && problem != "" {
		return fmt.Errorf("%w (the files have changed and those read before are used: %s)", err, problem)
	}
	return err
}

// HTTP returns a transport for requests over HTTP. With TLS it must be given https
// addresses; a token is sent with each request.
func (c *Credentials) HTTP() http.RoundTripper {
	t := &http.Transport{}
	if c.store != nil {
		t.DialTLSContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			over := tls.Client(conn, c.client(addr))
			if err := over.HandshakeContext(ctx); err != nil {
				return nil, errors.Join(explained(c.store, err), conn.Close())
			}
			return over, nil
		}
	}
	if c.token == nil {
		return t
	}
	return &tokenTransport{c, t}
}

// tokenTransport sends a token with each request.
type tokenTransport struct {
	of *Credentials
	*http.Transport
}

func (t *tokenTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := t.of.allowed(r.URL.Host); err != nil || r.URL.Scheme != "https" && !onThisMachine(r.URL.Host) {
		return nil, errPlainToken
	}
	token, err := t.of.token.read()
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return t.Transport.RoundTrip(r)
}

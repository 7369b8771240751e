package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"

	"google.golang.org/grpc/credentials"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/records"
)

// securedConn is a connection of gRPC that may have TLS. Its frames are read above it, and
// it is counted below. Close and deadlines go to the connection itself: they come from
// goroutines that must not wait for the client, as an alert of TLS would.
type securedConn struct {
	net.Conn
	layer atomic.Pointer[net.Conn] // through which bytes pass; nil before the handshake
	state *tls.ConnectionState     // set by the handshake, before gRPC serves calls; nil: no TLS
	known frontend.Known           // who state proves
}

// Read implements [net.Conn].
func (c *securedConn) Read(p []byte) (int, error) {
	if l := c.layer.Load(); l != nil {
		return (*l).Read(p)
	}
	return 0, errNoHandshake
}

// Write implements [net.Conn].
func (c *securedConn) Write(p []byte) (int, error) {
	if l := c.layer.Load(); l != nil {
		return (*l).Write(p)
	}
	return 0, errNoHandshake
}

var errNoHandshake = errors.New("the TLS handshake has not ended")

// handshake makes the connection usable. It returns the state of TLS, nil if the client
// uses none and need not.
func (c *securedConn) handshake(config *tls.Config, optional bool, join *records.Joiner) (*tls.ConnectionState, error) {
	under := c.Conn
	if optional {
		begun, isTLS, err := begin(under)
		if err != nil {
			return nil, err
		}
		if under = begun; !isTLS {
			c.layer.Store(&under)
			return nil, nil
		}
	}
	t := join.Server(under, config)
	if err := t.Handshake(); err != nil { //nolint:noctx // gRPC has set the connection's deadline
		return nil, err
	}
	layer := records.Join(t)
	c.layer.Store(&layer)
	state := t.ConnectionState()
	c.state = &state
	return c.state, nil
}

// serverTLS is what gRPC calls, in a goroutine of each connection, to secure it. What the
// client has shown is then in the AuthInfo of its calls' peer, a [credentials.TLSInfo].
type serverTLS struct {
	config   *tls.Config
	optional bool
	log      *HandshakeLog
	join     *records.Joiner
}

// ServerTLS returns credentials for connections of a [Watcher].
func ServerTLS(by *TLS, log *HandshakeLog) credentials.TransportCredentials {
	return &serverTLS{withProtocols(by.Config, "h2"), by.Optional, log, new(records.Joiner)}
}

// ServerHandshake implements [credentials.TransportCredentials].
func (s *serverTLS) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	w, ok := c.(*watchedConn)
	if !ok || w.secured == nil {
		return nil, nil, errors.New("the connection is not one of this server's listener")
	}
	state, err := w.secured.handshake(s.config, s.optional, s.join)
	switch {
	case err != nil:
		s.log.Refused(c.RemoteAddr().String(), err.Error())
		return nil, nil, err
	case state == nil:
		return c, nil, nil
	}
	return c, credentials.TLSInfo{
		State: *state, CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}, nil
}

// ClientHandshake implements [credentials.TransportCredentials].
func (s *serverTLS) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are a server's")
}

// Info implements [credentials.TransportCredentials].
func (s *serverTLS) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements [credentials.TransportCredentials].
func (s *serverTLS) Clone() credentials.TransportCredentials { c := *s; return &c }

// OverrideServerName implements [credentials.TransportCredentials].
func (s *serverTLS) OverrideServerName(string) error { return nil }

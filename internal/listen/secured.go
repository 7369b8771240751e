package listen

import (
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"

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

func (c *securedConn) Read(p []byte) (int, error) {
	if l := c.layer.Load(); l != nil {
		return (*l).Read(p)
	}
	return 0, errNoHandshake
}

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
	c.state = new(t.ConnectionState())
	return c.state, nil
}

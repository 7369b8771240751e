package listen

import (
	"crypto/tls"
	"io"
	"net"
)

// firstOfTLS is the first byte of a connection with TLS. No request without it begins so.
const firstOfTLS = 0x16

// begunConn is a connection whose first byte has been read.
type begunConn struct {
	net.Conn
	first []byte // what is to be read before the rest; used by one reader
}

func (c *begunConn) Read(p []byte) (int, error) {
	if len(c.first) > 0 && len(p) > 0 {
		n := copy(p, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// begin reads the first byte of a connection, and reports whether TLS follows.
func begin(c net.Conn) (*begunConn, bool, error) {
	first := make([]byte, 1)
	if _, err := io.ReadFull(c, first); err != nil {
		return nil, false, err
	}
	return &begunConn{c, first}, first[0] == firstOfTLS, nil
}

// accepted returns the connection that a listener accepted, of one that may have layers.
func accepted(c net.Conn) net.Conn {
	for {
		switch layer := c.(type) {
		case *tls.Conn:
			c = layer.NetConn()
		case *begunConn:
			c = layer.Conn
		default:
			return c
		}
	}
}

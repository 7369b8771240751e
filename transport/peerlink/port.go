package peerlink

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// preface is what every connection of HTTP/2, and so of gRPC, begins with.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// door looks at connections before gRPC does, as its credentials: it turns away
// those that speak something else, in a way that they understand, and those
// above the bound.
type door struct {
	credentials.TransportCredentials
	port *port
}

// port is what the door must know.
type port struct {
	most    int64
	stall   time.Duration
	open    atomic.Int64
	refused func(from net.Addr, reason string)
	notice  string // what port this is
}

func newDoor(p *port) door { return door{insecure.NewCredentials(), p} }

// Clone implements credentials.TransportCredentials.
func (d door) Clone() credentials.TransportCredentials {
	return door{d.TransportCredentials.Clone(), d.port}
}

// ServerHandshake implements credentials.TransportCredentials. The server has
// set a deadline for it.
func (d door) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	p := d.port
	if p.open.Add(1) > p.most {
		p.open.Add(-1)
		return nil, nil, p.turnAway(raw, fmt.Sprintf("there are %d connections already, which is the bound", p.most))
	}
	c := &conn{Conn: raw, stall: p.stall, closed: func() { p.open.Add(-1) }}
	begin, err := readPreface(raw)
	if err != nil {
		_ = c.Close() // it is refused, whatever comes of closing it
		return nil, nil, err
	}
	if string(begin) != preface {
		reason := "it does not speak gRPC"
		if isHTTP(begin) {
			reason = "it speaks HTTP/1"
			p.answerHTTP(raw)
		}
		err := p.turnAway(raw, reason)
		_ = c.Close()
		return nil, nil, err
	}
	c.begin = bytes.NewReader(begin)
	return d.TransportCredentials.ServerHandshake(c)
}

// answerHTTP tells a client of HTTP/1 where it is.
func (p *port) answerHTTP(raw net.Conn) {
	body := p.notice + "\n"
	answer := fmt.Sprintf("HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
	_, _ = raw.Write([]byte(answer)) // whoever does not want it does without
}

func (p *port) turnAway(raw net.Conn, reason string) error {
	p.refused(raw.RemoteAddr(), reason)
	return errors.New(reason)
}

// readPreface reads as far as the bytes are those of the preface.
func readPreface(c net.Conn) ([]byte, error) {
	b := make([]byte, len(preface))
	for n := 0; n < len(b); {
		more, err := c.Read(b[n:])
		n += more
		if !strings.HasPrefix(preface, string(b[:n])) {
			return b[:n], nil
		}
		if err != nil {
			return nil, err
		}
	}
	return b, nil
}

// isHTTP reports whether something begins as a request of HTTP/1 does.
func isHTTP(b []byte) bool {
	for _, method := range []string{"GET ", "POST ", "PUT ", "HEAD ", "OPTIONS ", "DELETE ", "PATCH ", "CONNECT "} {
		if n := min(len(b), len(method)); string(b[:n]) == method[:n] {
			return true
		}
	}
	return false
}

// conn is a connection that nobody can hold up: a write that the other side does
// not take ends it.
type conn struct {
	net.Conn
	begin  *bytes.Reader // was read by the door; nil if nothing was
	stall  time.Duration
	once   sync.Once
	closed func()
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	if c.begin != nil {
		if c.begin.Len() > 0 {
			return c.begin.Read(b)
		}
		c.begin = nil
	}
	return c.Conn.Read(b)
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(c.closed)
	return c.Conn.Close()
}

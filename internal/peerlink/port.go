package peerlink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	peerinfo "google.golang.org/grpc/peer"
)

// preface is the beginning of every HTTP/2 connection, and so of gRPC.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// portCredentials are gRPC's transport credentials, and inspect connections before gRPC
// does. They refuse connections that speak another protocol, in a way that these
// understand, and register the others with the port.
type portCredentials struct {
	credentials.TransportCredentials
	port *port
}

func newPortCredentials(p *port) portCredentials {
	return portCredentials{insecure.NewCredentials(), p}
}

func (d portCredentials) Clone() credentials.TransportCredentials {
	return portCredentials{d.TransportCredentials.Clone(), d.port}
}

// ServerHandshake implements credentials.TransportCredentials. The server has set a
// deadline for it.
func (d portCredentials) ServerHandshake(raw net.Conn) (conn net.Conn, info credentials.AuthInfo, err error) {
	p := d.port
	defer p.links.catch(func(defect error) {
		_ = raw.Close() // it is refused, whatever comes of closing it
		conn, info, err = nil, nil, defect
	})
	c := newConn(raw, p.stall)
	p.enter(c)
	begin, err := readPreface(c)
	if err != nil {
		_ = c.Close() // it is refused, whatever comes of closing it
		return nil, nil, err
	}
	if begin, err = p.secure(c, begin); err != nil {
		p.links.refusedTLS.Add(1)
		p.refused(raw.RemoteAddr(), err.Error())
		_ = c.Close()
		return nil, nil, err
	}
	if string(begin) != preface {
		reason := "it does not speak gRPC"
		if isHTTP(begin) {
			reason = "it speaks HTTP/1"
			p.answerHTTP(c)
		}
		err := p.turnAway(raw, reason)
		_ = c.Close()
		return nil, nil, err
	}
	c.begin = bytes.NewReader(begin)
	return c, arrival{c}, nil
}

// arrival is what gRPC keeps of a connection for its streams.
type arrival struct{ conn *conn }

func (arrival) AuthType() string { return "weir" }

// arrivalOf returns the connection of a stream; nil if it did not come through the port.
func arrivalOf(ctx context.Context) *conn {
	p, ok := peerinfo.FromContext(ctx)
	if !ok {
		return nil
	}
	a, _ := p.AuthInfo.(arrival)
	return a.conn
}

// answerHTTP answers an HTTP/1 client with the notice.
func (p *port) answerHTTP(raw net.Conn) {
	body := p.notice + "\n"
	answer := fmt.Sprintf("HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
	_, _ = raw.Write([]byte(answer)) // the answer is best effort
}

func (p *port) turnAway(raw net.Conn, reason string) error {
	p.refused(raw.RemoteAddr(), reason)
	return errors.New(reason)
}

// readPreface reads as long as the bytes are those of the preface.
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

// isHTTP reports whether b begins like an HTTP/1 request.
func isHTTP(b []byte) bool {
	for _, method := range []string{"GET ", "POST ", "PUT ", "HEAD ", "OPTIONS ", "DELETE ", "PATCH ", "CONNECT "} {
		if n := min(len(b), len(method)); string(b[:n]) == method[:n] {
			return true
		}
	}
	return false
}

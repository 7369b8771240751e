package peerlink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/peer"
	peerv1 "github.com/weirlimit/weir/proto/weir/peer/v1"
)

const (
	// tlsBytes bounds what is read of a connection during the handshake of TLS. A chain of
	// three RSA certificates takes a fifth of it.
	tlsBytes = 32 << 10
	// tlsHandshake begins a connection that speaks TLS.
	tlsHandshake = 0x16
)

var errPlain = errors.New("it does not speak TLS, which this node requires: give it a certificate (--peer-cert), or " +
	"this node --peer-tls optional until all have one")

// alpn returns what the links carry inside TLS.
func alpn() []string { return []string{"h2"} }

// shaking is a connection during its TLS handshake, in which little is read. It is used by
// one goroutine until the handshake is over.
type shaking struct {
	net.Conn
	begin []byte // bytes that were read already
	got   int    // bytes read
	over  bool   // the handshake is over
}

func (s *shaking) Read(b []byte) (n int, err error) {
	if s.over && len(s.begin) == 0 {
		return s.Conn.Read(b)
	}
	if len(s.begin) > 0 {
		n = copy(b, s.begin)
		s.begin = s.begin[n:]
	} else {
		if s.got >= tlsBytes {
			return 0, fmt.Errorf("it sent more than %d bytes in the handshake of TLS", tlsBytes)
		}
		n, err = s.Conn.Read(b[:min(len(b), tlsBytes-s.got)])
	}
	s.got += n
	return n, err
}

// secure makes the handshake of TLS with a connection that begins with these bytes, if
// there are certificates, and returns the first bytes of what it carries. An error says why
// it is refused.
func (p *port) secure(c *conn, begin []byte) ([]byte, error) {
	store := p.links.config.Certificates
	switch {
	case store == nil:
		return begin, nil
	case len(begin) == 0 || begin[0] != tlsHandshake:
		if p.links.config.TLSOptional {
			return begin, nil
		}
		if isHTTP(begin) {
			p.answerHTTP(c)
		}
		return nil, errPlain
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.within)
	defer cancel()
	raw := &shaking{Conn: c.Conn, begin: begin}
	t := tls.Server(raw, store.Server(tls.RequireAndVerifyClientCert, alpn(), nil))
	if err := t.HandshakeContext(ctx); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("it broke off in the handshake of TLS without a reason: it may have waited too long")
		}
		return nil, fmt.Errorf("the handshake of TLS failed: %w", err)
	}
	raw.over, c.secure, c.left = true, t, earlyBytes
	return readPreface(c)
}

// secureTo makes the handshake of TLS with a member that was dialled. silent means that
// the other side has sent nothing at all.
func (l *Links) secureTo(ctx context.Context, c *conn, to peer.Member) (silent bool, err error) {
	config := l.config.Certificates.Client("", func(leaf *x509.Certificate) error {
		return l.config.Certificates.CheckMember(leaf, l.config.ClusterName, to.Name)
	})
	config.NextProtos = alpn()
	raw := &shaking{Conn: c.Conn}
	t := tls.Client(raw, config)
	if err := t.HandshakeContext(ctx); err != nil {
		if raw.got == 0 {
			return true, fmt.Errorf("it does not speak TLS, or has no room: %w; give it a certificate (--peer-cert), or this "+
				"node --peer-tls optional until all have one", err)
		}
		return false, fmt.Errorf("the handshake of TLS failed: %w", err)
	}
	raw.over, c.secure = true, t
	return false, nil
}

// identify returns nil if the certificate of a connection is for the node that the hello
// names, or there is no TLS.
func (l *Links) identify(c *conn, theirs *peerv1.Hello) error {
	if c.secure == nil {
		if l.config.Certificates != nil && !l.config.TLSOptional {
			return status.Error(codes.Internal, errPlain.Error()) // the port has refused it before
		}
		return nil
	}
	shown := c.secure.ConnectionState().PeerCertificates
	if len(shown) == 0 {
		return status.Error(codes.Unauthenticated, "it has shown no certificate")
	}
	if err := l.config.Certificates.CheckMember(shown[0], l.config.ClusterName, theirs.GetName()); err != nil {
		return l.handshake.refuse("%v", err)
	}
	return nil
}

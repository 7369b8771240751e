package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"

	"github.com/weirlimit/weir/internal/records"
)

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

func (s *serverTLS) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are a server's")
}

func (s *serverTLS) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (s *serverTLS) Clone() credentials.TransportCredentials { c := *s; return &c }

func (s *serverTLS) OverrideServerName(string) error { return nil }

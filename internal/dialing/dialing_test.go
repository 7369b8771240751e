package dialing

import (
	"crypto/tls"
	"net"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc/credentials"

	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/internal/certs/certstest"
)

// A client without the certificate that a node wants learns so, also if it writes before it reads.
func TestWriteSaysWhyTheNodeEnded(t *testing.T) {
	ca := certstest.New(t, "authority")
	p := ca.Write(t, t.TempDir(), certstest.Leaf{Name: "node", Hosts: []string{"127.0.0.1"}})
	store, err := certs.Open(certs.Config{What: "server", CertFile: p.Cert, KeyFile: p.Key, CAFile: p.CA})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_ = tls.Server(c, store.Server(tls.RequireAndVerifyClientCert, nil, nil)).HandshakeContext(t.Context())
		_ = c.Close()
	}()
	cred, err := Open(Config{CAFile: p.CA})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	over := &clientTLS{credentials.NewTLS(cred.client(l.Addr().String())), cred.store}
	c, _, err := over.ClientHandshake(t.Context(), "127.0.0.1", plain)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for err == nil { // the first writes go to a connection that its other side has closed
		runtime.Gosched()
		_, err = c.Write([]byte("a"))
	}
	if !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("got %v", err)
	}
}

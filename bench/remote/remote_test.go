package remote

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/transport"
)

// serve starts a node and returns its gRPC address.
func serve(t *testing.T, rules string) string {
	t.Helper()
	n, err := weir.Open(t.Context(), weir.Config{Rules: []byte(rules)})
	if err != nil {
		t.Fatal(err)
	}
	s, err := transport.NewServer(transport.Options{Decider: n})
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l, nil) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		<-served
		n.Close()
	})
	return l.Addr().String()
}

// Each contender allows what it should, which Measure looks at, and a node that
// allows too much or too little is no figure.
func TestContenders(t *testing.T) {
	redis := redistest.Start(t)
	at := Config{Redis: redis.Socket, Server: serve(t, Rules())}
	for _, c := range Contenders() {
		s, err := Measure(t.Context(), c, at, 30*time.Millisecond)
		if err != nil || s.Checks == 0 {
			t.Errorf("%s: %d checks, %v", c.Name, s.Checks, err)
		}
	}
	for _, wrong := range []string{"limit: 1000,", "limit: 2000,"} {
		at.Server = serve(t, strings.ReplaceAll(Rules(), wrong, "limit: 900,"))
		for _, c := range Contenders()[3:] {
			if _, err := Measure(t.Context(), c, at, 30*time.Millisecond); err == nil {
				t.Errorf("%s with another limit passes", c.Name)
			}
		}
	}
}

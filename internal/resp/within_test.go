package resp

import (
	"bufio"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/frontend"
)

// inVirtualTime serves one connection over a pipe in a bubble of virtual time, with the given time
// for a command.
func inVirtualTime(t *testing.T, within time.Duration, ask func(*peer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		node, err := weir.Open(t.Context(), weir.Config{Rules: []byte(testRules)})
		if err != nil {
			t.Fatal(err)
		}
		s, err := NewServer(Options{Config: frontend.Config{Decider: node, AllowRequestLimits: true}, within: within})
		if err != nil {
			t.Fatal(err)
		}
		client, server := net.Pipe()
		served := make(chan struct{})
		go func() {
			defer close(served)
			(&conn{of: s, Conn: server}).serve(t.Context())
			_ = server.Close()
		}()
		ask(&peer{t, client, bufio.NewReader(client)})
		_ = client.Close()
		<-served
		if err := node.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A command that waits for its rest has its time from when it began, however slowly its
// bytes come.
func TestTrickle(t *testing.T) {
	const within, apart = 300 * time.Millisecond, 20 * time.Millisecond
	inVirtualTime(t, within, func(c *peer) {
		began := time.Now()
		for {
			if _, err := c.Write([]byte("a")); err != nil {
				break
			}
			time.Sleep(apart)
		}
		if took := time.Since(began); took < within || took > within+within/8+apart {
			t.Errorf("a command that trickles had %v, want %v and at most an eighth more", took, within)
		}
	})
}

// A command whose first piece comes after a long pause has its time from then on.
func TestPiecesAfterIdling(t *testing.T) {
	const within = 300 * time.Millisecond
	inVirtualTime(t, within, func(c *peer) {
		for range 2 {
			command := encode("WEIR.CHECK /other USER ada")
			c.send(command[:10])
			time.Sleep(within - 1)
			c.send(command[10:])
			if got := c.read(); !strings.HasPrefix(got, "[allowed 1") {
				t.Fatal(got)
			}
			time.Sleep(2 * within)
		}
	})
}

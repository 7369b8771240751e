// Package redistest starts real redis-server processes for tests.
package redistest

import (
	"bufio"
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// startWithin is how long a server may take until it accepts connections.
const startWithin = 20 * time.Second

// Server is a redis-server that ends with its test.
type Server struct {
	// Socket is the unix socket that it takes connections at.
	Socket string

	cmd  *exec.Cmd
	once sync.Once
}

// Stop kills the server and waits for its end. It may be called more than once.
func (s *Server) Stop() {
	s.once.Do(func() {
		_ = s.cmd.Process.Kill() // it may have ended by itself
		_ = s.cmd.Wait()         // killed, so it is no success
	})
}

// Start starts a redis-server that keeps nothing on disk, with the given settings,
// such as "--requirepass", "secret", and returns when it takes connections. The
// test fails where there is no redis-server, or it does not start.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		tb.Fatalf("this test needs redis-server: run scripts/deps.sh (%v)", err)
	}
	socket := filepath.Join(tb.TempDir(), "redis")
	cmd := exec.CommandContext(context.Background(), path, append([]string{
		"--port", "0", "--unixsocket", socket, "--save", "", "--dir", filepath.Dir(socket),
	}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	s := &Server{Socket: socket, cmd: cmd}
	tb.Cleanup(s.Stop)
	ready := make(chan string, 1)
	go func() {
		var said strings.Builder
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if strings.Contains(lines.Text(), "ready to accept connections") {
				ready <- ""
				_, _ = io.Copy(io.Discard, out) // else it would wait for a reader
				return
			}
			said.WriteString(lines.Text() + "\n")
		}
		ready <- said.String()
	}()
	select {
	case said := <-ready:
		if said != "" {
			tb.Fatalf("redis-server ended:\n%s", said)
		}
	case <-time.After(startWithin):
		tb.Fatalf("redis-server took no connections within %v", startWithin)
	}
	return s
}

package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// server is a real redis-server, started for a test on a free port of loopback
// and ended with it.
type server struct {
	tb   testing.TB
	dir  string
	port int
	args []string
	cmd  *exec.Cmd
}

// startServer starts one; args are settings such as "--maxmemory", "2mb".
func startServer(tb testing.TB, args ...string) *server {
	tb.Helper()
	return startServerAt(tb, freePort(tb), args...)
}

func startServerAt(tb testing.TB, port int, args ...string) *server {
	tb.Helper()
	s := &server{tb: tb, dir: tb.TempDir(), port: port, args: args}
	s.start()
	tb.Cleanup(s.stop)
	return s
}

// freePort returns a port that was free a moment ago. The port that Redis Cluster
// derives from it for its bus is valid, too.
func freePort(tb testing.TB) int {
	tb.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		if err := l.Close(); err != nil {
			tb.Fatal(err)
		}
		if port < 55000 {
			return port
		}
	}
	tb.Fatal("there is no free port below 55000")
	return 0
}

func (s *server) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// start starts the process, which must not be running, and waits until it answers.
func (s *server) start() {
	s.tb.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		s.tb.Fatalf("these tests need redis-server: run scripts/deps.sh (%v)", err)
	}
	args := s.args
	if len(args) == 0 || strings.HasPrefix(args[0], "--") { // else it is a file, which says all
		args = append([]string{
			"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
			"--dir", s.dir, "--logfile", filepath.Join(s.dir, "redis.log"),
		}, args...)
	}
	s.cmd = exec.Command(path, args...)
	if err := s.cmd.Start(); err != nil {
		s.tb.Fatal(err)
	}
	await(s.tb, "redis-server answers", func() bool {
		conn, err := net.Dial("tcp", s.addr())
		if err != nil {
			return false
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		if _, err := conn.Write([]byte("PING\r\n")); err != nil {
			return false
		}
		var b [5]byte
		n, err := conn.Read(b[:])
		return err == nil && n > 0 && (b[0] == '+' || b[0] == '-')
	})
}

// stop kills the process, if it runs, and waits for its end.
func (s *server) stop() {
	if s.cmd == nil {
		return
	}
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.tb.Error(err)
	}
	_ = s.cmd.Wait() // killed, so it is no success
	s.cmd = nil
}

// client returns a plain client of the server, for looking behind the store.
func (s *server) client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.addr(), Protocol: 2, DisableIdentity: true})
	s.tb.Cleanup(func() { _ = c.Close() })
	return c
}

// do runs a command behind the store's back.
func (s *server) do(args ...any) any {
	s.tb.Helper()
	v, err := s.client().Do(context.Background(), args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		s.tb.Fatalf("%v: %v", args, err)
	}
	return v
}

// await waits until a condition of another process holds, or fails.
func await(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	if err := awaitFor(30*time.Second, holds); err != nil {
		tb.Fatalf("%s: %v", what, err)
	}
}

func awaitFor(most time.Duration, holds func() bool) error {
	timeout, tick := time.NewTimer(most), time.NewTicker(2*time.Millisecond)
	defer timeout.Stop()
	defer tick.Stop()
	for {
		if holds() {
			return nil
		}
		select {
		case <-timeout.C:
			return fmt.Errorf("not within %v", most)
		case <-tick.C:
		}
	}
}

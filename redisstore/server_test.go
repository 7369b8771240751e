package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// Ports are below the range that systems assign to outgoing connections, so that none is
// taken before its server listens. Redis Cluster's bus listens 10,000 above.
const lowestPort, highestPort, busAbove = 12000, 22000, 10000

// freePort returns a port on loopback that is this test's until its end: its UDP half,
// which Redis does not use, keeps other tests away. The port that Redis Cluster derives
// from it for its bus is free, too.
func freePort(tb testing.TB) int {
	tb.Helper()
	free := func(port int) bool {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return false
		}
		return l.Close() == nil
	}
	for range 100 {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		reserved, err := net.ListenPacket("udp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		if free(port) && free(port+busAbove) {
			tb.Cleanup(func() { _ = reserved.Close() })
			return port
		}
		_ = reserved.Close()
	}
	tb.Fatal("100 ports were tried and none is free")
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

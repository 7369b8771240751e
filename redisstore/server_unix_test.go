//go:build unix

package redisstore_test

import (
	"syscall"
	"testing"
)

// A frozen process accepts connections and answers nothing.
func TestFrozenRedis(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	c := faultConfig(srv)
	c.Timeout = faultTimeout
	outage(t, c, func() { srv.signal(syscall.SIGSTOP) }, func() { srv.signal(syscall.SIGCONT) })
}

func (s *server) signal(sig syscall.Signal) {
	s.tb.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.tb.Fatal(err)
	}
}

//go:build linux

package fleet

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The usage of a process is seen: its memory, its files, and what it logged.
func TestUsage(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, make([]byte, 123), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: &exec.Cmd{Process: &os.Process{Pid: os.Getpid()}}, log: log, done: make(chan struct{})}
	n := &Node{body: &program{}}
	if _, err := n.Usage(); err == nil {
		t.Error("a node that does not run takes something")
	}
	n.body.(*program).now.Store(p)
	before, err := n.Usage()
	if err != nil {
		t.Fatal(err)
	}
	if before.Resident < 1<<20 || before.Peak < before.Resident || before.Logged != 123 {
		t.Errorf("%+v", before)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if err := n.ForgetPeak(); err != nil {
		t.Fatal(err)
	}
	after, err := n.Usage()
	if err != nil {
		t.Fatal(err)
	}
	if after.Sockets <= before.Sockets || after.FDs <= before.FDs {
		t.Errorf("%+v, and a listener more: %+v", before, after)
	}
}

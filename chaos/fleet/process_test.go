//go:build linux

package fleet

import (
	"os/exec"
	"testing"
)

// A process that was paused does nothing any more when stop returns.
func TestStop(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if stands(cmd.Process.Pid) {
		t.Fatal("a process that runs is taken for one that stands still")
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	if !stands(cmd.Process.Pid) {
		t.Error("stop returned before the process stood still")
	}
	had := cpuTime(cmd.Process.Pid)
	for range 100 {
		if now := cpuTime(cmd.Process.Pid); now != had {
			t.Fatalf("it had %v more of a processor", now-had)
		}
	}
}

//go:build linux

package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// container is a node that is a container: it stays the same one when it is
// started again.
type container struct {
	at        *containers
	index     int
	name, id  string
	filtering sync.Mutex // one at a time tells its kernel what is cut

	mu      sync.Mutex
	running bool
	pid     int    // of its process; 0: none
	host    string // its address among the nodes, which may be another each time
}

func (b *container) do(ctx context.Context, args ...string) error {
	_, err := b.at.engine.Output(ctx, append(args, b.id)...)
	return err
}

// is notes what the container is.
func (b *container) is(running bool, pid int, host string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running, b.pid = running, pid
	if host != "" {
		b.host = host
	}
}

// process returns the container's process and address.
func (b *container) process() (pid int, host string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pid, b.host
}

func (b *container) alive() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running
}

// start starts the container. What is cut is so once it has a network, so that a
// node may hear a little in its first moments.
func (b *container) start(ctx context.Context, _ int) error {
	if err := b.do(ctx, "start"); err != nil {
		return err
	}
	out, err := b.at.engine.Output(ctx, "inspect", "--format",
		"{{.State.Pid}} {{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}", b.id)
	if err != nil {
		return err
	}
	fields := strings.Fields(out)
	if len(fields) != 2 || fields[0] == "0" {
		return fmt.Errorf("%s should run, in one network, but its process and addresses are %q", b.name, fields)
	}
	pid, err := strconv.Atoi(fields[0])
	if err != nil {
		return err
	}
	b.is(true, pid, fields[1])
	eager(pid)
	return b.at.again(ctx)
}

// ended looks whether the engine runs what it was told to run: it starts a node
// that ends by itself again, as the compose file says.
func (b *container) ended(ctx context.Context) (log string, err error) {
	pid, _ := b.process()
	if pid == 0 {
		return "", nil
	}
	out, err := b.at.engine.Output(ctx, "inspect", "--format", "{{.State.Pid}} {{.RestartCount}} {{.State.ExitCode}}",
		b.id)
	if err != nil {
		return "", err
	}
	var now, again, code int
	if _, err := fmt.Sscan(out, &now, &again, &code); err != nil {
		return "", err
	}
	if now == pid && again == 0 {
		return "", nil
	}
	text, err := b.at.engine.Run(ctx, "logs", "--tail", "20", b.id)
	return lastLines(text, 20), errors.Join(fmt.Errorf("%w (status %d, started again %d times by the engine)", ErrEnded,
		code, again), err)
}

// eager puts a container's process ahead of others, as processes in namespaces
// are, where this user may and the engine is on this machine.
func eager(pid int) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return
	}
	for _, t := range tasks {
		if id, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, -10)
		}
	}
}

// kill is by the engine, which does not start again what it was told to end.
func (b *container) kill(ctx context.Context) error {
	_, host := b.process()
	b.is(true, 0, host) // nothing is cut for who dies
	if err := b.do(ctx, "kill"); err != nil {
		return err
	}
	// The engine answers when it has sent the signal.
	if err := b.do(ctx, "wait"); err != nil {
		return err
	}
	b.is(false, 0, "")
	return nil
}

func (b *container) pause(ctx context.Context) error { return b.do(ctx, "pause") }

func (b *container) resume(ctx context.Context) error { return b.do(ctx, "unpause") }

// leave has the engine send SIGTERM, and SIGKILL after the file's
// stop_grace_period, which is an error.
func (b *container) leave(ctx context.Context) error {
	if err := b.do(ctx, "stop"); err != nil {
		return err
	}
	b.is(false, 0, "")
	out, err := b.at.engine.Output(ctx, "inspect", "--format", "{{.State.ExitCode}}", b.id)
	// A node that could not hand all over, as one that is cut off, ends with 1.
	if err == nil && strings.TrimSpace(out) == "137" {
		err = errors.New("it did not end within its stop_grace_period of SIGTERM, and was killed")
	}
	return err
}

// starve bounds the container's processor time by its cgroup: a fifth of each
// 100 ms.
func (b *container) starve(ctx context.Context, periods int) (doubt, err error) {
	const period = 100_000 // microseconds
	limit := func(ctx context.Context, quota int) error {
		return b.do(ctx, "update", "--cpu-period", strconv.Itoa(period), "--cpu-quota", strconv.Itoa(quota))
	}
	pid, _ := b.process()
	before, doubt := throttled(pid)
	if err := limit(ctx, period/5); err != nil {
		return nil, err
	}
	err = Wait(ctx, time.Duration(periods)*period*time.Microsecond)
	after, again := throttled(pid)
	if doubt == nil {
		doubt = again
	}
	if doubt == nil && after == before {
		doubt = errors.New("the kernel never let it wait for its quota")
	}
	return doubt, errors.Join(err, limit(context.WithoutCancel(ctx), -1))
}

// throttled is how often the cgroup of a process had no processor time left.
func throttled(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		of := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, path
		if len(of) < 3 || of[1] != "" && !slices.Contains(strings.Split(of[1], ","), "cpu") {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", of[1], of[2], "cpu.stat"))
		if err != nil {
			continue // of a hierarchy that has no such controller
		}
		if m := regexp.MustCompile(`(?m)^nr_throttled (\d+)$`).FindSubmatch(stat); m != nil {
			return strconv.Atoi(string(m[1]))
		}
	}
	return 0, errors.New("the kernel does not say how often its cgroup had no processor time left")
}

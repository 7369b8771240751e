package netlab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace without a name: it lives as long as this
// process, or another in it.
type Namespace struct {
	file *os.File
}

// newNamespace makes a namespace, whose loopback is up.
func newNamespace(ctx context.Context) (*Namespace, error) {
	n := new(Namespace)
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("a network namespace cannot be made, which takes root: %w", err)
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return err
		}
		n.file = f
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := n.ip(ctx, "link set lo up"); err != nil {
		return nil, errors.Join(err, n.file.Close())
	}
	return n, nil
}

// path names the namespace for programs that this process starts.
func (n *Namespace) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd()) }

// Do calls f on a thread that is in the namespace: sockets that f opens and
// processes that it starts belong to it. Goroutines that f starts do not.
func (n *Namespace) Do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("the namespace cannot be entered: %w", err)
		}
		return f()
	})
}

// Dial connects to an address, which must be numeric, from the namespace.
func (n *Namespace) Dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	err = n.Do(func() error {
		var e error
		c, e = (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, network, address)
		return e
	})
	return c, err
}

// ip runs a command of iproute2 in the namespace.
func (n *Namespace) ip(ctx context.Context, args string) error {
	return n.Do(func() error {
		out, err := exec.CommandContext(ctx, "ip", strings.Fields(args)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
		return nil
	})
}

// tap makes the TAP device of the namespace.
func (n *Namespace) tap(name string) (*os.File, error) {
	var file *os.File
	err := n.Do(func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("/dev/net/tun cannot be opened: %w", err)
		}
		request, err := unix.NewIfreq(name)
		if err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			return errors.Join(fmt.Errorf("a TAP device cannot be made: %w", err), unix.Close(fd))
		}
		file = os.NewFile(uintptr(fd), "tap") // polled, as the descriptor does not block
		return nil
	})
	return file, err
}

// onThread calls f on a thread of its own, which ends with it.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread is in no state to be used again
		done <- f()
	}()
	return <-done
}

// Of returns the namespace that a process is in. Close lets go of it.
func Of(pid int) (*Namespace, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, err
	}
	return &Namespace{file: f}, nil
}

// Close lets go of the namespace, which lives on where processes are in it.
func (n *Namespace) Close() error { return n.file.Close() }

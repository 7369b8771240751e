//go:build linux

package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Ports of nodes on loopback come in blocks that a lock on a file reserves, and from
// below those that the kernel gives to connections and to listeners on port 0. So
// neither another fleet nor a test nor an outgoing connection takes a port between the
// moment it is chosen and the moment its node listens, also after a restart.
const (
	firstPort  = 16384
	lastPort   = 32767 // the kernel gives out ports from 32768, unless it is configured
	blockPorts = 64
)

// errNoPorts: every block is locked or in use.
var errNoPorts = errors.New("no block of ports is free on this machine")

// ports is a block of loopback ports that this process has reserved.
type ports struct {
	lock *os.File
	free []int
}

// takePorts reserves a block in which at least least ports are free. Locks are files of
// the directory; they stay there, unlocked, when the block is given back.
func takePorts(ctx context.Context, dir string, least int) (*ports, error) {
	for base := firstPort; base+blockPorts-1 <= lastPort; base += blockPorts {
		lock, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("weir-ports-%d.lock", base)), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			continue // it is another user's
		}
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			_ = lock.Close() // another fleet has the block
			continue
		}
		p := &ports{lock: lock}
		for port := base; port < base+blockPorts; port++ {
			if isFree(ctx, port) {
				p.free = append(p.free, port)
			}
		}
		if len(p.free) >= least {
			return p, nil
		}
		_ = p.release() // the next block may have more
	}
	return nil, fmt.Errorf("%w: %d together are needed of those from %d to %d", errNoPorts, least, firstPort, lastPort)
}

// next returns the address of a port that was not returned before.
func (p *ports) next() (string, error) {
	if len(p.free) == 0 {
		return "", errNoPorts
	}
	port := p.free[0]
	p.free = p.free[1:]
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), nil
}

// release gives the block back. The kernel does so when the process ends.
func (p *ports) release() error { return p.lock.Close() }

// isFree reports whether nobody listens on a port of loopback, over TCP or UDP.
func isFree(ctx context.Context, port int) bool {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return false
	}
	defer func() { _ = l.Close() }()
	u, err := new(net.ListenConfig).ListenPacket(ctx, "udp", address)
	if err != nil {
		return false
	}
	return u.Close() == nil
}

package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

// Listen opens a TCP listener for a server. The error of an address that cannot
// be had names the flag that chose it, such as "--grpc-addr".
func Listen(ctx context.Context, flag, address string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("cannot listen on %s: another program has that port; stop it, or choose another address with %s: %w", address, flag, err)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("cannot listen on %s: this user may not have that port; choose one above 1023 with %s: %w", address, flag, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("cannot listen on %s: this machine does not have that address; choose another with %s: %w", address, flag, err)
	default:
		return nil, fmt.Errorf("cannot listen on %s; choose another address with %s: %w", address, flag, err)
	}
}

// boundedListener closes connections above a bound as soon as it has accepted
// them, so that those who are there are served and those who are not learn at
// once. (Left waiting in the kernel's queue they would find out by a timeout.)
type boundedListener struct {
	net.Listener
	most int64
	open atomic.Int64
}

// bound bounds the open connections of a listener; negative for no bound.
func bound(l net.Listener, most int) net.Listener {
	if most < 0 {
		return l
	}
	return &boundedListener{Listener: l, most: int64(most)}
}

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.most {
			return &boundedConn{Conn: c, from: l}, nil
		}
		l.open.Add(-1)
		_ = c.Close() // the other end will notice, whatever the error
	}
}

// boundedConn gives its place back when it is closed.
type boundedConn struct {
	net.Conn
	from *boundedListener
	once sync.Once
}

func (c *boundedConn) Close() error {
	c.once.Do(func() { c.from.open.Add(-1) })
	return c.Conn.Close()
}

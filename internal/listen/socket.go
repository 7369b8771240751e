package listen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
)

// listenSocket opens a Unix socket at a path, accessible only to the user that runs the
// program. It replaces a socket that a program left behind, but not a socket that
// another program listens on, or a file of another type.
func listenSocket(ctx context.Context, flag, path string) (net.Listener, error) {
	cannot := func(err error) error {
		return fmt.Errorf("cannot listen on unix:%s; choose another path with %s: %w", path, flag, err)
	}
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, cannot(err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, cannot(errors.New("another file is there"))
	default:
		if c, err := new(net.Dialer).DialContext(ctx, "unix", path); err == nil {
			return nil, cannot(errors.Join(errors.New("another program listens there: stop it"), c.Close()))
		}
	}
	// Create the socket in a private directory, and move it when its mode is set.
	dir, err := os.MkdirTemp(filepath.Dir(path), ".weir")
	if err != nil {
		return nil, cannot(err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // empty after success
	made := filepath.Join(dir, "s")
	l, err := new(net.ListenConfig).Listen(ctx, "unix", made)
	if err != nil {
		return nil, cannot(err)
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	if err := errors.Join(os.Chmod(made, 0o600), os.Rename(made, path)); err != nil {
		return nil, errors.Join(cannot(err), l.Close())
	}
	return &socket{Listener: l, path: path}, nil
}

// socket is a listener that removes its file when it is closed.
type socket struct {
	net.Listener
	path string
	once sync.Once
}

// Addr returns the path to which the socket was moved.
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }

func (s *socket) Close() (err error) {
	s.once.Do(func() {
		gone := os.Remove(s.path)
		if errors.Is(gone, fs.ErrNotExist) {
			gone = nil
		}
		err = errors.Join(gone, s.Listener.Close())
	})
	return err
}

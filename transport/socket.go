package transport

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

// listenSocket opens a socket at a path, for the user that the program runs as and
// nobody else. It takes the place of a socket that a program has left behind, but not of
// one where somebody listens, or of another file.
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
	// It is made where nobody else can come, and moved when it has its mode.
	dir, err := os.MkdirTemp(filepath.Dir(path), ".weir")
	if err != nil {
		return nil, cannot(err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is empty where all went well
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

// socket removes itself when it is closed.
type socket struct {
	net.Listener
	path string
	once sync.Once
}

// Addr is where it was moved to.
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }

// Close implements [net.Listener].
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

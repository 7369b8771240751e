//go:build unix

package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

const lockName = "lock"

// Lock implements [Files]. The system lets go of the lock when the process ends. Its file is written to by nobody, and
// must not keep the file system from becoming read-only.
func (d *directory) Lock() (io.Closer, error) {
	made, err := d.root.OpenFile(lockName, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	f, err := d.root.Open(lockName)
	if err := errors.Join(err, made.Close()); err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close() // nothing was written
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrLocked
		}
		return nil, fmt.Errorf("cannot lock %s: %w", lockName, err)
	}
	return f, nil
}

package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// Files is the file system below a directory. Tests inject failures by it. Its methods are called by one goroutine
// at a time.
type Files interface {
	// Create creates a file, which must not exist, with mode 0600.
	Create(name string) (File, error)
	// Open opens a file for reading.
	Open(name string) (File, error)
	// List returns the names of all files.
	List() ([]string, error)
	Remove(name string) error
	Rename(from, to string) error
	// SyncNames returns when what Create, Remove and Rename did lasts.
	SyncNames() error
	// Lock keeps other processes away until Close. It returns an error that wraps [ErrLocked] if one is there.
	Lock() (io.Closer, error)
}

// File is an open file.
type File interface {
	io.Writer
	io.ReaderAt
	io.Closer
	// Sync returns when what was written lasts.
	Sync() error
	Truncate(size int64) error
	Size() (int64, error)
}

// directory is the [Files] of a real directory.
type directory struct{ root *os.Root }

// openDirectory opens a directory, and makes it, with mode 0700, if it does not exist.
func openDirectory(path string) (*directory, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return &directory{root}, nil
}

func (d *directory) Create(name string) (File, error) {
	f, err := d.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return file{f}, nil
}

func (d *directory) Open(name string) (File, error) {
	// To open a named pipe waits for somebody who writes into it.
	if info, err := d.root.Stat(name); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("it is not a file (%s)", info.Mode().Type())
	}
	f, err := d.root.Open(name)
	if err != nil {
		return nil, err
	}
	return file{f}, nil
}

func (d *directory) List() ([]string, error) {
	dir, err := d.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // it was only read
	return dir.Readdirnames(-1)
}

func (d *directory) Remove(name string) error     { return d.root.Remove(name) }
func (d *directory) Rename(from, to string) error { return d.root.Rename(from, to) }

func (d *directory) SyncNames() error {
	dir, err := d.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// file is a [File] of the system.
type file struct{ *os.File }

func (f file) Size() (int64, error) {
	s, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return s.Size(), nil
}

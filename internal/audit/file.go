package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// openOutput opens a file, or standard error for "stderr". what is how errors call the file.
func openOutput(to, what string) (output, error) {
	if to == "stderr" {
		return standardError{}, nil
	}
	f := &file{what: what, name: to}
	if err := f.open(); err != nil {
		return nil, fmt.Errorf("%w: give a path in a directory that the node may write", err)
	}
	return f, nil
}

// standardError is the program's standard error.
type standardError struct{}

func (standardError) Write(line []byte) (int, error) { return os.Stderr.Write(line) }
func (standardError) look() error                    { return nil }
func (standardError) Close() error                   { return nil }

type file struct {
	what, name string
	*os.File
}

func (f *file) open() error {
	info, err := os.Stat(f.name)
	if err == nil && !info.Mode().IsRegular() { // to open a pipe would wait for its other end
		return fmt.Errorf("the %s %s is not a regular file", f.what, f.name)
	}
	opened, err := os.OpenFile(f.name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		var at *fs.PathError
		if errors.As(err, &at) {
			err = at.Err
		}
		return fmt.Errorf("the %s %s cannot be opened: %w", f.what, f.name, err)
	}
	if f.File != nil {
		_ = f.File.Close() // what was written to it is there
	}
	f.File = opened
	return nil
}

// look opens the file anew if its name leads elsewhere now. After an error the old one is
// written on.
func (f *file) look() error {
	there, err := os.Stat(f.name)
	if err == nil {
		var here fs.FileInfo
		if here, err = f.Stat(); err == nil && os.SameFile(there, here) {
			return nil
		}
	}
	if err = f.open(); err != nil {
		return fmt.Errorf("%w: let the node write a file of this name; it tries again each second", err)
	}
	return nil
}

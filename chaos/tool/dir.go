package tool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// prefix is what the directories are called by.
const prefix = "weirchaos-"

// tries is how often a directory is made that another process removes before it is
// locked.
const tries = 10

// Dir is a temporary directory of this process. It is locked for as long as the
// process lives: the kernel lets go of the lock, however the process ends.
type Dir struct {
	// Path is where it is.
	Path string
	lock *os.File
}

// NewDir makes a directory among the system's temporary ones, and removes those that
// dead processes of this user left there. Where directories cannot be locked, it
// removes none.
func NewDir() (*Dir, error) {
	within := os.TempDir()
	sweep(within)
	return create(within)
}

func create(within string) (*Dir, error) {
	for range tries {
		path, err := os.MkdirTemp(within, prefix)
		if err != nil {
			return nil, err
		}
		held, err := take(path)
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(path))
		}
		// Before it was locked, another's sweep may have taken it for a dead one's.
		if _, err := os.Stat(path); held != nil && err == nil {
			return &Dir{Path: path, lock: held}, nil
		}
		if held != nil {
			_ = held.Close() // of a directory that is gone
		}
	}
	return nil, fmt.Errorf("each directory that is made in %s is removed by another process", within)
}

// sweep removes the directories whose makers are dead. It is a courtesy: what it
// cannot remove stays.
func sweep(within string) {
	found, _ := filepath.Glob(filepath.Join(within, prefix+"*")) // the pattern is right
	for _, path := range found {
		if !mine(path) {
			continue
		}
		if held, err := take(path); err == nil && held != nil {
			_ = os.RemoveAll(path)
			_ = held.Close()
		}
	}
}

// Remove removes the directory.
func (d *Dir) Remove() error {
	err := os.RemoveAll(d.Path)
	if d.lock != nil {
		err = errors.Join(err, d.lock.Close())
	}
	return err
}

//go:build linux

package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// diskBytes is the size of a node's file system. What a run counts needs some hundred kilobytes.
const diskBytes = 16 << 20

// mount makes a file system for each place.
func (s *processes) mount() error {
	for i := range s.config.Nodes {
		dir := filepath.Join(s.config.Dir, "disk-"+strconv.Itoa(i+1))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", diskBytes)); err != nil {
			return fmt.Errorf("a file system cannot be mounted at %s: %w", dir, err)
		}
		s.disks = append(s.disks, dir)
	}
	return nil
}

// disk returns where the node's file system is.
func (n *Node) disk() (string, error) {
	p, ok := n.body.(*program)
	if !ok || len(p.at.disks) == 0 {
		return "", errors.New("the fleet has no disks")
	}
	return p.at.disks[n.Index], nil
}

// FillDisk leaves no byte free where the node keeps its counters.
func (n *Node) FillDisk(context.Context) error {
	disk, err := n.disk()
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(disk, "filler"))
	if err != nil {
		return err
	}
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	if closed := f.Close(); !errors.Is(err, syscall.ENOSPC) {
		return errors.Join(err, closed)
	}
	return nil
}

// FreeDisk ends what FillDisk began.
func (n *Node) FreeDisk(context.Context) error {
	disk, err := n.disk()
	if err != nil {
		return err
	}
	return os.Remove(filepath.Join(disk, "filler"))
}

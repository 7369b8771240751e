//go:build unix

package smallfile

import (
	"io/fs"
	"os"
	"syscall"
)

// open opens a file without waiting, as for the other end of a pipe that took its place.
func open(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
}

// byOthers reports whether users who are neither the owner nor in the group may write or
// read a file.
func byOthers(info fs.FileInfo) (write, read bool) {
	return info.Mode().Perm()&0o002 != 0, info.Mode().Perm()&0o004 != 0
}

// Package smallfile reads the files that configure a program: rules, secrets, keys,
// certificates. A name may lead to anything, so nothing but a regular file of a sensible
// size is read, and opening it never waits.
package smallfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Bounds of files, in bytes.
const (
	// MaxRules bounds a rules file: hundreds of rules take some 100 KB.
	MaxRules = 16 << 20
	// MaxSecret bounds a file with a secret, a password or keys.
	MaxSecret = 64 << 10
	// MaxCertificates bounds a file of certificates: a system's own have 300 KB.
	MaxCertificates = 1 << 20
)

// Read returns the contents of a file of at most so many bytes. kind is what people call
// such a file, for errors: each says what was to be read, why it was not, and what to do.
//
// A named pipe, a device, a socket and a directory are refused at once, also where they
// take the place of a file while it is being opened.
func Read(kind, name string, most int) ([]byte, error) {
	data, _, err := read(kind, name, most)
	return data, err
}

// Writable returns a warning if everyone on the machine may write a file, or directory, that says what a program
// does; "" if not, or if the file cannot be looked at.
func Writable(kind, name string) (warning string) {
	info, err := os.Stat(name)
	if err != nil {
		return ""
	}
	if writable, _ := byOthers(info); !writable {
		return ""
	}
	return fmt.Sprintf("%s %s can be written by every user of this machine (mode %04o), who so decides what it says: "+
		"chmod o-w it", kind, name, info.Mode().Perm())
}

// ReadSecret reads a file that only the program's user should read or write. It is an
// error if anyone on the machine may write it: the secret could be anybody's. A warning
// that is not empty says that others may read it.
func ReadSecret(kind, name string, most int) (data []byte, warning string, err error) {
	data, info, err := read(kind, name, most)
	if err != nil {
		return nil, "", err
	}
	writable, readable := byOthers(info)
	mode := info.Mode().Perm()
	if writable {
		return nil, "", fmt.Errorf("%s %s can be written by every user of this machine (mode %04o): "+
			"make a new secret, and keep it with chmod 600", kind, name, mode)
	}
	if readable {
		warning = fmt.Sprintf("%s %s can be read by every user of this machine (mode %04o): "+
			"chmod 600 it, or 640 for a group; in Kubernetes give the volume defaultMode: 0440 and the pod an fsGroup", kind,
			name, mode)
	}
	return data, warning, nil
}

// ReadTrusted reads a file that anyone may know but not everyone may change, such as a
// certificate authority's.
func ReadTrusted(kind, name string, most int) ([]byte, error) {
	data, info, err := read(kind, name, most)
	if err != nil {
		return nil, err
	}
	if writable, _ := byOthers(info); writable {
		return nil, fmt.Errorf("%s %s can be written by every user of this machine (mode %04o): look at what is in it, and "+
			"chmod 644 it",
			kind, name, info.Mode().Perm())
	}
	return data, nil
}

func read(kind, name string, most int) (data []byte, info fs.FileInfo, err error) {
	// To open a device may do something, so it is looked at first.
	if info, err = os.Stat(name); err == nil {
		err = regular(info)
	}
	if err != nil {
		return nil, nil, opening(kind, name, err)
	}
	return readOpened(kind, name, most)
}

// readOpened is read for what was a regular file a moment ago.
func readOpened(kind, name string, most int) (data []byte, info fs.FileInfo, err error) {
	f, err := open(name)
	if err != nil {
		return nil, nil, opening(kind, name, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if info, err = f.Stat(); err == nil {
		err = regular(info)
	}
	if err != nil {
		return nil, nil, opening(kind, name, err)
	}
	data, err = io.ReadAll(io.LimitReader(f, int64(most)+1))
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("%s %s cannot be read: %w", kind, name, Bare(err))
	case len(data) > most:
		return nil, nil, fmt.Errorf("%s %s is larger than %s, which none needs; is it another file?", kind, name, size(most))
	}
	return data, info, nil
}

// kindError says that a name leads to something that is not a file.
type kindError string

func (e kindError) Error() string { return string(e) }

func opening(kind, name string, err error) error {
	var not kindError
	if errors.As(err, &not) {
		return fmt.Errorf("%s %s is %s; name a regular file", kind, name, string(not))
	}
	hint := ""
	if errors.Is(err, fs.ErrPermission) {
		hint = "; give the user of this process the right to read it"
	}
	return fmt.Errorf("%s %s cannot be opened: %w%s", kind, name, Bare(err), hint)
}

// regular returns an error for what is not a regular file.
func regular(info fs.FileInfo) error {
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return kindError("a directory")
	case mode&fs.ModeNamedPipe != 0:
		return kindError("a pipe")
	case mode&fs.ModeSocket != 0:
		return kindError("a socket")
	case mode&fs.ModeDevice != 0:
		return kindError("a device")
	}
	return kindError("not a regular file")
}

func size(bytes int) string {
	if bytes >= 1<<20 {
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return fmt.Sprintf("%d KiB", bytes>>10)
}

// Bare drops the operation and the path from a file's error: the message names
// the file already.
func Bare(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

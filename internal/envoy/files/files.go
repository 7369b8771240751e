// Package files reads the directory with configuration files of Envoy's rate limit
// service.
package files

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/internal/smallfile"
)

const (
	maxFiles = 1000
	maxBytes = smallfile.MaxRules // of all files together
)

// Read returns the files in a directory and those below it, by their paths. It leaves out
// names that begin with two dots: a mounted ConfigMap has its data under such a name, and a
// link to each file beside it. With ignoreDots it leaves out all that begin with a dot. The
// error says which file could not be read.
func Read(dir string, ignoreDots bool) ([]config.File, error) {
	hidden := ".."
	if ignoreDots {
		hidden = "."
	}
	var out []config.File
	left := maxBytes
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == dir && !e.IsDir() && e.Type()&fs.ModeSymlink == 0:
			return fmt.Errorf("%s is not a directory: give the directory that has the files", dir)
		case path != dir && strings.HasPrefix(e.Name(), hidden):
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		case e.IsDir():
			return nil
		case len(out) == maxFiles:
			return fmt.Errorf("%s has more than %d files: is it the right directory?", dir, maxFiles)
		}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return nil // a link; what it leads to may be anywhere
		}
		data, err := smallfile.Read("file of descriptors", path, left)
		if err != nil {
			return err
		}
		left -= len(data)
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		out = append(out, config.File{Name: filepath.ToSlash(name), Data: data})
		return nil
	})
	if err == nil && len(out) == 0 {
		err = errors.New("there is no file")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the descriptors in %s: %w", dir, err)
	}
	return out, nil
}

// Hash returns a hash of the names and contents of files.
func Hash(files []config.File) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, f := range files {
		_, _ = fmt.Fprintf(h, "%d:%s%d:", len(f.Name), f.Name, len(f.Data))
		_, _ = h.Write(f.Data) // a hash returns no error
	}
	h.Sum(sum[:0])
	return sum
}

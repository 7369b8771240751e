//go:build !unix

package smallfile

import (
	"io/fs"
	"os"
)

func open(name string) (*os.File, error) { return os.Open(name) }

// byOthers reports nothing: modes do not say here who may write or read a file.
func byOthers(fs.FileInfo) (write, read bool) { return false, false }

//go:build !unix

package disk

import (
	"errors"
	"io"
)

func (d *directory) Lock() (io.Closer, error) {
	return nil, errors.New("a data directory cannot be locked on this system")
}

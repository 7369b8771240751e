//go:build !linux

package main

import (
	"context"
	"errors"
)

// run is for Linux.
func (*reality) run(context.Context) error {
	return errors.New("real processes are broken in network namespaces, which need Linux")
}

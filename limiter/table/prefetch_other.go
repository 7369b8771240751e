//go:build !amd64 && !arm64

package table

import "unsafe"

// fetch is nothing where there is no instruction for it.
func fetch(unsafe.Pointer) {}

//go:build !amd64 && !arm64

package table

import "unsafe"

// fetch does nothing on processors for which it is not implemented.
func fetch(unsafe.Pointer) {}

// fetchWrite does nothing, either.
func fetchWrite(unsafe.Pointer) {}

// fetchPair does nothing, either.
func fetchPair(unsafe.Pointer) {}

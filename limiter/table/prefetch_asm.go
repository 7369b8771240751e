//go:build amd64 || arm64

package table

import "unsafe"

// fetch fetches the cache line at p. It reads nothing, so p may be any address.
//
//go:noescape
func fetch(p unsafe.Pointer)

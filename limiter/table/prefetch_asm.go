//go:build amd64 || arm64

package table

import "unsafe"

// fetch has the line of memory at p fetched into the cache. It reads nothing: p may
// be anything.
//
//go:noescape
func fetch(p unsafe.Pointer)

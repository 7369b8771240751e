//go:build !linux

package table

// preferHuge does nothing: these systems choose page sizes themselves.
func preferHuge([]byte) {}

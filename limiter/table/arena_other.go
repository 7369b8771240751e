//go:build !linux

package table

// preferHuge does nothing: such systems choose their pages themselves.
func preferHuge([]byte) {}

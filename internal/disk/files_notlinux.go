//go:build !linux

package disk

// Sync implements [File].
func (f file) Sync() error { return f.File.Sync() }

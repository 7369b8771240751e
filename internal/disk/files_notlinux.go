//go:build !linux

package disk

func (f file) Sync() error { return f.File.Sync() }

package disk

import "syscall"

// Sync implements [File]. The times of a file need not last.
func (f file) Sync() error { return syscall.Fdatasync(int(f.Fd())) }

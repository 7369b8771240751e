package table

import "syscall"

// preferHuge asks the kernel to use huge pages for memory when it is touched. The
// memory is usable if the kernel refuses, too.
func preferHuge(memory []byte) { _ = syscall.Madvise(memory, syscall.MADV_HUGEPAGE) }

package table

import "syscall"

// preferHuge asks the kernel to back memory with large pages as it is touched. Where
// it will not, the memory is as good as any.
func preferHuge(memory []byte) { _ = syscall.Madvise(memory, syscall.MADV_HUGEPAGE) }

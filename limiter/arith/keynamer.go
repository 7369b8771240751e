package arith

// KeyNamer appends to dst the displayed name of key k of charge i, without the limit,
// such as /towns:ada, and returns the extended slice.
type KeyNamer func(dst []byte, i, k int) []byte

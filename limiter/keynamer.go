package limiter

// KeyNamer appends to dst what people call key k of charge i of some charges, without
// the limit, such as /towns:ada, and returns the extended slice.
type KeyNamer func(dst []byte, i, k int) []byte

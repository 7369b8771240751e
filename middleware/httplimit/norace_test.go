//go:build !race

package httplimit_test

// raced reports whether the race detector is on. Under it a sync.Pool randomly drops
// what it is given.
const raced = false

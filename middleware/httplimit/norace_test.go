//go:build !race

package httplimit_test

// raced tells that the race detector is on, under which a sync.Pool forgets at
// random what it is given.
const raced = false

//go:build !race

package grpclimit_test

// raced tells that the race detector is on, under which a sync.Pool forgets at
// random what it is given.
const raced = false

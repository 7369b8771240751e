//go:build linux

// Package fleet runs real node processes, each in a network namespace of its own
// or, without root, on loopback, and breaks them.
package fleet

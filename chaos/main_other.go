//go:build !linux

// Command chaos breaks real node processes in network namespaces. It needs Linux.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "chaos needs Linux: its nodes live in network namespaces, or are paused by signals")
	os.Exit(1)
}

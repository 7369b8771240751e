// Weir is the operator's tool: it tries a rules file, on one request or on the
// access log of yesterday, before the file is in force.
package main

import (
	"context"
	"os"
	"time"

	"github.com/weirlimit/weir/cmd/weir/internal/cli"
	"github.com/weirlimit/weir/cmd/weir/internal/term"
)

func main() {
	os.Exit(cli.Run(context.Background(), os.Args[1:], cli.Streams{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		OutStyle: term.StyleOf(os.Stdout, os.Getenv), ErrStyle: term.StyleOf(os.Stderr, os.Getenv),
		Now: time.Now,
	}))
}

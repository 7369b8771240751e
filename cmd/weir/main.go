// Weir is the operator's tool. It tries a rules file, on single requests or on an
// access log, before the file comes into force.
package main

import (
	"context"
	"io"
	"log"
	"os"
	"time"

	"github.com/weirlimit/weir/cmd/weir/internal/cli"
	"github.com/weirlimit/weir/cmd/weir/internal/term"
)

func main() {
	log.SetOutput(io.Discard) // package net/http writes into it; what concerns people is in errors
	os.Exit(cli.Run(context.Background(), os.Args[1:], cli.Streams{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		OutStyle: term.StyleOf(os.Stdout, os.Getenv), ErrStyle: term.StyleOf(os.Stderr, os.Getenv),
		Now: time.Now, Getenv: os.Getenv,
	}))
}

// Node is the node program: a rate limiter that is asked over gRPC and HTTP.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/weirlimit/weir/cmd/node/internal/app"
)

func main() {
	// Room for a burst of signals: none is lost while the node starts. Windows
	// knows the first two only.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	os.Exit(app.Run(context.Background(), os.Args[1:], app.World{
		Out: os.Stdout, Err: os.Stderr,
		OutTerminal: term.IsTerminal(int(os.Stdout.Fd())), ErrTerminal: term.IsTerminal(int(os.Stderr.Fd())),
		Environ: os.Environ(), Signals: signals,
	}))
}

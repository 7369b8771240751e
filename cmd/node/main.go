// Node is the node program: a rate limiter that serves gRPC and HTTP.
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
	// The buffer holds a burst of signals while the node starts. Windows has only the
	// first two signals.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	os.Exit(app.Run(context.Background(), os.Args[1:], app.World{
		Name: os.Args[0],
		Out:  os.Stdout, Err: os.Stderr,
		OutTerminal: term.IsTerminal(int(os.Stdout.Fd())), ErrTerminal: term.IsTerminal(int(os.Stderr.Fd())),
		Environ: os.Environ(), Signals: signals,
	}))
}

package app

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/cmd/node/internal/demo"
	"github.com/weirlimit/weir/cmd/node/internal/server"
)

func (a *app) demoCommand() *cobra.Command {
	o := newOptions()
	o.logLevel.value = "warn" // what it shows is on standard output
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show a node at work, with rules and traffic of its own",
		Long: `Starts a node with built-in rules, lets four users ask it, shows what it decides,
and says how to ask it with curl, grpcurl and Go. Ctrl-C ends it.`,
		Example: `  node demo
  node demo --http-addr 127.0.0.1:0 --grpc-addr 127.0.0.1:0`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.demo(cmd, o) },
	}
	o.addCommonFlags(cmd.Flags())
	completeFlags(cmd)
	return cmd
}

func (a *app) demo(cmd *cobra.Command, o *options) (err error) {
	log, err := a.prepare(cmd, o)
	if err != nil {
		return err
	}
	c, err := o.config(log)
	if err != nil {
		return err
	}
	c.Rules = demo.Rules
	s, err := server.Start(cmd.Context(), c)
	if err != nil {
		return portsTaken(err)
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	shown := make(chan error, 1)
	go func() {
		shown <- demo.Run(ctx, demo.Config{
			Nodes: []demo.Node{{Checker: s.Node(), HTTPAddr: s.HTTPAddr(), GRPCAddr: s.GRPCAddr()}},
			Out:   a.Out, Terminal: a.OutTerminal,
		})
	}()
	for {
		select {
		case err := <-shown: // the output is gone, or the context
			return errors.Join(err, s.Stop())
		case err := <-s.Failed():
			cancel()
			return errors.Join(err, <-shown, s.Stop())
		case sig := <-a.Signals:
			if sig == syscall.SIGHUP {
				continue // the rules are built in
			}
			cancel()
			return errors.Join(<-shown, a.stop(log, s, sig.String()))
		}
	}
}

// portsTaken says how to have the demo elsewhere.
func portsTaken(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w\nFree ports, whichever they are: node demo --http-addr 127.0.0.1:0 --grpc-addr 127.0.0.1:0", err)
	}
	return err
}

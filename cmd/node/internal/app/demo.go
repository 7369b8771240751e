package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cmd/node/internal/demo"
	"github.com/weirlimit/weir/cmd/node/internal/server"
	"github.com/weirlimit/weir/internal/commandline"
)

func (a *app) demoCommand() *cobra.Command {
	o := newOptions()
	var kill bool
	o.logLevel.value = "warn" // the demo's own output is on standard output
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show three nodes at work, with rules and traffic of their own",
		Long: `Starts a cluster of three nodes with built-in rules, lets four users ask them in
turn, shows what they decide, and says how to ask them with curl, grpcurl and Go.
The addresses are the first node's; the ports of the others are 100 and 200 above.
Ctrl-C ends it.`,
		Example: `  node demo
  node demo --kill
  node demo --http-addr 127.0.0.1:0 --grpc-addr 127.0.0.1:0 --admin-addr 127.0.0.1:0`,
		Args: commandline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.demo(cmd, o, kill) },
	}
	o.addCommonFlags(cmd.Flags())
	cmd.Flags().BoolVar(&kill, "kill", false, "kill a fourth member that owns a counter, and show that its count stays")
	completeFlags(cmd)
	return cmd
}

// demoNodes is the number of nodes of the demo, demoStep the distance between their
// ports.
const (
	demoNodes = 3
	demoStep  = 100
)

func (a *app) demo(cmd *cobra.Command, o *options, kill bool) (err error) {
	log, err := a.prepare(cmd, o)
	if err != nil {
		return err
	}
	c, err := o.config(log)
	if err != nil {
		return err
	}
	c.Rules = demo.Rules
	servers, err := startDemo(cmd.Context(), c)
	if err != nil {
		return portsTaken(err)
	}
	show := demo.Config{Out: a.Out, Terminal: a.OutTerminal, Answer: servers[0].Node().Answer}
	if kill {
		v, end, err := startVictim(cmd.Context(), servers)
		defer end()
		if err != nil {
			return errors.Join(err, servers.Stop())
		}
		show.Victim = v
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	var nodes []demo.Node
	failed := make(chan error, len(servers))
	for _, s := range servers {
		nodes = append(nodes, demo.Node{Checker: s.Within("demo"), HTTPAddr: s.Addresses().HTTP, GRPCAddr: s.Addresses().GRPC,
			AdminAddr: s.Addresses().Admin})
		go func() {
			select {
			case err := <-s.Failed():
				failed <- err
			case <-ctx.Done():
			}
		}()
	}
	shown := make(chan error, 1)
	go func() {
		show.Nodes = nodes
		shown <- demo.Run(ctx, show)
	}()
	for {
		select {
		case err := <-shown: // the output was closed, or the context ended
			return errors.Join(err, servers.Stop())
		case err := <-failed:
			cancel()
			return errors.Join(err, <-shown, servers.Stop())
		case sig := <-a.Signals:
			if sig == syscall.SIGHUP {
				continue // the rules are embedded
			}
			cancel()
			return errors.Join(<-shown, a.stop(log, servers, sig.String()))
		}
	}
}

type demoServers []*server.Server

// Stop stops the nodes one after the other, the last first. Each hands over to the
// remaining ones.
func (d demoServers) Stop() error {
	var all error
	for _, s := range slices.Backward(d) {
		all = errors.Join(all, s.Stop())
	}
	return all
}

// startDemo starts the nodes, all of which join the first, and waits until they are
// ready.
func startDemo(ctx context.Context, c server.Config) (demoServers, error) {
	var out demoServers
	var join []string
	var err error
	for i := range demoNodes {
		each := c
		each.HTTPAddr, each.GRPCAddr = portsAway(c.HTTPAddr, i*demoStep), portsAway(c.GRPCAddr, i*demoStep)
		each.AdminAddr, each.HealthAddr = portsAway(c.AdminAddr, i*demoStep), "" // the demo has no probes
		if i > 0 && strings.HasPrefix(c.AdminAddr, "unix:") {
			each.AdminAddr = "" // the first node has the socket
		}
		each.Cluster = &cluster.Config{
			Name: fmt.Sprintf("node-%d", i+1), PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0", Join: join,
			Version: c.Version,
			Logger:  slog.New(slog.DiscardHandler), // joins and leaves are not worth logging here
		}
		var s *server.Server
		if s, err = server.Start(ctx, each); err != nil {
			break
		}
		out = append(out, s)
		if i == 0 {
			join = []string{s.Node().Cluster().Members()[0].Address}
		}
	}
	for i := 0; err == nil && i < len(out); i++ {
		err = awaitReady(ctx, out[i])
	}
	if err != nil {
		return nil, errors.Join(err, out.Stop())
	}
	return out, nil
}

// awaitReady waits until a node is ready.
func awaitReady(ctx context.Context, s *server.Server) error {
	ready := make(chan struct{})
	s.WhenReady(func() { close(ready) })
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// portsAway returns an address with its port increased by by. Port 0 stays 0, any free
// port.
func portsAway(addr string, by int) string {
	host, port, err := net.SplitHostPort(addr)
	n, bad := strconv.Atoi(port)
	if err != nil || bad != nil || n == 0 {
		return addr
	}
	return net.JoinHostPort(host, strconv.Itoa(n+by))
}

// portsTaken adds to an error how to run the demo on other ports.
func portsTaken(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w\nFree ports, whichever they are: node demo --http-addr 127.0.0.1:0 --grpc-addr 127.0.0.1:0 "+
			"--admin-addr 127.0.0.1:0", err)
	}
	return err
}

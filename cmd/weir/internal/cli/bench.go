package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/cmd/weir/internal/bench"
	"github.com/weirlimit/weir/cmd/weir/internal/load"
	"github.com/weirlimit/weir/internal/commandline"
	"github.com/weirlimit/weir/limiter"
)

type benchOptions struct {
	modes, shapes []string
	config        bench.Config
	server        string
	remote        bool
	printRules    bool
	json          bool
	load          loadOptions
	shown         credentials
}

func (a *app) benchCommand() *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench [--redis-addr ADDRESS | --mode unary,batch,stream --server ADDRESSES]",
		Short: "Measure the table, a cluster and Redis side by side, or nodes over the network",
		Long: `Measures, on this machine, what decides checks: a node's table; a cluster of
three nodes in this process, with copies, of which each caller asks one; a node
that counts in Redis; and a node that runs already. All are given the same rules
and keys and have their turns one after the other, in rounds.

Callers ask again as soon as they are answered. Half of the keys are exhausted, so
that half of the checks are denied. The run verifies each answer, and that every
key has counters of its own; otherwise it fails and prints no figure. The time of a
check includes the caller, who reads the clock once for it.

CPU is the time of this process, with callers and all three nodes; the time of
Redis is reported separately, and that of another node's process is not known.
Memory is measured for keys that were checked once: what stays in this process's
heap, copies included, or in Redis. With few keys it says little.

Shapes of rules: one window, three windows, and a sliding log. A node that is to be
measured with --server needs them too: --print-rules prints them. In Redis all keys
begin with weir-bench- and are deleted at the end, with Ctrl-C too; what a kill
leaves behind expires within the hour.

With --mode unary, batch or stream the nodes at --server are asked over gRPC
instead: by a call for each check, by calls with a message for each check, or in
columns on a stream; with --mode client or client-batch by the Go client, whose
callers share a stream to each node, and which asks owners directly where nodes run
with --share-ring. Clients ask again as soon as they are answered; or, with
--rate, at a rate that is kept whatever the nodes do, in steps of a millisecond, and
then a wait begins when the check was to be sent, not when it was. Half of the keys
(--limited) are under a limit of 100, and of each key it is made sure that as many
checks are allowed as the limit says; if not, it is reported, and the status is 1.

Exit status: 0 done, 1 failed, 2 wrong usage, or the node cannot be asked.`,
		Example: `  weir bench
  weir bench --redis-addr 127.0.0.1:6379 --duration 2s --rounds 5
  weir bench --mode table,cluster --rules-shape log --keys 10000 --json
  weir bench --print-rules >bench.yaml; node serve --rules bench.yaml &
  weir bench --mode table,server --server 127.0.0.1:8081
  weir bench --mode unary,batch,stream --server 127.0.0.1:8081 --server-admin 127.0.0.1:8082
  weir bench --mode stream --server 127.0.0.1:8081,127.0.0.1:8181,127.0.0.1:8281 --dist zipf
  weir bench --mode unary --server 127.0.0.1:8081 --rate 1000,5000,10000,20000 --svg waits.svg`,
		Args: commandline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.printRules {
				return a.print([]byte(bench.Rules() + load.Rules()))
			}
			overNetwork, err := isLoad(cmd, o.modes)
			if err != nil {
				return err
			}
			if overNetwork {
				if err := o.load.complete(cmd, &o); err != nil {
					return err
				}
				if o.load.config.Credentials, err = a.open(cmd, o.shown, o.server); err != nil {
					return err
				}
				return a.load(cmd, &o.load, o.json)
			}
			leftOut, err := o.complete(cmd)
			if err != nil {
				return err
			}
			return a.bench(cmd, &o, leftOut)
		},
	}
	o.addFlags(cmd)
	return cmd
}

func (o *benchOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&o.modes, "mode", nil,
		"what to measure, of `table,cluster,redis,server` (default all that have an address), or of "+
			"unary,batch,stream,client,client-batch")
	f.StringSliceVar(&o.shapes, "rules-shape", []string{"one", "three", "log"}, "the `shapes` of rules")
	f.StringVar(&o.config.RedisAddr, "redis-addr", "",
		"`HOST:PORT` of a Redis without a password, or the path of its socket")
	f.StringVar(&o.server, "server", "",
		"`HOST:PORT` of a node's gRPC, or http://HOST:PORT; several gRPC addresses with commas in modes over the network")
	f.BoolVar(&o.remote, "remote", false, "allow addresses on other machines, and put load on them")
	f.IntVar(&o.config.Keys, "keys", 100_000, "number of keys")
	f.IntVar(&o.config.Callers, "callers", 8*runtime.GOMAXPROCS(0),
		"number of concurrent callers; the default is 8 for each core")
	f.IntVar(&o.config.Rounds, "rounds", 3, "number of rounds")
	f.DurationVar(&o.config.Duration, "duration", time.Second,
		"length of a mode's turn in each round; over the network the length of the run, 5s by default")
	f.BoolVar(&o.printRules, "print-rules", false, "print the rules, and measure nothing")
	f.BoolVar(&o.json, "json", false, "print an object")
	o.load.addFlags(cmd)
	o.shown.addFlags(f)
}

// complete turns the flags into a configuration, or returns an error. leftOut are the
// modes without an address, which are not measured.
func (o *benchOptions) complete(cmd *cobra.Command) (leftOut []bench.Mode, err error) {
	c := &o.config
	for _, s := range o.shapes {
		c.Shapes = append(c.Shapes, bench.Shape(s))
	}
	for _, m := range o.modes {
		c.Modes = append(c.Modes, bench.Mode(m))
	}
	missing := map[bench.Mode]string{bench.Redis: c.RedisAddr, bench.Server: o.server}
	flags := map[bench.Mode]string{bench.Redis: "--redis-addr", bench.Server: "--server"}
	for _, m := range bench.Modes() {
		addr, needed := missing[m]
		asked := strings.Contains(","+strings.Join(o.modes, ",")+",", ","+string(m)+",")
		switch {
		case needed && addr == "" && asked:
			return nil, usage(cmd, "the mode %s needs an address: give %s HOST:PORT", m, flags[m])
		case needed && addr != "" && len(o.modes) > 0 && !asked:
			return nil, usage(cmd, "%s %s is given, but --mode leaves %s out", flags[m], addr, m)
		case needed && addr != "" && !o.remote && !onLoopback(addr):
			return nil, usage(cmd, "%s %s is not on this machine: give --remote if what is there may be loaded", flags[m], addr)
		case len(o.modes) > 0:
		case needed && addr == "":
			leftOut = append(leftOut, m)
		default:
			c.Modes = append(c.Modes, m)
		}
	}
	if o.server != "" {
		c.Server = func(context.Context, *limiter.Request) (limiter.Answer, error) {
			return limiter.Answer{}, errors.ErrUnsupported
		}
	}
	if err := c.Validate(); err != nil {
		return nil, usage(cmd, "%w", err)
	}
	return leftOut, nil
}

// onLoopback reports whether an address is on this machine's loopback.
func onLoopback(addr string) bool {
	if strings.HasPrefix(addr, "/") {
		return true // a Unix socket
	}
	if _, rest, ok := strings.Cut(addr, "://"); ok {
		addr, _, _ = strings.Cut(rest, "/")
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = strings.Trim(addr, "[]")
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// bench measures until it is done or interrupted.
func (a *app) bench(cmd *cobra.Command, o *benchOptions, leftOut []bench.Mode) (err error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if o.server != "" {
		shown, err := a.open(cmd, o.shown, o.server)
		if err != nil {
			return err
		}
		server, err := newRemote(cmd, o.server, shown)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.Close()) }()
		o.config.Server = func(ctx context.Context, r *limiter.Request) (limiter.Answer, error) {
			var c checked
			err := c.askWithin(ctx, server, r, false)
			return c.answer, err
		}
	}
	if a.ErrStyle.Terminal {
		o.config.Progress = func(what string) { a.say("\r\x1b[K%s", what) }
	}
	report, err := bench.Run(ctx, o.config)
	if a.ErrStyle.Terminal {
		a.say("\r\x1b[K")
	}
	if ctx.Err() != nil && !errors.Is(err, bench.ErrNotClosed) {
		return fmt.Errorf("interrupted; nothing was left behind: %w", ctx.Err())
	}
	if err != nil {
		return err
	}
	report.LeftOut = leftOut
	return a.show(o.json, report, report.Text(a.OutStyle))
}

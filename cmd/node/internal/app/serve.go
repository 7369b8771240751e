package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/cmd/node/internal/server"
	"github.com/weirlimit/weir/internal/built"
	"github.com/weirlimit/weir/internal/commandline"
	"github.com/weirlimit/weir/redisstore"
)

func (a *app) serveCommand() *cobra.Command {
	o := newOptions()
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve checks over gRPC and HTTP (the default)",
		Long: `Serves weir.v1.Limiter over gRPC, and over HTTP /v1/check and its like. Operators ask
at --admin-addr, by default on this machine only: /metrics, /v1/members, /v1/top and
/debug/pprof/. Probes ask /healthz and /readyz at --health-addr, or where clients do.
Every flag can also be set in the environment: --http-addr as WEIR_HTTP_ADDR, and
so on. A flag overrides the environment.

The rules file is read again when it changes and on SIGHUP. If it is not valid,
the old rules stay in force. SIGTERM and SIGINT stop the node after it has
answered the requests in progress; a second signal stops it at once.

With --name or --join the node is a member of a cluster. One member owns each
counter, and another has a copy. A member that is stopped hands over its
counters. With --backend redis the counters are in Redis, and all nodes that
use the same Redis share them.

With --tls-cert clients and operators are served with TLS, and may need certificates.
Without it keep the addresses on a network that you trust.`,
		Example: `  node serve --rules rules.yaml
  node serve --rules rules.yaml --max-keys 1000000 --overflow allow
  node serve --rules rules.yaml --name node-1
  node serve --rules rules.yaml --name node-2 --join 127.0.0.1:7946 --peer-addr 127.0.0.1:7957 \
    --gossip-addr 127.0.0.1:7956 --http-addr 127.0.0.1:8180 --grpc-addr 127.0.0.1:8181 \
    --admin-addr 127.0.0.1:8182 --health-addr 127.0.0.1:8183
  node serve --rules rules.yaml --backend redis --redis-addr 127.0.0.1:6379
  WEIR_RULES=/etc/weir/rules.yaml WEIR_LOG_LEVEL=debug node serve`,
		Args: commandline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd, o) },
	}
	o.addServeFlags(cmd.Flags())
	o.addTestFlags(cmd.Flags())
	completeFlags(cmd)
	return cmd
}

func (a *app) serve(cmd *cobra.Command, o *options) error {
	// Whoever reads the log may go away: the next line must not end the node.
	signal.Ignore(syscall.SIGPIPE)
	log, err := a.prepare(cmd, o)
	if err != nil {
		return err
	}
	c, err := o.config(log)
	if err != nil {
		return a.cannotStart(log, err)
	}
	o.idle(cmd.Flags(), log)
	if c.Redis != nil {
		redisstore.LogClientTo(log)
	}
	s, err := server.Start(cmd.Context(), c)
	if err != nil {
		return a.cannotStart(log, err)
	}
	if o.clockOffset != 0 {
		log.Warn("the clock is shifted by an option for tests", "by", o.clockOffset.String())
	}
	if o.rules == "" && !o.envoy.wanted() && !o.gubernator.wanted() {
		log.Warn("there are no rules, so every request is allowed; give --rules FILE")
	}
	at := s.Addresses()
	args := []any{"http", at.HTTP, "grpc", at.GRPC, "rules", len(s.Node().Rules()), "hash", s.RulesHash(), "version",
		built.Version()}
	if c.Redis != nil {
		args = append(args, "redis", o.redis.addrs.String())
	}
	for _, a := range []struct{ name, at string }{{"admin", at.Admin}, {"health", at.Health}, {"envoy", at.Envoy},
		{"envoy_http", strings.Join(at.EnvoyHTTP, ",")}, {"rlqs", at.Quotas}, {"redis_protocol", at.Redis},
		{"spoe", at.SPOE}, {"gubernator", at.Gubernator}, {"gubernator_http", at.GubernatorHTTP}} {
		if a.at != "" {
			args = append(args, a.name, a.at)
		}
	}
	if c.Cluster != nil {
		args = append(args, "member", c.Cluster.Name)
	}
	ready := func() { log.Info("the node is ready", args...) }
	if c.Cluster == nil && s.Ready() == nil {
		ready()
	} else { // a member, or one that waits for Redis or for a management server
		log.Info("the node listens", args...)
		s.WhenReady(ready)
	}
	// A member may wait for others that are started after it, so it has started when it listens.
	if err := a.notify("READY=1"); err != nil {
		log.Warn(err.Error())
	}
	return a.untilToldToStop(cmd.Context(), log, s)
}

// prepare sets flags from the environment and makes the logger.
func (a *app) prepare(cmd *cobra.Command, o *options) (*slog.Logger, error) {
	warnings, err := readEnvironment(cmd, a.Environ, settings())
	if err != nil {
		return nil, err
	}
	if err := o.validate(cmd); err != nil {
		return nil, err
	}
	log := newLogger(a.Err, a.ErrTerminal, o.logLevel.value)
	for _, w := range warnings {
		log.Warn(w)
	}
	return log, nil
}

// newLogger makes a logger that writes text to a terminal, else JSON.
func newLogger(out io.Writer, person bool, level string) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		l = slog.LevelInfo // not reached: the flag accepts levels only
	}
	o := &slog.HandlerOptions{Level: l, ReplaceAttr: spellDuration}
	if person {
		return slog.New(slog.NewTextHandler(out, o))
	}
	return slog.New(slog.NewJSONHandler(out, o))
}

// spellDuration makes durations appear as 1.5s in JSON, too, where they would be
// nanoseconds without a unit.
func spellDuration(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.String(a.Key, a.Value.Duration().String())
	}
	return a
}

// cannotStart reports an error in plain lines on a terminal, and otherwise in the log,
// so that a log is uniform for programs that parse it.
func (a *app) cannotStart(log *slog.Logger, err error) error {
	if a.ErrTerminal {
		return err
	}
	log.Error("the node cannot start", "error", err.Error())
	return errReported
}

// untilToldToStop handles signals until the node has stopped.
func (a *app) untilToldToStop(ctx context.Context, log *slog.Logger, s *server.Server) error {
	for {
		select {
		case sig := <-a.Signals:
			if sig == syscall.SIGHUP {
				s.Reload()
				continue
			}
			return a.stop(log, s, sig.String())
		case <-ctx.Done():
			return a.stop(log, s, ctx.Err().Error())
		case err := <-s.Failed():
			log.Error("the node failed", "error", err)
			return errors.Join(errReported, s.Stop())
		}
	}
}

// again is how long after the first signal a second one ends the program at once. Those before
// are the same wish: "timeout" signals a process and then its group, and so does a Ctrl-C that a
// parent passes on.
const again = time.Second

// stop stops the node, or gives up at a second signal.
func (a *app) stop(log *slog.Logger, s interface{ Stop() error }, why string) error {
	log.Info("stopping: requests in progress will be answered", "because", why)
	if err := a.notify("STOPPING=1"); err != nil {
		log.Warn(err.Error())
	}
	done := make(chan error, 1)
	go func() { done <- s.Stop() }()
	insists, same := false, a.After(again)
	for {
		select {
		case err := <-done:
			if err != nil {
				log.Error("stopped with errors", "error", err)
				return errReported
			}
			log.Info("stopped")
			return nil
		case sig := <-a.Signals:
			if sig != syscall.SIGHUP && insists {
				return a.giveUp(log, sig)
			}
		case <-same:
			insists = true
		}
	}
}

func (a *app) giveUp(log *slog.Logger, sig os.Signal) error {
	log.Error(fmt.Sprintf("told to stop again (%s): ending at once", sig))
	return errReported
}

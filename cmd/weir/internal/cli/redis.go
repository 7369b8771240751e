package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/smallfile"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/redisstore"
)

// redisOptions are the flags for a Redis that decides a check, as a node that counts
// there would use it.
type redisOptions struct {
	addr         string
	cluster      bool
	db           int
	username     string
	passwordFile string
	prefix       string
	clusterName  string
	secretFile   string
}

func (o *redisOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.addr, "redis-addr", "", "let the Redis at `HOST:PORT` decide, as for nodes with --backend redis")
	f.BoolVar(&o.cluster, "redis-cluster", false, "treat that address as a Redis Cluster")
	f.IntVar(&o.db, "redis-db", 0, "use database `N` of it")
	f.StringVar(&o.username, "redis-username", "", "log in there as `NAME`")
	f.StringVar(&o.passwordFile, "redis-password-file", "", "log in there with the password in `FILE`")
	f.StringVar(&o.prefix, "redis-prefix", "weir:", "the nodes' --redis-prefix `TEXT`")
	f.StringVar(&o.clusterName, "cluster-name", "weir", "the nodes' --cluster-name `NAME`, for counters in Redis")
	f.StringVar(&o.secretFile, "secret-file", "", "`FILE` with the nodes' secret, for counters in Redis")
}

// checkFlags returns an error for an invalid combination of flags of a check in Redis.
func (o *redisOptions) checkFlags(cmd *cobra.Command, c *checkOptions) error {
	switch {
	case c.server != "":
		return usage(cmd, "--redis-addr and --server are both given, but either Redis decides or a node does")
	case c.rules == "":
		return usage(cmd, "no rules are named: Redis has counters, but no rules; give the nodes' file with --rules")
	case c.at != "":
		return usage(cmd, "--at is for counters in memory: Redis decides by its own clock")
	}
	return nil
}

// readSecret reads a file without a final line break, which editors add. It prints a
// note if other users may read the file.
func (a *app) readSecret(kind, name string) (string, error) {
	if name == "" {
		return "", nil
	}
	text, warning, err := smallfile.ReadSecret(kind, name, smallfile.MaxSecret)
	if warning != "" {
		a.note("%s", warning)
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"), err
}

// openRedis returns a node in this process that counts in Redis.
func (a *app) openRedis(ctx context.Context, o *redisOptions, f rulesFile) (*weir.Node, error) {
	password, err := a.readSecret("password file", o.passwordFile)
	if err != nil {
		return nil, err
	}
	secret, err := a.readSecret("secret file", o.secretFile)
	if err != nil {
		return nil, err
	}
	redisstore.LogClientTo(slog.New(slog.DiscardHandler)) // problems are in the returned errors
	store, err := redisstore.Open(ctx, redisstore.Config{
		Addrs: strings.Split(o.addr, ","), Cluster: o.cluster, DB: o.db, Username: o.username, Password: password,
		Prefix: o.prefix, Timeout: askTimeout,
	})
	if err != nil {
		return nil, err
	}
	n, err := weir.Open(ctx, weir.Config{
		Rules: f.data, RulesName: f.name, Backend: store, ClusterName: o.clusterName, Secret: []byte(secret),
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("rules file %s: %w", f.name, err), store.Close())
	}
	return n, nil
}

// checkRedis decides in Redis.
func (a *app) checkRedis(cmd *cobra.Command, o checkOptions, r *limiter.Request) error {
	files, err := a.loadRules([]string{o.rules})
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	node, err := a.openRedis(ctx, &o.redis, files[0])
	if err != nil {
		return err
	}
	return a.repeat(o, node, func() (checked, error) { return o.redis.ask(ctx, node, r, a.Now(), o.explain) })
}

// ask checks once. It returns an error if a policy decided instead of Redis.
func (o *redisOptions) ask(ctx context.Context, node *weir.Node, r *limiter.Request, at time.Time,
	explain bool) (checked, error) {
	if _, err := node.Explain(ctx, *r); err != nil {
		if errors.Is(err, limiter.ErrInvalid) {
			return checked{}, err
		}
		return checked{}, o.unusable(err)
	}
	c, err := checkOnce(ctx, node, r, at, explain)
	if err == nil && strings.HasPrefix(c.answer.Source, "fallback") {
		return c, o.unusable(errors.New("it did not decide the check"))
	}
	return c, err
}

func (o *redisOptions) unusable(err error) error {
	return unreachableError{fmt.Errorf("redis %s cannot be used: %w", o.addr, err)}
}

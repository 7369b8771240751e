package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/weirlimit/weir/limiter"
)

// Config states where Redis is and how it is used. Only Addrs is required.
type Config struct {
	// Addrs are the host:port of the server, or of some nodes of a Redis Cluster (if
	// there are several addresses, or Cluster is set), or of the Sentinels (if
	// SentinelMaster is set). A path that begins with / is a Unix socket.
	Addrs []string
	// Cluster treats a single address as one of a Redis Cluster.
	Cluster bool
	// SentinelMaster is the name of the server in the Sentinels.
	SentinelMaster string
	// Username and Password authenticate the connections; default none. A user name needs a password.
	Username, Password string
	// DB is the number of the database; default 0. A Cluster has only 0.
	DB int
	// TLS, if not nil, encrypts connections.
	TLS *tls.Config
	// Replicas is how many replicas must have a charge before it is answered; default 0: a failover
	// loses what the master had not sent yet. With 1 or more each round trip ends with WAIT, so it
	// takes as long as the slowest of so many replicas. While fewer answer, the policies of the rules
	// decide, as if Redis were gone. At most 16.
	Replicas int
	// Timeout is how long a check, or a batch of checks as a whole, waits for Redis,
	// queueing included, before the policy of its rule decides; default 300 ms, at least
	// 1 ms, at most a minute. A lower value answers sooner while Redis is slow. If it is
	// too low, a short pause of Redis counts as an outage, and policies decide the last
	// checks of a batch on a Redis Cluster that takes many rounds, see [Store.Decide].
	Timeout time.Duration
	// Nodes is how many processes share the limits; default 1. With the policy local,
	// each decides with its share, 1/Nodes of a limit, while Redis cannot be used.
	Nodes int
	// Prefix is the prefix of all keys; default "weir:". It must not contain braces.
	Prefix string
	// Queue bounds the checks (a batch counts as one) that wait for one server; default
	// 4096. At the bound the policy decides. A higher bound absorbs longer bursts.
	Queue int
	// Log receives messages when Redis cannot be used, and when it can be used again;
	// default none.
	Log *slog.Logger
	// Observe, if not nil, is called for each round trip with the number of its calls,
	// its duration, and the first error. It is called from several goroutines and must
	// be quick.
	Observe func(calls int, took time.Duration, err error)
}

const (
	defaultTimeout = 300 * time.Millisecond
	defaultPrefix  = "weir:"
	defaultQueue   = 4096
	maxReplicas    = 16
	minTimeout     = time.Millisecond
	maxTimeout     = time.Minute
)

// complete fills in defaults and returns an error for an invalid configuration.
func (c *Config) complete() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w Redis configuration: "+format, append([]any{limiter.ErrInvalid}, args...)...))
	}
	if len(c.Addrs) == 0 || slices.Contains(c.Addrs, "") {
		bad("an address is missing; give host:port")
	}
	if c.DB < 0 || c.DB > 0 && c.clustered() {
		bad("there is no database %d: give 0 or more, and 0 for a Redis Cluster", c.DB)
	}
	if c.Username != "" && c.Password == "" {
		bad("user %q has no password, so it would not be used: give one", c.Username)
	}
	if c.SentinelMaster != "" && c.Cluster {
		bad("it is either behind Sentinels or a Redis Cluster, not both")
	}
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.Nodes = cmp.Or(c.Nodes, 1)
	c.Queue = cmp.Or(c.Queue, defaultQueue)
	c.Prefix = cmp.Or(c.Prefix, defaultPrefix)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Timeout < minTimeout || c.Timeout > maxTimeout {
		bad("timeout %v is out of range: give 1ms to 1m", c.Timeout)
	}
	if c.Replicas < 0 || c.Replicas > maxReplicas {
		bad("%d replicas are out of range: give 0 to %d", c.Replicas, maxReplicas)
	}
	if c.Nodes < 0 || c.Queue < 0 {
		bad("nodes %d and queue %d must not be negative", c.Nodes, c.Queue)
	}
	if slices.ContainsFunc([]byte(c.Prefix), func(b byte) bool { return b == '{' || b == '}' }) {
		bad("prefix %q has a brace, which chooses the slot of a key", c.Prefix)
	}
	return errors.Join(errs...)
}

func (c *Config) clustered() bool {
	return c.SentinelMaster == "" && (c.Cluster || len(c.Addrs) > 1)
}

// deadline returns the instant until which a check that starts now waits.
func (c *Config) deadline() time.Time { return time.Now().Add(c.Timeout) }

// newClient returns a client. It calls a function, if that is not nil, with each connection before it is used.
func (c *Config) newClient(connected func(context.Context, *redis.Conn) error) redis.UniversalClient {
	if !c.clustered() {
		return redis.NewUniversalClient(c.options(connected))
	}
	o := c.options(connected).Cluster()
	// With these policies the client asks for the list of all commands before the first one,
	// for up to 5 s whatever the context, and access lists would have to allow it.
	o.DisableRoutingPolicies = true
	return redis.NewClusterClient(o)
}

// options returns the options of a client. The client does not retry: a script that may
// have run must not run again.
func (c *Config) options(connected func(context.Context, *redis.Conn) error) *redis.UniversalOptions {
	return &redis.UniversalOptions{
		Addrs: slices.Clone(c.Addrs), IsClusterMode: c.clustered(), MasterName: c.SentinelMaster,
		Username: c.Username, Password: c.Password, DB: c.DB, TLSConfig: c.TLS,
		Protocol: 2, DisableIdentity: true, OnConnect: connected,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		MaxRetries:               -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: c.Timeout, ReadTimeout: c.Timeout, WriteTimeout: c.Timeout, PoolTimeout: c.Timeout,
		PoolSize: 64, PipelinePoolSize: -1,
	}
}

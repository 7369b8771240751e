package app

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cmd/node/internal/server"
	"github.com/weirlimit/weir/internal/built"
	"github.com/weirlimit/weir/internal/smallfile"
)

// defaultMaxKeys is the default of weir.Config, for the help text.
const defaultMaxKeys = 10_000_000

// options are the values of flags and environment.
type options struct {
	grpcAddr, httpAddr, redisListen              address
	adminAddr, healthAddr                        apartAddress
	adminHosts, httpHosts                        string
	rules                                        string
	maxKeys                                      positive
	maxBytes                                     size
	overflow                                     choice
	secretFile, secondSecretFile                 string
	permissions, audit                           string
	denials                                      denialOptions
	clusterName                                  string
	allowRequestLimits, allowReset, allowRefunds bool
	shareRing, strict                            bool
	shutdownDelay, shutdownTimeout               time.Duration
	logLevel                                     choice
	redis                                        redisOptions
	cluster                                      clusterOptions
	bounds                                       boundOptions
	envoy                                        envoyOptions
	auth                                         authOptions
	gubernator                                   gubernatorOptions
	tls                                          tlsOptions
	trace                                        traceOptions
	member                                       bool // the node is a member of a cluster
	clockOffset                                  time.Duration
}

func newOptions() *options {
	return &options{
		grpcAddr: "127.0.0.1:8081", httpAddr: "127.0.0.1:8080",
		adminAddr: apartAddress{"127.0.0.1:8082", true}, healthAddr: apartAddress{"127.0.0.1:8083", false},
		maxKeys: defaultMaxKeys, clusterName: "weir",
		overflow:        choice{"deny", []string{"deny", "allow"}},
		logLevel:        choice{"info", []string{"debug", "info", "warn", "error"}},
		shutdownTimeout: 15 * time.Second,
		redis:           newRedisOptions(),
		cluster:         newClusterOptions(),
		bounds:          newBoundOptions(),
		envoy:           newEnvoyOptions(),
		tls:             newTLSOptions(),
		trace:           newTraceOptions(),
		denials:         newDenialOptions(),
	}
}

// addCommonFlags adds the flags of every command that runs a node.
func (o *options) addCommonFlags(f *pflag.FlagSet) {
	f.SortFlags = false
	f.Var(&o.httpAddr, "http-addr", "serve HTTP at `HOST:PORT`; port 0 selects a free one")
	f.Var(&o.grpcAddr, "grpc-addr", "serve gRPC at `HOST:PORT`")
	f.Var(&o.adminAddr, "admin-addr", "serve administration at `HOST:PORT`, unix:PATH or off")
	f.Var(&o.logLevel, "log-level", "lowest `LEVEL` to log: debug, info, warn or error")
	f.DurationVar(&o.shutdownTimeout, "shutdown-timeout", o.shutdownTimeout,
		"exit at most this long after SIGTERM; cut off unfinished requests")
}

func (o *options) addServeFlags(f *pflag.FlagSet) {
	f.SortFlags = false
	f.StringVar(&o.rules, "rules", "", "rules `FILE`, read again when it changes (default none: all requests are allowed)")
	f.BoolVar(&o.strict, "strict", false, "refuse a rules file with warnings; without it they are logged")
	o.addCommonFlags(f)
	f.DurationVar(&o.shutdownDelay, "shutdown-delay", 0,
		"keep serving this long after /readyz fails, so that load balancers notice")
	f.Var(&o.maxKeys, "max-keys", "hold at most `N` counters, one per key and limit; 10 million take 800 MB")
	f.Var(&o.maxBytes, "max-bytes", "hold them in at most `SIZE`, such as 2GiB; auto is 256 bytes for each")
	f.Var(&o.overflow, "overflow", "`MODE` for new keys beyond these bounds: deny or allow")
	o.bounds.addFlags(f)
	o.cluster.addFlags(f)
	o.redis.addFlags(f)
	o.envoy.addFlags(f)
	o.auth.addFlags(f)
	f.Var(&o.redisListen, "redis-listen", "serve the Redis protocol, with CL.THROTTLE, at `HOST:PORT` (default nowhere)")
	o.gubernator.addFlags(f)
	o.tls.addFlags(f)
	o.trace.addFlags(f)
	f.BoolVar(&o.allowRequestLimits, "allow-request-limits", false, "accept limits that come with requests")
	f.BoolVar(&o.allowReset, "allow-reset", false, "accept requests to reset counters")
	f.BoolVar(&o.allowRefunds, "allow-refunds", false, "give receipts, and take charges back by them")
	f.StringVar(&o.permissions, "permissions", "",
		"permissions `FILE`: who may do what, in place of the three flags above (default none)")
	f.StringVar(&o.audit, "audit", "", "append to `FILE`, or stderr, who changed things or was refused")
	o.denials.addFlags(f)
	f.BoolVar(&o.shareRing, "share-ring", false,
		"tell clients which member owns which counter, with the rules and the hash seeds")
	f.StringVar(&o.clusterName, "cluster-name", o.clusterName, "`NAME` of the cluster, the same on all members")
	f.StringVar(&o.secretFile, "secret-file", "", "`FILE` with the secret that keys the hash of counters (default none)")
	f.StringVar(&o.secondSecretFile, "second-secret-file", "",
		"`FILE` with the secret to come, or that was before: all is counted under both")
	f.Var(&o.healthAddr, "health-addr", "serve /healthz and /readyz at `HOST:PORT` too, or off")
	f.StringVar(&o.adminHosts, "admin-host", "",
		"accept this host `NAME` in requests for administration; several with commas")
	f.StringVar(&o.httpHosts, "http-host", "",
		"accept this host `NAME` in requests of browsers to --http-addr; several with commas")
}

// addTestFlags adds flags for tests of clusters. They are hidden from the help, and no
// environment variable sets them.
func (o *options) addTestFlags(f *pflag.FlagSet) {
	const name = "test-clock-offset"
	f.DurationVar(&o.clockOffset, name, 0, "for tests: shift the clock of counters by this much")
	_ = f.MarkHidden(name) // fails only for an unknown flag
}

// completeFlags registers shell completions for the values of flags.
func completeFlags(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		complete := cobra.NoFileCompletions
		switch v := f.Value.(type) {
		case *choice:
			complete = cobra.FixedCompletions(v.all, cobra.ShellCompDirectiveNoFileComp)
		default:
			switch f.Name {
			case "envoy-config":
				complete = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
			case "rules":
				complete = cobra.FixedCompletions([]string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt)
			case "secret-file", "second-secret-file", "permissions", "audit", "denial-log", "gossip-key-file",
				"redis-password-file",
				"redis-ca-file", "redis-cert", "redis-key", "peer-cert", "peer-key", "peer-ca", "tls-cert", "tls-key", "client-ca",
				"admin-client-ca", "envoy-body", "envoy-xds-ca", "envoy-xds-cert", "envoy-xds-key":
				complete = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
					return nil, cobra.ShellCompDirectiveDefault
				}
			}
		}
		_ = cmd.RegisterFlagCompletionFunc(f.Name, complete) // fails only for an unknown flag
	})
}

// validate returns an error for an invalid combination of flags.
func (o *options) validate(cmd *cobra.Command) error {
	switch {
	case o.httpAddr == "" || o.grpcAddr == "":
		return usage(cmd, "--http-addr and --grpc-addr must not be empty: give HOST:PORT, such as 127.0.0.1:8080")
	case o.shutdownTimeout < 100*time.Millisecond || o.shutdownTimeout > time.Hour:
		return usage(cmd, "--shutdown-timeout %v is out of range: give 100ms to 1h", o.shutdownTimeout)
	case o.shutdownDelay < 0 || o.shutdownDelay >= o.shutdownTimeout:
		return usage(cmd, "--shutdown-delay %v is out of range: it is part of --shutdown-timeout, which is %v",
			o.shutdownDelay, o.shutdownTimeout)
	case o.permissions != "" && (o.allowRequestLimits || o.allowReset || o.allowRefunds):
		return usage(cmd, "--permissions decides in place of --allow-request-limits, --allow-reset and --allow-refunds: "+
			"leave these out")
	case o.clusterName == "":
		return usage(cmd, "--cluster-name must not be empty")
	}
	for _, validate := range []func(*cobra.Command) error{
		o.bounds.validate, o.envoy.validate, o.auth.validate,
		func(cmd *cobra.Command) error {
			return o.gubernator.validate(cmd, o.allowRequestLimits || o.permissions != "")
		}, o.tls.validate, o.trace.validate,
	} {
		if err := validate(cmd); err != nil {
			return err
		}
	}
	o.member = cmd.Flags().Lookup("join") != nil && o.cluster.wanted(cmd)
	if err := o.cluster.validate(cmd, o.redis.backend.value == "redis"); err != nil {
		return err
	}
	if o.shareRing && !o.member {
		return usage(cmd, "--share-ring is for a member of a cluster: give --name or --join too")
	}
	if err := o.denials.validate(cmd); err != nil {
		return err
	}
	if o.envoy.quotaAddr != "" && o.redis.backend.value == "redis" {
		return usage(cmd, "--rlqs-addr is not for --backend redis, which lends nothing: use members")
	}
	return o.redis.validate(cmd)
}

// idle logs the flags that have no effect, because another one is not given. They are no error: nodes may share a file
// of environment variables.
func (o *options) idle(f *pflag.FlagSet, log *slog.Logger) {
	f.VisitAll(func(g *pflag.Flag) {
		needs := ""
		switch {
		case !g.Changed || g.Value.String() == g.DefValue:
		case strings.HasPrefix(g.Name, "envoy-") && !o.envoy.wanted():
			needs = "--envoy-addr or --rlqs-addr"
		case (g.Name == "persist-interval" || g.Name == "restore-wait") && o.cluster.dataDir == "":
			needs = "--data-dir"
		}
		if needs != "" {
			log.Warn("a flag has no effect: another one is not given", "flag", "--"+g.Name, "needs", needs)
		}
	})
}

// names splits a list of names at commas and blanks.
func names(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func (o *options) config(log *slog.Logger) (server.Config, error) {
	c := server.Config{
		GRPCAddr: string(o.grpcAddr), HTTPAddr: string(o.httpAddr), RedisListen: string(o.redisListen),
		AdminAddr: o.adminAddr.text, HealthAddr: o.healthAddr.text, RulesFile: o.rules, StrictRules: o.strict,
		AdminHosts: names(o.adminHosts), HTTPHosts: names(o.httpHosts),
		MaxKeys: int(o.maxKeys), MaxBytes: int64(o.maxBytes), Overflow: weir.OverflowDeny, ClusterName: o.clusterName,
		Replication:        o.cluster.copying(),
		AllowRequestLimits: o.allowRequestLimits, AllowReset: o.allowReset, AllowRefunds: o.allowRefunds,
		ShareRing:   o.shareRing,
		Permissions: o.permissions, Audit: o.audit,
		ShutdownDelay: o.shutdownDelay, ShutdownTimeout: o.shutdownTimeout, Version: built.Version(), Log: log,
		Denials:     o.denials.config(),
		ClockOffset: o.clockOffset, TLS: o.tls.config(), Trace: o.trace.config(),
	}
	if o.overflow.value == "allow" {
		c.Overflow = weir.OverflowAllow
	}
	o.bounds.fill(&c)
	o.auth.fill(&c)
	o.gubernator.fill(&c)
	var err error
	if o.envoy.wanted() {
		if c.Envoy, err = o.envoy.config(); err != nil {
			return c, err
		}
	}
	if c.Cluster, err = o.cluster.config(log, o.member); err != nil {
		return c, err
	}
	if c.Redis, err = o.redis.config(log); err != nil {
		return c, err
	}
	if o.secretFile == "" {
		if o.secondSecretFile != "" {
			err = errors.New("--second-secret-file is given without --secret-file: give the secret that is in force there")
		}
		return c, err
	}
	if c.Secret, err = readSecret(log, "secret file", o.secretFile); err == nil && o.secondSecretFile != "" {
		c.SecondSecret, err = readSecret(log, "second secret file", o.secondSecretFile)
		if err == nil && bytes.Equal(c.Secret, c.SecondSecret) {
			err = errors.New("--secret-file and --second-secret-file have the same secret: give the one that is to come, or " +
				"that was before, as the second")
		}
	}
	return c, err
}

// readSecret reads a file without a final line break, which editors add. It logs a
// warning if other users may read the file.
func readSecret(log *slog.Logger, kind, name string) ([]byte, error) {
	data, warning, err := smallfile.ReadSecret(kind, name, smallfile.MaxSecret)
	if err != nil {
		return nil, err
	}
	if warning != "" {
		log.Warn(warning)
	}
	return lastLine(kind, name, data)
}

// lastLine removes a final line break.
func lastLine(kind, name string, data []byte) ([]byte, error) {
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if text == "" {
		return nil, fmt.Errorf("%s %s is empty", kind, name)
	}
	return []byte(text), nil
}

// address is a flag with a host:port.
type address string

func (a *address) String() string { return string(*a) }
func (a *address) Type() string   { return "HOST:PORT" }
func (a *address) Set(text string) error {
	if text != "" {
		_, port, err := net.SplitHostPort(text)
		if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n > 65535 {
			return errors.New("give HOST:PORT, such as 127.0.0.1:8080")
		}
	}
	*a = address(text)
	return nil
}

// apartAddress is a flag with the address of something served apart from checks:
// host:port, unix:PATH if a socket is allowed, or "" for none.
type apartAddress struct {
	text   string
	socket bool
}

func (a *apartAddress) String() string { return a.text }
func (a *apartAddress) Type() string   { return "ADDRESS" }
func (a *apartAddress) Set(text string) error {
	path, isSocket := strings.CutPrefix(text, "unix:")
	switch {
	case strings.EqualFold(text, "off"):
		text = "" // an empty environment variable counts as unset
	case a.socket && isSocket && path == "":
		return errors.New("give unix:PATH, such as unix:/run/weir/admin.sock")
	case a.socket && isSocket:
	case new(address).Set(text) != nil && a.socket:
		return errors.New("give HOST:PORT, such as 127.0.0.1:8082, unix:PATH, or off")
	case new(address).Set(text) != nil:
		return errors.New("give HOST:PORT, such as 127.0.0.1:8083, or off")
	}
	a.text = text
	return nil
}

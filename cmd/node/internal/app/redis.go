package app

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/internal/smallfile"
	"github.com/weirlimit/weir/redisstore"
)

// redisOptions are the flags for counting in Redis.
type redisOptions struct {
	backend        choice
	addrs          addresses
	cluster        bool
	sentinelMaster string
	db             int
	username       string
	passwordFile   string
	tls            bool
	caFile         string
	certFile       string
	keyFile        string
	prefix         string
	replicas       int
	timeout        time.Duration
	nodes          positive
}

func newRedisOptions() redisOptions {
	return redisOptions{
		backend: choice{"memory", []string{"memory", "redis"}},
		timeout: 300 * time.Millisecond, nodes: 1,
	}
}

func (o *redisOptions) addFlags(f *pflag.FlagSet) {
	f.Var(&o.backend, "backend", "keep counters in `WHERE`: memory or redis")
	f.Var(&o.addrs, "redis-addr",
		"`HOST:PORT` of Redis, or a socket's path; several with commas for a Cluster or Sentinels")
	f.BoolVar(&o.cluster, "redis-cluster", false, "treat a single address as a Redis Cluster (several always are)")
	f.StringVar(&o.sentinelMaster, "redis-sentinel-master", "",
		"the addresses are of Sentinels that know Redis by this `NAME`")
	f.IntVar(&o.db, "redis-db", 0, "use database `N`")
	f.StringVar(&o.username, "redis-username", "", "log in as `NAME`")
	f.StringVar(&o.passwordFile, "redis-password-file", "", "log in with the password in `FILE`")
	f.BoolVar(&o.tls, "redis-tls", false, "encrypt connections to Redis")
	f.StringVar(&o.caFile, "redis-ca-file", "", "trust the certificates in `FILE`, for --redis-tls (default the system's)")
	f.StringVar(&o.certFile, "redis-cert", "", "`FILE` with this node's certificate for Redis, for --redis-tls")
	f.StringVar(&o.keyFile, "redis-key", "", "`FILE` with the key of that certificate")
	f.StringVar(&o.prefix, "redis-prefix", "weir:", "begin the names of all keys with `TEXT`")
	f.IntVar(&o.replicas, "redis-replicas", 0,
		"answer a check when `N` replicas of Redis have it, so that a failover loses nothing")
	f.DurationVar(&o.timeout, "redis-timeout", o.timeout, "answer by policy if Redis has not answered after this long")
	f.Var(&o.nodes, "redis-nodes", "`N` nodes share a limit under policy local while Redis is unavailable")
}

// given returns the name of a flag about Redis that has another value than without it; "" if none has.
func (o *redisOptions) given(cmd *cobra.Command) (name string) {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(redisOptions).addFlags(own)
	own.VisitAll(func(f *pflag.Flag) {
		set := cmd.Flags().Lookup(f.Name)
		if f.Name != "backend" && name == "" && set != nil && set.Value.String() != set.DefValue {
			name = f.Name
		}
	})
	return name
}

// validate returns an error for an invalid combination of flags.
func (o *redisOptions) validate(cmd *cobra.Command) error {
	redis := o.backend.value == "redis"
	switch {
	case redis && len(o.addrs) == 0:
		return usage(cmd, "--backend redis needs --redis-addr: give HOST:PORT, such as 127.0.0.1:6379")
	case !redis && o.given(cmd) != "":
		return usage(cmd, "--%s is given, but counters are kept in memory: give --backend redis too", o.given(cmd))
	case redis && o.prefix == "":
		return usage(cmd, "--redis-prefix is empty: give a text, or leave it out for weir:")
	case o.username != "" && o.passwordFile == "":
		return usage(cmd, "--redis-username is for --redis-password-file, which is not given")
	case o.cluster && o.sentinelMaster != "":
		return usage(cmd, "--redis-cluster and --redis-sentinel-master are both given, but Redis is one or the other")
	case o.db < 0 || o.db > 0 && (o.cluster || len(o.addrs) > 1 && o.sentinelMaster == ""):
		return usage(cmd, "--redis-db %d is out of range: give 0 or more, and 0 for a Redis Cluster", o.db)
	case o.timeout < time.Millisecond || o.timeout > time.Minute:
		return usage(cmd, "--redis-timeout %v is out of range: give 1ms to 1m", o.timeout)
	case o.caFile != "" && !o.tls:
		return usage(cmd, "--redis-ca-file is for --redis-tls, which is not given")
	case (o.certFile != "" || o.keyFile != "") && !o.tls:
		return usage(cmd, "--redis-cert and --redis-key are for --redis-tls, which is not given")
	case (o.certFile == "") != (o.keyFile == ""):
		return usage(cmd, "--redis-cert and --redis-key belong together: give both or neither")
	case strings.ContainsAny(o.prefix, "{}"):
		return usage(cmd, "--redis-prefix %q has a brace, which chooses the slot of a key: leave it out", o.prefix)
	case o.replicas < 0 || o.replicas > 16:
		return usage(cmd, "--redis-replicas %d is out of range: give 0 to 16", o.replicas)
	}
	return nil
}

// config returns how to use Redis, nil if it is not used.
func (o *redisOptions) config(log *slog.Logger) (*redisstore.Config, error) {
	if o.backend.value != "redis" {
		return nil, nil
	}
	c := &redisstore.Config{
		Addrs: o.addrs, Cluster: o.cluster, SentinelMaster: o.sentinelMaster, DB: o.db, Username: o.username,
		Timeout: o.timeout, Nodes: int(o.nodes), Log: log, Prefix: o.prefix, Replicas: o.replicas,
	}
	if o.passwordFile != "" {
		password, err := readSecret(log, "password file", o.passwordFile)
		if err != nil {
			return nil, err
		}
		c.Password = string(password)
	}
	if !o.tls {
		return c, nil
	}
	c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if o.certFile != "" {
		if _, err := o.certificate(log); err != nil {
			return nil, err
		}
		// The files are read for each connection, so that a renewed certificate needs no restart.
		c.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return o.certificate(log) }
	}
	if o.caFile != "" {
		text, err := smallfile.ReadTrusted("certificate file", o.caFile, smallfile.MaxCertificates)
		if err != nil {
			return nil, err
		}
		c.TLS.RootCAs = x509.NewCertPool()
		if !c.TLS.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("certificate file %s has no certificate in PEM form", o.caFile)
		}
	}
	return c, nil
}

// certificate reads the node's certificate for Redis.
func (o *redisOptions) certificate(log *slog.Logger) (*tls.Certificate, error) {
	chain, err := smallfile.ReadTrusted("certificate file", o.certFile, smallfile.MaxCertificates)
	if err != nil {
		return nil, err
	}
	key, err := readSecret(log, "key file", o.keyFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, fmt.Errorf("certificate file %s and key file %s cannot be used: %w", o.certFile, o.keyFile, err)
	}
	return &pair, nil
}

// addresses is a flag with several host:port, or paths.
type addresses []string

func (a *addresses) String() string { return strings.Join(*a, ",") }
func (a *addresses) Type() string   { return "HOST:PORT" }
func (a *addresses) Set(text string) error {
	*a = nil
	if text == "" {
		return nil
	}
	for _, one := range strings.Split(text, ",") {
		var valid address
		if err := valid.Set(one); !strings.HasPrefix(one, "/") && (err != nil || one == "") {
			return errors.New("give HOST:PORT, such as 127.0.0.1:6379, or several with commas between")
		}
		if host, _, err := net.SplitHostPort(one); err == nil && host == "" {
			return errors.New("give HOST:PORT: the host is missing")
		}
		*a = append(*a, one)
	}
	return nil
}

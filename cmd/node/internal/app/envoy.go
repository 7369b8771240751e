package app

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/cmd/node/internal/server"
	"github.com/weirlimit/weir/internal/envoy"
	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/internal/smallfile"
	"github.com/weirlimit/weir/limiter"
)

// envoyOptions are the flags of Envoy's rate limit service.
type envoyOptions struct {
	addr, quotaAddr address
	dir, domains    string
	ids             envoyIDs
	mode, algorithm choice
	division        choice // of quotas
	merge           bool
	ignoreDots      bool
	start           bool // without the configuration of xds
	shadow, quota   bool
	headers         bool
	answers         envoyAnswers
	http            string
	needsConfig     bool
	stop            bool
	near            float64
	xds             server.EnvoyXDS
}

// envoyIDs are the flags of ids and of what requests with an id reserve.
type envoyIDs struct {
	name string
	hold time.Duration
}

// envoyAnswers are the flags for what answers have besides statuses.
type envoyAnswers struct {
	requestHeaders, metadata bool
	names, body              string
}

func newEnvoyOptions() envoyOptions {
	return envoyOptions{
		mode:      choice{"compat", []string{"compat", "atomic"}},
		algorithm: choice{"fixed_window", envoy.Algorithms()},
		division:  choice{"strict", []string{"strict", "fast"}},
		near:      0.8,
		ids:       envoyIDs{hold: 10 * time.Minute},
	}
}

func (o *envoyOptions) addFlags(f *pflag.FlagSet) {
	f.Var(&o.addr, "envoy-addr", "serve Envoy's rate limit service over gRPC at `HOST:PORT` (default nowhere)")
	f.Var(&o.quotaAddr, "rlqs-addr",
		"serve Envoy's rate limit quota service at `HOST:PORT` (default nowhere)")
	f.Var(&o.division, "rlqs-division",
		"how rates move: when assignments are over, or (fast) at once")
	f.StringVar(&o.dir, "envoy-config", "",
		"`DIRECTORY` with its files, in the format of envoyproxy/ratelimit; read again as they change")
	f.BoolVar(&o.ignoreDots, "envoy-ignore-dotfiles", false, "leave out files whose names begin with a dot")
	f.Var(&o.mode, "envoy-mode", "charge each descriptor by itself, or (atomic) all or none")
	f.Var(&o.algorithm, "envoy-algorithm", "`ALGORITHM` of all limits of these files")
	f.StringVar(&o.domains, "envoy-domain", "",
		"`DOMAIN` whose limits come with the descriptors, without a file; several with commas")
	f.StringVar(&o.ids.name, "envoy-id", "",
		"take ids of requests from the descriptor entry or header `NAME` (default none)")
	f.DurationVar(&o.ids.hold, "envoy-hold", o.ids.hold, "how long a reservation lasts that nobody settles")
	f.BoolVar(&o.merge, "envoy-merge-domains", false, "let several files describe one domain")
	f.BoolVar(&o.shadow, "envoy-shadow", false, "answer every request with OK; the statuses of descriptors stay")
	f.BoolVar(&o.quota, "envoy-quota", false, "deny a request only if all of its limits deny it")
	f.BoolVar(&o.headers, "envoy-headers", false, "add RateLimit-Limit, -Remaining and -Reset to responses")
	f.BoolVar(&o.answers.requestHeaders, "envoy-request-headers", false, "add them to the requests that Envoy forwards")
	f.StringVar(&o.answers.names, "envoy-header-names", "", "the three `NAMES` of these headers, with commas")
	f.StringVar(&o.answers.body, "envoy-body", "", "`FILE` with the body of denials")
	f.BoolVar(&o.answers.metadata, "envoy-metadata", false,
		"add dynamic metadata to answers: the request, and metadata of limits")
	f.BoolVar(&o.stop, "envoy-stop-when-over", false,
		"in compat mode, charge a denied request only where it is over the limit")
	f.Float64Var(&o.near, "envoy-near-limit", o.near, "`PART` of a limit from which hits count as near it, in metrics")
	f.StringVar(&o.http, "envoy-http-addr", "",
		"serve /healthcheck, /json, /rlconfig and /metrics at `HOST:PORT`; several with commas")
	f.BoolVar(&o.needsConfig, "envoy-health-needs-config", false, "/healthcheck fails until there is a configuration")
	f.StringVar(&o.xds.Addr, "envoy-xds", "", "take the configuration from the xDS management server at `HOST:PORT`")
	f.BoolVar(&o.start, "envoy-start-without-config", false,
		"be ready, and answer, before that server has sent a configuration")
	f.StringVar(&o.xds.NodeID, "envoy-xds-node", "default", "`ID` of this node for that server")
	f.StringVar(&o.xds.CAFile, "envoy-xds-ca", "",
		"`FILE` with the authorities of that server's certificate (default: no TLS)")
	f.StringVar(&o.xds.ServerName, "envoy-xds-server-name", "",
		"`NAME` in that certificate (default the host of --envoy-xds)")
	f.StringVar(&o.xds.CertFile, "envoy-xds-cert", "", "`FILE` with this node's certificate for that server")
	f.StringVar(&o.xds.KeyFile, "envoy-xds-key", "", "`FILE` with its key")
}

func (o *envoyOptions) wanted() bool { return o.addr != "" || o.quotaAddr != "" }

func (o *envoyOptions) validate(cmd *cobra.Command) error {
	x := &o.xds
	switch {
	case !o.wanted() && (o.dir != "" || o.domains != "" || o.http != "" || x.Addr != ""):
		return usage(cmd, "--envoy-config, --envoy-xds, --envoy-domain and --envoy-http-addr are for --envoy-addr and "+
			"--rlqs-addr: give one of them too, such as --envoy-addr 127.0.0.1:8085")
	case o.quotaAddr == "" && o.division.value == "fast":
		return usage(cmd, "--rlqs-division is for --rlqs-addr: give both")
	case o.quotaAddr != "" && o.dir == "" && x.Addr == "":
		return usage(cmd, "--rlqs-addr needs limits: give --envoy-config DIRECTORY or --envoy-xds HOST:PORT")
	case o.wanted() && o.dir == "" && o.domains == "" && x.Addr == "":
		return usage(cmd, "--envoy-addr needs limits: give --envoy-config DIRECTORY, --envoy-xds HOST:PORT, or "+
			"--envoy-domain for limits that come with requests")
	case o.dir != "" && x.Addr != "":
		return usage(cmd, "the limits come from --envoy-config or from --envoy-xds: give one of them")
	case x.Addr == "" && (x.CAFile != "" || x.CertFile != "" || x.KeyFile != "" || x.ServerName != ""):
		return usage(cmd, "--envoy-xds-ca, --envoy-xds-cert, --envoy-xds-key and --envoy-xds-server-name are for "+
			"--envoy-xds: give it too")
	case x.Addr != "" && new(address).Set(x.Addr) != nil:
		return usage(cmd, "--envoy-xds %q is not valid: give HOST:PORT, such as envoy-gateway:18001", x.Addr)
	case o.start && x.Addr == "":
		return usage(cmd, "--envoy-start-without-config is for --envoy-xds: give it too")
	case (x.CertFile == "") != (x.KeyFile == ""):
		return usage(cmd, "--envoy-xds-cert and --envoy-xds-key belong together: give both or neither")
	case !(o.near > 0 && o.near <= 1): // NaN too
		return usage(cmd, "--envoy-near-limit %v is out of range: give a part above 0 and up to 1, such as 0.8", o.near)
	case o.ids.hold < limiter.MinHold || o.ids.hold > limiter.MaxHold:
		return usage(cmd, "--envoy-hold %v is out of range: give %v to %v", o.ids.hold, limiter.MinHold, limiter.MaxHold)
	case o.stop && o.mode.value != "compat":
		return usage(cmd, "--envoy-stop-when-over is for --envoy-mode compat: a denial costs nothing in atomic mode")
	case o.answers.names != "" && len(names(o.answers.names)) != 3:
		return usage(cmd, "--envoy-header-names %q is not valid: give three names, for the limit, the rest and the reset",
			o.answers.names)
	}
	addrs := names(o.http)
	if len(addrs) > 4 {
		return usage(cmd, "--envoy-http-addr has %d addresses: give at most 4", len(addrs))
	}
	for _, a := range addrs {
		if new(address).Set(a) != nil {
			return usage(cmd, "--envoy-http-addr %q is not valid: give HOST:PORT, such as 127.0.0.1:8080", a)
		}
	}
	return nil
}

// maxBody bounds the body of denials, in bytes.
const maxBody = 16 << 10

// config returns the configuration of the service, which is wanted.
func (o *envoyOptions) config() (*server.EnvoyConfig, error) {
	c := &server.EnvoyConfig{
		Addr: string(o.addr), QuotaAddr: string(o.quotaAddr), HTTPAddrs: names(o.http), NeedsConfig: o.needsConfig,
		Dir: o.dir, IgnoreDotFiles: o.ignoreDots, StartWithoutConfig: o.start,
		Files: config.Options{MergeDomains: o.merge},
		Options: envoy.Options{
			Shadow: o.shadow, Quota: o.quota, Headers: o.headers, Overrides: make(map[string]bool),
			RequestHeaders: o.answers.requestHeaders, Metadata: o.answers.metadata,
			FastQuotas:   o.division.value == "fast",
			StopWhenOver: o.stop, ID: o.ids.name, Hold: o.ids.hold, NearLimit: o.near,
		},
	}
	if o.xds.Addr != "" {
		c.XDS = new(o.xds)
	}
	if o.mode.value == "atomic" {
		c.Options.Mode = envoy.Atomic
	}
	c.Options.Algorithm, _ = envoy.AlgorithmOf(o.algorithm.value) // one of the flag's
	for _, domain := range names(o.domains) {
		c.Options.Overrides[domain] = true
	}
	copy(c.Options.HeaderNames[:], names(o.answers.names))
	if o.answers.body != "" {
		var err error
		if c.Options.Body, err = smallfile.Read("body of denials", o.answers.body, maxBody); err != nil {
			return nil, err
		}
	}
	return c, nil
}

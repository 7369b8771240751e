package app

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/cmd/node/internal/server"
	"github.com/weirlimit/weir/internal/envoy"
	"github.com/weirlimit/weir/internal/envoy/config"
)

// envoyOptions are the flags of Envoy's rate limit service.
type envoyOptions struct {
	addr            address
	dir, domains    string
	mode, algorithm choice
	merge           bool
	shadow, quota   bool
	headers         bool
}

func newEnvoyOptions() envoyOptions {
	return envoyOptions{
		mode:      choice{"compat", []string{"compat", "atomic"}},
		algorithm: choice{"fixed_window", envoy.Algorithms()},
	}
}

func (o *envoyOptions) addFlags(f *pflag.FlagSet) {
	f.Var(&o.addr, "envoy-addr", "serve Envoy's rate limit service over gRPC at `HOST:PORT` (default nowhere)")
	f.StringVar(&o.dir, "envoy-config", "", "`DIRECTORY` with its files, in the format of envoyproxy/ratelimit; read again as they change")
	f.Var(&o.mode, "envoy-mode", "charge each descriptor by itself, or (atomic) all or none")
	f.Var(&o.algorithm, "envoy-algorithm", "`ALGORITHM` of all limits of these files")
	f.StringVar(&o.domains, "envoy-domain", "", "`DOMAIN` whose limits come with the descriptors, without a file; several with commas")
	f.BoolVar(&o.merge, "envoy-merge-domains", false, "let several files describe one domain")
	f.BoolVar(&o.shadow, "envoy-shadow", false, "answer every request with OK; the statuses of descriptors stay")
	f.BoolVar(&o.quota, "envoy-quota", false, "deny a request only if all of its limits deny it")
	f.BoolVar(&o.headers, "envoy-headers", false, "add RateLimit-Limit, -Remaining and -Reset to responses")
}

// wanted reports whether the service is served.
func (o *envoyOptions) wanted() bool { return o.addr != "" }

func (o *envoyOptions) validate(cmd *cobra.Command) error {
	switch {
	case !o.wanted() && (o.dir != "" || o.domains != ""):
		return usage(cmd, "--envoy-config and --envoy-domain are for --envoy-addr: give it too, such as 127.0.0.1:8085")
	case o.wanted() && o.dir == "" && o.domains == "":
		return usage(cmd, "--envoy-addr needs limits: give --envoy-config DIRECTORY, or --envoy-domain for limits that come with requests")
	}
	return nil
}

// config returns the configuration of the service, nil if it is not served.
func (o *envoyOptions) config() *server.EnvoyConfig {
	if !o.wanted() {
		return nil
	}
	c := &server.EnvoyConfig{
		Addr: string(o.addr), Dir: o.dir, Files: config.Options{MergeDomains: o.merge},
		Options: envoy.Options{Shadow: o.shadow, Quota: o.quota, Headers: o.headers, Overrides: make(map[string]bool)},
	}
	if o.mode.value == "atomic" {
		c.Options.Mode = envoy.Atomic
	}
	c.Options.Algorithm, _ = envoy.AlgorithmOf(o.algorithm.value) // one of the flag's
	for _, domain := range names(o.domains) {
		c.Options.Overrides[domain] = true
	}
	return c
}

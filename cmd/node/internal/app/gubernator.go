package app

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/cmd/node/internal/server"
)

// gubernatorOptions are the flags of the protocol of Gubernator's clients.
type gubernatorOptions struct {
	addr, http address
	zone       string
}

func (o *gubernatorOptions) addFlags(f *pflag.FlagSet) {
	f.Var(&o.addr, "gubernator-addr", "serve Gubernator's clients over gRPC at `HOST:PORT` (default nowhere)")
	f.Var(&o.http, "gubernator-http-addr", "serve them in JSON over HTTP at `ADDR`, host:port (default nowhere)")
	f.StringVar(&o.zone, "gubernator-zone", "",
		"time `ZONE` of DURATION_IS_GREGORIAN, such as Europe/Berlin (default UTC)")
}

func (o *gubernatorOptions) wanted() bool { return o.addr != "" || o.http != "" }

// validate returns an error for an invalid combination of flags. own says that requests may
// bring their limits, by a flag or by a permissions file.
func (o *gubernatorOptions) validate(cmd *cobra.Command, own bool) error {
	switch {
	case o.wanted() && !own:
		return usage(cmd, "Gubernator's clients bring their limits with each request, and whoever can do that can lift "+
			"limits: give --allow-request-limits too, or --permissions")
	case o.zone != "" && !o.wanted():
		return usage(cmd, "--gubernator-zone is for --gubernator-addr and --gubernator-http-addr: give one of them too, "+
			"such as 127.0.0.1:1051")
	}
	return nil
}

func (o *gubernatorOptions) fill(c *server.Config) {
	c.Gubernator = server.GubernatorConfig{Addr: string(o.addr), HTTPAddr: string(o.http), Zone: o.zone}
}

package app

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/cmd/node/internal/server"
)

type boundOptions struct {
	connections  int // 0: as many as the process can have
	perIP        positive
	age, timeout time.Duration
}

func newBoundOptions() boundOptions {
	return boundOptions{perIP: 4096, age: 30 * time.Minute, timeout: 30 * time.Second}
}

func (o *boundOptions) addFlags(f *pflag.FlagSet) {
	f.IntVar(&o.connections, "max-connections", 0,
		"accept at most `N` connections each for HTTP and for gRPC (0: 16384, or as files allow)")
	f.Var(&o.perIP, "max-connections-per-ip", "accept at most `N` of them from one address, such as a proxy's")
	f.DurationVar(&o.age, "max-connection-age", o.age, "ask clients to open a new gRPC connection after this long")
	f.DurationVar(&o.timeout, "client-timeout", o.timeout,
		"disconnect clients that take this long to send or to read a message")
}

func (o *boundOptions) validate(cmd *cobra.Command) error {
	switch {
	case o.connections < 0:
		return usage(cmd, "--max-connections %d is out of range: give 0 or more", o.connections)
	case o.age < time.Second:
		return usage(cmd, "--max-connection-age %v is out of range: give 1s or more", o.age)
	case o.timeout < time.Second || o.timeout > time.Hour:
		return usage(cmd, "--client-timeout %v is out of range: give 1s to 1h", o.timeout)
	}
	return nil
}

// fill copies the bounds into a server's configuration.
func (o *boundOptions) fill(c *server.Config) {
	c.MaxConnections, c.MaxConnectionsPerAddress = o.connections, int(o.perIP)
	c.MaxConnectionAge, c.ClientTimeout = o.age, o.timeout
}

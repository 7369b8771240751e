package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/internal/dialing"
)

// credentials are the flags of what the tool shows to a node.
type credentials struct{ dialing.Config }

// credentialsEnv begins the names of the environment variables of these flags. Those of a
// node begin otherwise, so that both can be set in one container.
const credentialsEnv = "WEIR_TOOL_"

// texts returns the flags that have a text.
func (c *credentials) texts() map[string]*string {
	return map[string]*string{
		"ca": &c.CAFile, "cert": &c.CertFile, "key": &c.KeyFile, "server-name": &c.ServerName, "token-file": &c.TokenFile,
	}
}

func (c *credentials) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&c.TLS, "tls", false, "ask with TLS, and believe the authorities of the system")
	f.StringVar(&c.CAFile, "ca", "", "ask with TLS, and believe the authorities in `FILE`")
	f.StringVar(&c.CertFile, "cert", "", "ask with TLS, and show the certificate in `FILE`")
	f.StringVar(&c.KeyFile, "key", "", "`FILE` with its key")
	f.StringVar(&c.ServerName, "server-name", "",
		"the host `NAME` that the node's certificate must have (default that of its address)")
	f.StringVar(&c.TokenFile, "token-file", "", "show the bearer token in `FILE`")
}

// open reads the files that flags and environment name, for a node at an address.
func (a *app) open(cmd *cobra.Command, c credentials, server string) (*dialing.Credentials, error) {
	for flag, to := range c.texts() {
		name := credentialsEnv + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
		if a.Getenv != nil && !cmd.Flags().Changed(flag) && *to == "" {
			*to = a.Getenv(name)
		}
	}
	scheme, _, _ := strings.Cut(server, "://")
	switch {
	case scheme == "https":
		c.TLS = true
	case scheme == "http" && c.Secure():
		return nil, usage(cmd,
			"--server %s is without TLS, and flags or environment ask for TLS: give https://, or HOST:PORT", server)
	case (c.CertFile == "") != (c.KeyFile == ""):
		return nil, usage(cmd, "--cert and --key belong together: give both or neither")
	}
	out, err := dialing.Open(c.Config)
	if err != nil {
		return nil, fmt.Errorf("what to show to the node: %w", err)
	}
	return out, nil
}

// schemeOf returns the scheme of addresses that are asked over HTTP.
func schemeOf(shown *dialing.Credentials) string {
	if shown.Secure() {
		return "https"
	}
	return "http"
}

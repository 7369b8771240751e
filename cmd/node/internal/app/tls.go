package app

import (
	"crypto/tls"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/cmd/node/internal/server"
)

type tlsOptions struct {
	mode                  choice
	cert, key             string
	clientCA, adminCA     string
	clientCert, adminCert choice
}

func newTLSOptions() tlsOptions {
	wanted := []string{"none", "optional", "required"}
	return tlsOptions{mode: choice{"required", []string{"optional", "required"}}, clientCert: choice{"none", wanted},
		adminCert: choice{"none", wanted}}
}

func (o *tlsOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.cert, "tls-cert", "", "serve clients and administration by TLS with the certificate in `FILE`")
	f.StringVar(&o.key, "tls-key", "", "`FILE` with its key")
	f.Var(&o.mode, "tls", "`MODE` required, or optional: also serve clients without TLS on these ports")
	f.StringVar(&o.clientCA, "client-ca", "", "`FILE` with the authorities of clients' certificates")
	f.Var(&o.clientCert, "client-cert", "`MODE` of clients' certificates: none, optional or required")
	f.StringVar(&o.adminCA, "admin-client-ca", "",
		"`FILE` with the authorities of operators' certificates (default as --client-ca)")
	f.Var(&o.adminCert, "admin-client-cert", "`MODE` of operators' certificates, at --admin-addr")
}

func (o *tlsOptions) validate(cmd *cobra.Command) error {
	switch {
	case (o.cert == "") != (o.key == ""):
		return usage(cmd, "--tls-cert and --tls-key belong together: give both or neither")
	case o.cert == "" && (o.clientCA != "" || o.adminCA != "" || o.clientCert.value != "none" ||
		o.adminCert.value != "none" || o.mode.value != "required"):
		return usage(cmd, "--tls, --client-ca, --client-cert, --admin-client-ca and --admin-client-cert are for a node "+
			"with TLS: give --tls-cert and --tls-key too")
	case o.clientCert.value != "none" && o.clientCA == "":
		return usage(cmd, "--client-cert %s needs the authorities of clients: give --client-ca FILE", o.clientCert.value)
	case o.adminCert.value != "none" && o.adminCA == "" && o.clientCA == "":
		return usage(cmd, "--admin-client-cert %s needs the authorities of operators: give --admin-client-ca FILE, or "+
			"--client-ca", o.adminCert.value)
	case o.clientCA != "" && o.clientCert.value == "none" && o.adminCert.value == "none":
		return usage(cmd, "--client-ca has no effect: give --client-cert optional or required too")
	case o.adminCA != "" && o.adminCert.value == "none":
		return usage(cmd, "--admin-client-ca has no effect: give --admin-client-cert optional or required too")
	}
	return nil
}

// config returns the configuration of TLS, nil for none.
func (o *tlsOptions) config() *server.TLSConfig {
	if o.cert == "" {
		return nil
	}
	auth := map[string]tls.ClientAuthType{"none": tls.NoClientCert, "optional": tls.VerifyClientCertIfGiven,
		"required": tls.RequireAndVerifyClientCert}
	return &server.TLSConfig{
		CertFile: o.cert, KeyFile: o.key, ClientCAFile: o.clientCA, AdminCAFile: o.adminCA,
		ClientCert: auth[o.clientCert.value], AdminCert: auth[o.adminCert.value], Optional: o.mode.value == "optional",
	}
}

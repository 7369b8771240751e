package app

import (
	"net/netip"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/cmd/node/internal/server"
	"github.com/weirlimit/weir/internal/forward"
)

// authOptions are the flags of the sub-requests of web proxies.
type authOptions struct {
	proxies                               string
	uri, method, address, user, group, id string
	spoe                                  address
}

func (o *authOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.proxies, "auth-proxy", "",
		"let proxies in this `NETWORK` ask at /v1/auth; several with commas (default none)")
	f.StringVar(&o.uri, "auth-uri-header", "", "header `FIELD` in which they send the URI (default X-Original-URI)")
	f.StringVar(&o.method, "auth-method-header", "", "`FIELD` with the method (default X-Original-Method)")
	f.StringVar(&o.address, "auth-address-header", "", "`FIELD` with the client's address (default X-Forwarded-For)")
	f.StringVar(&o.user, "auth-user-header", "", "`FIELD` with the name of the user (default none)")
	f.StringVar(&o.id, "auth-id-header", "", "`FIELD` with an id, by which a request counts once (default none)")
	f.Var(&o.spoe, "spoe-listen", "let HAProxy's filter spoe ask at `HOST:PORT`, for --auth-proxy (default nowhere)")
	f.StringVar(&o.group, "auth-group-header", "", "`FIELD` with the name of the group (default none)")
}

func (o *authOptions) validate(cmd *cobra.Command) error {
	if o.proxies == "" && o.uri+o.method+o.address+o.user+o.group+o.id != "" {
		return usage(cmd, "--auth-uri-header and its siblings are for --auth-proxy: give it too, such as 127.0.0.1")
	}
	if o.proxies == "" && o.spoe != "" {
		return usage(cmd, "--spoe-listen is for --auth-proxy: give it too, with the address of HAProxy")
	}
	_, err := networks(o.proxies)
	if err != nil {
		return usage(cmd, "--auth-proxy %.60q is no list of networks: give such as 10.0.0.0/8,127.0.0.1", o.proxies)
	}
	return nil
}

// networks reads networks and addresses with commas between them.
func networks(list string) (out []netip.Prefix, err error) {
	for _, text := range names(list) {
		p, err := netip.ParsePrefix(text)
		if !strings.Contains(text, "/") {
			var addr netip.Addr
			if addr, err = netip.ParseAddr(text); err == nil {
				p = netip.PrefixFrom(addr, addr.BitLen())
			}
		}
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func (o *authOptions) fill(c *server.Config) {
	if o.proxies == "" {
		return
	}
	proxies, _ := networks(o.proxies) // validate has read them
	c.SPOEListen = string(o.spoe)
	c.Auth = &forward.Options{Proxies: proxies, URI: o.uri, Method: o.method, Address: o.address, User: o.user,
		Group: o.group, ID: o.id}
}

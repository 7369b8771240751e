package cli

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/authority"
	"github.com/weirlimit/weir/internal/smallfile"
)

const (
	authorityValid = 365 * 24 * time.Hour
	leafValid      = 7 * 24 * time.Hour
	mostValid      = 10 * 365 * 24 * time.Hour
)

// certOptions are the flags of the commands that make certificates.
type certOptions struct {
	dir, cluster string
	hosts        []string
	valid        time.Duration
	force        bool
}

func (a *app) certCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cert",
		Short: "Make certificates for development",
		Long: `Makes an authority for the members of a cluster and one for its clients, and the
certificates that come from them. Keys are ed25519, and only their owner can read
their files. Browsers take none of ed25519: a console that they open needs another.
Certificates expire after a week, the authorities after a year.

A member's certificate is named weir://CLUSTER/node/NAME, a client's
weir://CLUSTER/client/NAME, an administrator's weir://CLUSTER/admin/NAME. Members
and clients have different authorities, so neither can pass for the other.

In production, let your own authority issue them, with the same names.`,
		Example: `  weir cert authority --cluster prod
  weir cert node node-1 --host node-1.example --host 10.0.0.1
  weir cert client shop
  weir cert admin ada --valid 8h`,
		Args: cobra.ArbitraryArgs,
		RunE: oneOf,
	}
	cmd.AddCommand(a.authorityCommand(), a.nodeCertCommand(),
		a.callerCertCommand("client", "Make a client's certificate", "shop"),
		a.callerCertCommand("admin", "Make an administrator's certificate", "ada"))
	return cmd
}

// add adds the flags that all of them have.
func (o *certOptions) add(cmd *cobra.Command, valid time.Duration) {
	f := cmd.Flags()
	f.StringVar(&o.dir, "dir", "certs", "`DIRECTORY` of the authorities and of what is made")
	f.DurationVar(&o.valid, "valid", valid, "time after which it expires")
	f.BoolVar(&o.force, "force", false, "replace files that exist")
}

func (o *certOptions) check(cmd *cobra.Command) error {
	if o.valid < time.Minute || o.valid > mostValid {
		return usage(cmd, "--valid %v is out of range: give 1m to %v", o.valid, mostValid)
	}
	return nil
}

func (o *certOptions) oneName(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) != 1:
		return usage(cmd, "give one NAME, as in %s", cmd.Example)
	case !authority.ValidName(args[0]):
		return usage(cmd, "%q cannot be a name: give up to 63 letters, digits, dots, hyphens and underscores", args[0])
	}
	return o.check(cmd)
}

func (a *app) authorityCommand() *cobra.Command {
	var o certOptions
	cmd := &cobra.Command{
		Use:   "authority",
		Short: "Make the authority of the members and that of the clients",
		Long: `Makes peer-ca.crt and client-ca.crt with their keys. Whoever has a key of these can
make members or clients: keep them away from the nodes, which need only the .crt.`,
		Example: "  weir cert authority --cluster prod",
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 0:
				return usage(cmd, "%q takes no arguments, but %q was given", cmd.CommandPath(), args[0])
			case !authority.ValidName(o.cluster):
				return usage(cmd, "--cluster %q cannot be a name: give up to 63 letters, digits, dots, hyphens and underscores",
					o.cluster)
			}
			return o.check(cmd)
		},
		RunE: func(*cobra.Command, []string) error {
			var made []pair
			for _, plane := range []string{authority.Peers, authority.Clients} {
				p, err := authority.New(plane, o.cluster, nil, a.Now(), o.valid)
				if err != nil {
					return err
				}
				made = append(made, pair{plane + "-ca", p})
			}
			return a.keep(&o, made)
		},
	}
	o.add(cmd, authorityValid)
	cmd.Flags().StringVar(&o.cluster, "cluster", "weir", "`NAME` of the cluster, as the nodes' --cluster-name")
	return cmd
}

func (a *app) nodeCertCommand() *cobra.Command {
	var o certOptions
	cmd := &cobra.Command{
		Use:   "node NAME",
		Short: "Make a member's certificates, for other members and for clients",
		Long: `Makes NAME-peer.crt, which the member shows to other members, and NAME-server.crt,
which it shows to clients and operators, with their keys. NAME is the member's --name.
The names and addresses by which clients reach it are given with --host; localhost and
127.0.0.1 are always there.`,
		Example: "  weir cert node node-1 --host node-1.example --host 10.0.0.1",
		Args:    o.nodeArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			hosts := append([]string{"localhost", "127.0.0.1", "::1"}, o.hosts...)
			peer, err := a.issue(&o, authority.Peers, authority.Leaf{Kind: "node", Name: args[0], Hosts: hosts, Server: true,
				Client: true})
			if err != nil {
				return err
			}
			server, err := a.issue(&o, authority.Clients, authority.Leaf{Kind: "node", Name: args[0], Hosts: hosts,
				Server: true})
			if err != nil {
				return err
			}
			return a.keep(&o, []pair{{args[0] + "-peer", peer}, {args[0] + "-server", server}})
		},
	}
	o.add(cmd, leafValid)
	cmd.Flags().StringSliceVar(&o.hosts, "host", nil, "a DNS name or IP `ADDRESS` of the node; several with commas")
	return cmd
}

var dnsName = regexp.MustCompile(
	`^(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*$`)

// maxHosts bounds the names and addresses in one certificate.
const maxHosts = 64

func (o *certOptions) nodeArgs(cmd *cobra.Command, args []string) error {
	if len(o.hosts) > maxHosts {
		return usage(cmd, "--host is given %d times: give at most %d", len(o.hosts), maxHosts)
	}
	for _, h := range o.hosts {
		if _, err := netip.ParseAddr(h); err != nil && (len(h) > 253 || !dnsName.MatchString(h)) {
			return usage(cmd, "--host %q is neither a DNS name nor an IP address: give it without a port", h)
		}
	}
	return o.oneName(cmd, args)
}

func (a *app) callerCertCommand(kind, short, example string) *cobra.Command {
	var o certOptions
	cmd := &cobra.Command{
		Use:     kind + " NAME",
		Short:   short,
		Long:    fmt.Sprintf("Makes %s-NAME.crt and its key, from the clients' authority.", kind),
		Example: "  weir cert " + kind + " " + example,
		Args:    o.oneName,
		RunE: func(_ *cobra.Command, args []string) error {
			made, err := a.issue(&o, authority.Clients, authority.Leaf{Kind: kind, Name: args[0], Client: true})
			if err != nil {
				return err
			}
			return a.keep(&o, []pair{{kind + "-" + args[0], made}})
		},
	}
	o.add(cmd, leafValid)
	return cmd
}

// issue makes a certificate of the authority of a plane in the directory.
func (a *app) issue(o *certOptions, plane string, l authority.Leaf) (authority.Made, error) {
	ca, err := authority.Read(filepath.Join(o.dir, plane+"-ca"))
	if err != nil {
		return authority.Made{}, err
	}
	m, err := ca.Issue(l, a.Now(), o.valid)
	if _, ended := errors.AsType[*authority.ExpiredError](err); ended {
		return m, fmt.Errorf("%w: make new ones with \"weir cert authority --force\"", err)
	}
	if err == nil && m.Ends.Before(a.Now().Add(o.valid).Truncate(time.Second)) {
		a.note("it expires with its authority, at %s", m.Ends.UTC().Format(time.RFC3339))
	}
	return m, err
}

// pair is a certificate with its key, to be kept in two files.
type pair struct {
	name string
	authority.Made
}

// keep writes certificates and keys, and prints which. Unless forced it writes nothing if
// one of the files exists.
func (a *app) keep(o *certOptions, all []pair) error {
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return fmt.Errorf("the directory cannot be made: choose another with --dir: %w", err)
	}
	var text strings.Builder
	for _, p := range all {
		for _, name := range []string{p.name + ".key", p.name + ".crt"} {
			if _, err := os.Lstat(filepath.Join(o.dir, name)); err == nil && !o.force {
				return fmt.Errorf("%s exists: choose another directory with --dir, or replace it with --force",
					filepath.Join(o.dir, name))
			}
		}
	}
	for _, p := range all {
		at := filepath.Join(o.dir, p.name)
		if err := keepFile(at+".key", p.Key, 0o600, o.force); err != nil {
			return err
		}
		if err := keepFile(at+".crt", p.Cert, 0o644, o.force); err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s.crt  %s.key  %s  until %s\n", at, at, p.URI, p.Ends.UTC().Format(time.RFC3339))
	}
	return a.print([]byte(text.String()))
}

// keepFile writes a file that a reader sees whole or not at all, if it did not exist or is
// to be replaced.
func keepFile(name string, data []byte, mode os.FileMode, force bool) (err error) {
	if !force {
		// Only this program looks at a file that did not exist; O_EXCL follows no link.
		return writeFile(name, data, mode)
	}
	next := name + ".new"
	if err := os.Remove(next); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("an unfinished file is in the way: %w", err)
	}
	if err := writeFile(next, data, mode); err != nil {
		return err
	}
	if err := os.Rename(next, name); err != nil {
		return fmt.Errorf("%s cannot be replaced: %w", name, err)
	}
	return nil
}

func writeFile(name string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode) //nolint:gosec // the user names the directory
	if err != nil {
		return fmt.Errorf("%s cannot be written: %w", name, smallfile.Bare(err))
	}
	_, err = f.Write(data)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		_ = os.Remove(name)
		return fmt.Errorf("%s cannot be written: %w", name, smallfile.Bare(err))
	}
	return nil
}

package app

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/authority"
	"github.com/weirlimit/weir/internal/smallfile"
)

// The files that keysCommand creates, and the number of random bytes in a key.
const (
	secretName, gossipKeyName = "secret", "gossip.key"
	peerAuthority             = "peer-ca"
	keyBytes                  = 32
)

// How long certificates that keysCommand makes are valid. The command renews those of
// members of which less than half of the time is left.
const (
	authorityLives = 10 * 365 * 24 * time.Hour
	memberLives    = 365 * 24 * time.Hour
)

// maxMembers bounds the members that certificates are made for.
const maxMembers = 256

// keyOptions are the flags of keysCommand.
type keyOptions struct {
	members            []string
	authority, cluster string
	apart              bool
	now                func() time.Time
}

// keysCommand creates the keys that protect a cluster, for images without a shell and
// for machines without openssl.
func (a *app) keysCommand() *cobra.Command {
	o := keyOptions{now: time.Now}
	cmd := &cobra.Command{
		Use:   "keys DIR",
		Short: "Make the secret, the gossip key and the certificates of a cluster",
		Long: `Writes DIR/secret and DIR/gossip.key, 32 random bytes each in base64, readable by
this user alone. Existing files are not changed, so running this again does no
harm. All members of a cluster need the same two files.

With --member it also makes an authority of members, DIR/peer-ca.crt, and for each
member DIR/NAME-peer.crt and DIR/NAME-peer.key, which are valid for a year. Run it
again to renew those of which less than half a year is left: members notice. The key
of the authority can make further members. No member needs it, so keep it elsewhere
by --authority. With --apart each member gets a directory of its own, DIR/NAME, with
its own key and what all of them need, so that no member can read another's.

Exit status: 0 all are there, 1 they cannot be made, 64 wrong usage.`,
		Example: `  node keys /etc/weir
  node keys /etc/weir --authority /root/weir --member node-1,node-2,node-3
  node serve --rules rules.yaml --name node-1 --peer-addr :7947 --gossip-addr :7946 \
    --secret-file /etc/weir/secret --gossip-key-file /etc/weir/gossip.key \
    --peer-cert /etc/weir/node-1-peer.crt --peer-key /etc/weir/node-1-peer.key --peer-ca /etc/weir/peer-ca.crt`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usage(cmd, "give the one directory that the files are to be in")
			}
			return o.validate(cmd)
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(_ *cobra.Command, args []string) error { return a.keys(&o, args[0]) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.members, "member", nil, "make certificates for the member of this `NAME`; several with commas")
	f.StringVar(&o.authority, "authority", "", "keep the authority, with its key, in this `DIRECTORY` (default DIR)")
	f.BoolVar(&o.apart, "apart", false, "put what each member needs into a directory of its own, DIR/NAME")
	f.StringVar(&o.cluster, "cluster-name", "weir", "`NAME` of the cluster in these certificates, as of the nodes")
	return cmd
}

func (o *keyOptions) validate(cmd *cobra.Command) error {
	if len(o.members) == 0 && (o.authority != "" || o.cluster != "weir") {
		return usage(cmd, "--authority and --cluster-name are for certificates: give --member too")
	}
	if o.apart && (len(o.members) == 0 || o.authority == "") {
		return usage(cmd, "--apart is for members' certificates, and keeps what they come from in the directory of "+
			"--authority: give --member and --authority too")
	}
	if len(o.members) > maxMembers {
		return usage(cmd, "there are %d members: give at most %d", len(o.members), maxMembers)
	}
	for _, name := range append([]string{o.cluster}, o.members...) {
		if !authority.ValidName(name) {
			return usage(cmd, "%q cannot be a name: give up to 63 letters, digits, dots, hyphens and underscores", name)
		}
	}
	return nil
}

// keys makes what is missing.
func (a *app) keys(o *keyOptions, dir string) error {
	if o.apart {
		return a.keysApart(o, dir)
	}
	for _, name := range []string{secretName, gossipKeyName} {
		file := filepath.Join(dir, name)
		if err := a.made(file, func() (bool, error) { return makeKey(file) }); err != nil {
			return err
		}
	}
	if len(o.members) == 0 {
		return nil
	}
	ca, err := a.makeAuthority(o, dir)
	for _, name := range o.members {
		if err == nil {
			err = a.makeMember(o, ca, dir, name)
		}
	}
	return err
}

// keysApart makes what is missing, in a directory for each member. What all members have is kept
// beside the authority.
func (a *app) keysApart(o *keyOptions, dir string) error {
	shared := map[string][]byte{}
	for _, name := range []string{secretName, gossipKeyName} {
		file := filepath.Join(o.authority, name)
		err := a.made(file, func() (bool, error) { return makeKey(file) })
		if err == nil {
			shared[name], _, err = smallfile.ReadSecret(name, file, smallfile.MaxSecret)
		}
		if err != nil {
			return err
		}
	}
	for _, member := range o.members {
		own := filepath.Join(dir, member)
		if err := os.Mkdir(own, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%s cannot be made: %w", own, keyHelp(dir, err))
		}
		for _, name := range []string{secretName, gossipKeyName} {
			file := filepath.Join(own, name)
			if err := a.made(file, func() (bool, error) { return copyFile(file, shared[name], 0o600) }); err != nil {
				return err
			}
		}
		ca, err := a.makeAuthority(o, own)
		if err == nil {
			err = a.makeMember(o, ca, own, member)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyFile writes a file unless it has these bytes.
func copyFile(file string, data []byte, mode fs.FileMode) (done bool, err error) {
	if there, err := smallfile.Read("file", file, smallfile.MaxSecret); err == nil && bytes.Equal(there, data) {
		return false, nil
	}
	return true, replaceFile(file, data, mode)
}

// made makes a file, and says what became of it.
func (a *app) made(file string, do func() (bool, error)) error {
	done, err := do()
	if err != nil {
		return fmt.Errorf("%s cannot be made: %w", file, keyHelp(filepath.Dir(file), err))
	}
	if !done {
		return a.print(file + " is there already, and stays\n")
	}
	return a.print("made " + file + "\n")
}

// makeAuthority makes the authority of members unless it is there, and puts its certificate
// beside those of members.
func (a *app) makeAuthority(o *keyOptions, dir string) (*authority.Authority, error) {
	kept := dir
	if o.authority != "" {
		kept = o.authority
	}
	at := filepath.Join(kept, peerAuthority)
	if exists(at+".crt") && !exists(at+".key") {
		return nil, fmt.Errorf("%[1]s.crt is there without its key, %[1]s.key: put the key back, or name its directory by "+
			"--authority; if it is lost, begin a new authority with another DIR, and have the members change to it as "+
			"docs/cluster.md says under Certificates of members", at)
	}
	var key ed25519.PrivateKey
	err := a.made(at+".key", func() (done bool, err error) {
		key, done, err = makePrivateKey(at + ".key")
		return done, err
	})
	if err != nil {
		return nil, err
	}
	err = a.made(at+".crt", func() (bool, error) {
		m, err := authority.New(authority.Peers, o.cluster, key, o.now(), authorityLives)
		if err != nil {
			return false, err
		}
		return makeFile(at+".crt", m.Cert, 0o644)
	})
	if err != nil {
		return nil, err
	}
	ca, err := authority.Read(at)
	switch {
	case err != nil:
		return nil, err
	case ca.Cluster() != o.cluster:
		return nil, fmt.Errorf("%s.crt is the authority of the cluster %q, not of %q: name another directory, or give "+
			"--cluster-name", at, ca.Cluster(), o.cluster)
	case kept == dir:
		return ca, nil
	}
	cert, err := smallfile.ReadTrusted("authority", at+".crt", smallfile.MaxSecret)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, peerAuthority+".crt")
	return ca, a.made(file, func() (bool, error) { return copyFile(file, cert, 0o644) })
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// makeMember makes the certificate of a member, unless one is there that is good for long.
// The key stays when the certificate is renewed, so a member never sees a pair that does
// not fit.
func (a *app) makeMember(o *keyOptions, ca *authority.Authority, dir, name string) error {
	at := filepath.Join(dir, name+"-peer")
	var key ed25519.PrivateKey
	err := a.made(at+".key", func() (done bool, err error) {
		key, done, err = makePrivateKey(at + ".key")
		return done, err
	})
	if err != nil {
		return err
	}
	return a.made(at+".crt", func() (bool, error) {
		l := authority.Leaf{Kind: "node", Name: name, Hosts: []string{name}, Server: true, Client: true, Key: key}
		now := o.now()
		if there, err := smallfile.Read("certificate", at+".crt", smallfile.MaxSecret); err == nil &&
			ca.Issued(there, l, now.Add(memberLives/2)) {
			return false, nil
		}
		m, err := ca.Issue(l, now, memberLives)
		if err != nil {
			return false, err
		}
		return true, replaceFile(at+".crt", m.Cert, 0o644)
	})
}

// keyHelp leaves the name of the draft out of an error of making a key, and adds what to do.
func keyHelp(dir string, err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		err = at.Err
	}
	_, ended := errors.AsType[*authority.ExpiredError](err)
	switch {
	case ended:
		return fmt.Errorf("%w; remove its .crt and .key, and run this again while all members are stopped", err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w; make the directory first: mkdir -p %s", err, dir)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; choose a directory in which this user may write", err)
	}
	return err
}

// makeKey writes random bytes to a file unless it exists; made reports whether it did.
func makeKey(file string) (made bool, err error) {
	key := make([]byte, keyBytes)
	_, _ = rand.Read(key) // it does not fail: it ends the program instead
	return makeFile(file, []byte(base64.StdEncoding.EncodeToString(key)+"\n"), 0o600)
}

// makePrivateKey writes a private key to a file unless it exists, and returns the one that
// is there then.
func makePrivateKey(file string) (key ed25519.PrivateKey, made bool, err error) {
	text, err := authority.MarshalKey(authority.NewKey())
	if err != nil {
		return nil, false, err
	}
	if made, err = makeFile(file, text, 0o600); err != nil {
		return nil, false, err
	}
	if text, _, err = smallfile.ReadSecret("key", file, smallfile.MaxSecret); err == nil {
		key, err = authority.ParseKey(text)
	}
	return key, made, err
}

// makeFile writes a file unless it exists; made reports whether it did. The file appears
// completely or not at all, even if another process creates it at the same time or this one
// is killed.
func makeFile(file string, data []byte, mode fs.FileMode) (made bool, err error) {
	switch info, err := os.Stat(file); {
	case err == nil && (!info.Mode().IsRegular() || info.Size() == 0):
		return false, errors.New("the path exists and is not a key file: remove it")
	case err == nil:
		return false, nil
	case !errors.Is(err, fs.ErrNotExist):
		return false, err
	}
	draft, err := writeDraft(file, data, mode)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.Remove(draft)) }()
	if err = os.Link(draft, file); errors.Is(err, fs.ErrExist) {
		return false, nil // another process was faster; its file is used
	}
	return err == nil, err
}

// replaceFile writes a file, which a reader sees as it was or complete.
func replaceFile(file string, data []byte, mode fs.FileMode) error {
	draft, err := writeDraft(file, data, mode)
	if err != nil {
		return err
	}
	if err := os.Rename(draft, file); err != nil {
		return errors.Join(err, os.Remove(draft))
	}
	return nil
}

// writeDraft writes data to a new file beside file, and returns its name.
func writeDraft(file string, data []byte, mode fs.FileMode) (name string, err error) {
	draft, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)) // of mode 0600
	if err != nil {
		return "", err
	}
	_, err = draft.Write(data)
	if mode != 0o600 {
		err = errors.Join(err, draft.Chmod(mode))
	}
	if err = errors.Join(err, draft.Sync(), draft.Close()); err != nil {
		return "", errors.Join(err, os.Remove(draft.Name()))
	}
	return draft.Name(), nil
}

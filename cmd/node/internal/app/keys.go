package app

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// The files that keysCommand creates, and the number of random bytes in each.
const (
	secretName, gossipKeyName = "secret", "gossip.key"
	keyBytes                  = 32
)

// keysCommand creates the keys that protect a cluster, for images without a shell and
// for machines without openssl.
func (a *app) keysCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "keys DIR",
		Short: "Make the secret and the gossip key of a cluster",
		Long: `Writes DIR/secret and DIR/gossip.key, 32 random bytes each in base64, readable by
this user alone. Existing files are not changed, so running this again does no
harm. All members of a cluster need the same two files.

Exit status: 0 both are there, 1 they cannot be made, 2 wrong usage.`,
		Example: `  node keys /etc/weir
  node serve --rules rules.yaml --name node-1 --peer-addr :7947 --gossip-addr :7946 \
    --secret-file /etc/weir/secret --gossip-key-file /etc/weir/gossip.key`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usage(cmd, "give the one directory that the files are to be in")
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(_ *cobra.Command, args []string) error { return a.keys(args[0]) },
	}
}

func (a *app) keys(dir string) error {
	for _, name := range []string{secretName, gossipKeyName} {
		file := filepath.Join(dir, name)
		made, err := makeKey(file)
		if err != nil {
			return fmt.Errorf("%s cannot be made: %w", file, keyHelp(dir, err))
		}
		said := "made " + file + "\n"
		if !made {
			said = file + " is there already, and stays\n"
		}
		if err := a.print(said); err != nil {
			return err
		}
	}
	return nil
}

// keyHelp leaves the name of the draft out of an error of making a key, and adds what to do.
func keyHelp(dir string, err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		err = at.Err
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w; make the directory first: mkdir -p %s", err, dir)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; choose a directory in which this user may write", err)
	}
	return err
}

// makeKey writes random bytes to a file unless it exists; made reports whether it did.
// The file appears completely or not at all, even if another process creates it at the
// same time or this one is killed.
func makeKey(file string) (made bool, err error) {
	switch info, err := os.Stat(file); {
	case err == nil && (!info.Mode().IsRegular() || info.Size() == 0):
		return false, errors.New("the path exists and is not a key file: remove it")
	case err == nil:
		return false, nil
	case !errors.Is(err, fs.ErrNotExist):
		return false, err
	}
	key := make([]byte, keyBytes)
	_, _ = rand.Read(key)                                                // it does not fail: it ends the program instead
	draft, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)) // of mode 0600
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.Remove(draft.Name())) }()
	_, err = draft.WriteString(base64.StdEncoding.EncodeToString(key) + "\n")
	if err = errors.Join(err, draft.Sync(), draft.Close()); err != nil {
		return false, err
	}
	if err = os.Link(draft.Name(), file); errors.Is(err, fs.ErrExist) {
		return false, nil // another process was faster; its key is used
	}
	return err == nil, err
}

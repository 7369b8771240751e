package cli

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/cmd/weir/internal/term"
)

func (a *app) resetCommand() *cobra.Command {
	var o requestFlags
	var server, tenant, rule string
	var asJSON bool
	var shown credentials
	cmd := &cobra.Command{
		Use:   "reset PATH --server http://ADDRESS",
		Short: "Forget what a caller has used",
		Long: `Deletes the counters of a request at a running node, with their blocks: those of the
rules that match it, or of the rule that --rule names. The node must allow resets.

A tenant's users have counters of their own. An administrator without a tenant names
it with --tenant. It is said if there was no such counter: then the name of the user
or of the tenant is another one, or nothing counts any more.

Exit status: 0 done, 1 refused, 2 the node cannot be asked, 3 there was no such counter.`,
		Example: `  weir reset /login --user ada --method POST --server http://127.0.0.1:8080
  weir reset /login --user ada --method POST --tenant bank --server https://node-1:8080`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usage(cmd, "no path is given whose counters to delete")
			case len(args) > 1:
				return usage(cmd, "one path at a time, but %q follows %q", args[1], args[0])
			case server != "" && !strings.Contains(server, "://"):
				return usage(cmd, "a reset is asked over HTTP: give --server http://HOST:PORT or https://HOST:PORT in place of %q",
					server)
			case server == "":
				return usage(cmd, "no node is named: give --server http://HOST:PORT or https://HOST:PORT")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := o.request(cmd, args[0])
			if err != nil {
				return err
			}
			fields := question(r)
			delete(fields, "id")
			delete(fields, "id_ttl_ms")
			if tenant != "" {
				fields["tenant"] = tenant
			}
			if rule != "" {
				fields["rule"] = rule
			}
			return a.reset(cmd, server, &shown, fields, asJSON)
		},
	}
	f := cmd.Flags()
	o.addFlags(f)
	_ = f.MarkHidden("id")
	_ = f.MarkHidden("id-ttl")
	f.StringVar(&rule, "rule", "", "the `rule` whose counters are deleted (default: those that match)")
	f.StringVar(&tenant, "tenant", "", "the `tenant` of the user")
	f.StringVar(&server, "server", "", "the node at `ADDRESS`: http://HOST:PORT or https://HOST:PORT")
	f.BoolVar(&asJSON, "json", false, "print an object")
	shown.addFlags(f)
	return cmd
}

// reset asks a node to delete counters, and prints how many there were.
func (a *app) reset(cmd *cobra.Command, server string, shown *credentials, fields map[string]any, asJSON bool) error {
	node, err := a.remoteAt(cmd, server, shown)
	if err != nil {
		return err
	}
	h, _ := node.(*httpRemote) // the address has a scheme
	ctx, cancel := context.WithTimeout(cmd.Context(), askTimeout)
	defer cancel()
	var out struct {
		Counters int `json:"counters"`
	}
	code, err := h.post(ctx, "/v1/reset", fields, func(body []byte) bool { return json.Unmarshal(body, &out) == nil })
	if err = errors.Join(err, node.Close()); err != nil {
		return err
	}
	if code != http.StatusOK {
		return h.noNode(http.StatusText(code), nil)
	}
	text := term.Plural(out.Counters, "counter") + " deleted\n"
	if out.Counters == 0 {
		text = "there is no such counter: nothing was deleted\n"
	}
	err = a.show(asJSON, out, text)
	if err == nil && out.Counters == 0 {
		err = errDenied
	}
	return err
}

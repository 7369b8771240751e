package cli

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/cmd/weir/internal/term"
	"github.com/weirlimit/weir/internal/commandline"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/transport"
)

func (a *app) reloadCommand() *cobra.Command {
	var server adminFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "reload [--server ADDRESS]",
		Short: "Have a node read its rules file again",
		Long: `Has a node read its rules file now, even if it has not changed, and prints what
is wrong with the file, or what it warns of. A node that was started with --strict
refuses a file with warnings. If a file is refused, the old rules stay in force.

A node takes this only from its own machine: ask it by a loopback address, or the
socket of its administration.

Exit status: 0 the file is in force, 1 it was refused, 2 the node cannot be asked.`,
		Example: `  weir reload
  weir reload --server unix:/run/weir/admin.sock --json`,
		Args: commandline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var out transport.Reloaded
			if err := a.askAdmin(cmd, &server, http.MethodPost, "/v1/reload", nil, &out); err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(out)
			}
			for _, w := range out.Warnings {
				a.pointTo("rules file", nil, rules.Problem{Line: w.Line, Column: w.Column, Text: "warning: " + w.Text})
			}
			text := fmt.Sprintf("%s in force, hash %s", term.Plural(out.Rules, "rule"), term.Clean(out.RulesHash))
			if n := len(out.Warnings); n > 0 {
				text += ", " + term.Plural(n, "warning")
			}
			return a.print([]byte(text + "\n"))
		},
	}
	server.addFlags(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print an object")
	return cmd
}

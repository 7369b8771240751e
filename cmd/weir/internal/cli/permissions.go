package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/cmd/weir/internal/term"
	"github.com/weirlimit/weir/internal/access"
	"github.com/weirlimit/weir/rules"
)

func (a *app) permissionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "permissions",
		Short:   "Try a permissions file before it is in force",
		Example: "  weir permissions check permissions.yaml",
		Args:    cobra.ArbitraryArgs,
		RunE:    oneOf,
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "check FILE",
		Short: "Say what is wrong with a permissions file",
		Long: `Reads a file of --permissions as a node does, with the files of keys that it names,
and prints all that is wrong with them.

Exit status: 0 a node would take the file, 1 it would refuse it, 2 wrong usage.`,
		Example: "  weir permissions check permissions.yaml",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usage(cmd, "give the path of one permissions file")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			err := access.Check(args[0])
			var wrong *access.Error
			switch {
			case errors.As(err, &wrong):
				for _, p := range wrong.Problems {
					a.pointTo(args[0], nil, rules.Problem{Line: p.Line, Column: p.Column, Text: p.Text})
				}
				a.say("weir: permissions file %s is not valid: %s\n", term.Clean(args[0]),
					term.Plural(len(wrong.Problems), "problem"))
				return errReported
			case err != nil:
				return err
			}
			return a.print([]byte(term.Clean(args[0]) + " is valid\n"))
		},
	})
	return cmd
}

package cli

import (
	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/commandline"
	"github.com/weirlimit/weir/rules"
)

func (a *app) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of rules files",
		Long: `Prints a JSON Schema of rules files, with which editors complete and check them. It
accepts more than Weir does: "weir validate" decides.

An editor with a YAML language server takes it from a comment in the file:

  # yaml-language-server: $schema=rules.schema.json`,
		Example: "  weir schema > rules.schema.json",
		Args:    commandline.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return a.print(rules.Schema()) },
	}
}

package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/built"
	"github.com/weirlimit/weir/limiter"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version, the commit and how it was built",
		Example: "  weir version",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			return a.print([]byte(version() + "\n"))
		},
	}
}

// version returns what this program was built from.
func version() string { return strings.TrimSuffix(built.Text("weir", limiter.ZoneDataVersion()), "\n") }

// noArgs returns an error if there are arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(cmd, "%q takes no arguments, but %q was given", cmd.CommandPath(), args[0])
	}
	return nil
}

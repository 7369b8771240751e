package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/built"
	"github.com/weirlimit/weir/internal/commandline"
	"github.com/weirlimit/weir/limiter"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version, the commit and how it was built",
		Example: "  weir version",
		Args:    commandline.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return a.print([]byte(version() + "\n"))
		},
	}
}

// version returns what this program was built from.
func version() string { return strings.TrimSuffix(built.Text("weir", limiter.ZoneDataVersion()), "\n") }

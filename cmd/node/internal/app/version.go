package app

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
		Example: "  node version",
		Args:    commandline.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return a.print(a.version() + "\n") },
	}
}

// version returns what this program was built from.
func (a *app) version() string {
	return strings.TrimSuffix(built.Text(a.program(), limiter.ZoneDataVersion()), "\n")
}

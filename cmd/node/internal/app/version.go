package app

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/limiter"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  node version",
		Args:    noArgs,
		RunE:    func(*cobra.Command, []string) error { return a.print(version() + "\n") },
	}
}

// version returns what this program was built from.
func version() string {
	return fmt.Sprintf("node %s %s %s/%s tzdata %s", build(), runtime.Version(), runtime.GOOS, runtime.GOARCH, limiter.ZoneDataVersion())
}

// released is the version set by the linker, for builds without a repository, such as
// that of the image: -X .../app.released=v1.2.3.
var released string

// build returns the version of the code alone.
func build() string {
	if released != "" {
		return released
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		return describeBuild(info)
	}
	return "(devel)"
}

func describeBuild(info *debug.BuildInfo) string {
	text := info.Main.Version
	if text == "" {
		text = "(devel)"
	}
	var revision, dirty string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = ", modified"
		}
	}
	if revision != "" {
		text += " (" + revision + dirty + ")"
	}
	return text
}

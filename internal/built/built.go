// Package built describes what a program was built from, for its command "version".
package built

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// released and commit are set by the linker, for builds without a repository, such as that of
// the image: -X github.com/weirlimit/weir/internal/built.released=v1.2.3.
var released, commit string

// Version returns the version of the code, with its commit if it is known.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	return version(info, released, commit)
}

// Text returns the lines that the program of this name prints as its version: the version, the
// commit, and the settings of the build that change the program. tzdata is the release of the
// time zone database in it.
func Text(program, tzdata string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	return fmt.Sprintf("%s %s %s %s/%s tzdata %s\n%s", program, version(info, released, commit),
		runtime.Version(), runtime.GOOS, runtime.GOARCH, tzdata, settings(info))
}

// version describes a build. What the linker set goes before what the build recorded.
func version(info *debug.BuildInfo, released, commit string) string {
	text := cmp.Or(released, info.Main.Version, "(devel)")
	var dirty string
	if commit == "" {
		commit = setting(info, "vcs.revision")
		if setting(info, "vcs.modified") == "true" {
			dirty = ", modified"
		}
	}
	if commit != "" {
		text += " (" + commit[:min(12, len(commit))] + dirty + ")"
	}
	return text
}

func setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// settings lists the settings of a build in one line, except those of the repository, which
// the version has, and of the linker, which repeat the version.
func settings(info *debug.BuildInfo) string {
	var out []string
	for _, s := range info.Settings {
		if strings.HasPrefix(s.Key, "vcs") || s.Key == "-ldflags" || s.Key == "GOOS" || s.Key == "GOARCH" {
			continue
		}
		out = append(out, s.Key+"="+s.Value)
	}
	if len(out) == 0 {
		return ""
	}
	return "built with " + strings.Join(out, " ") + "\n"
}

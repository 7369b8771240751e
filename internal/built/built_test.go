package built

import (
	"runtime/debug"
	"strings"
	"testing"
)

// The version has what the linker set, else what the build recorded.
func TestVersion(t *testing.T) {
	plain := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}
	recorded := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"},
	}}
	for _, c := range []struct {
		info             *debug.BuildInfo
		released, commit string
		want             string
	}{
		{new(debug.BuildInfo), "", "", "(devel)"},
		{plain, "", "", "v1.2.3"},
		{recorded, "", "", "v1.2.3 (0123456789ab, modified)"},
		{plain, "v2.0.0", "", "v2.0.0"},
		{plain, "v2.0.0", "fedcba9876543210", "v2.0.0 (fedcba987654)"},
		{recorded, "v2.0.0", "fedc", "v2.0.0 (fedc)"},
		{new(debug.BuildInfo), "", "fedcba9876543210", "(devel) (fedcba987654)"},
	} {
		if got := version(c.info, c.released, c.commit); got != c.want {
			t.Errorf("version is %q, want %q", got, c.want)
		}
	}
}

// The settings that change the program are listed, and no path of the machine that built it.
func TestSettings(t *testing.T) {
	info := &debug.BuildInfo{Settings: []debug.BuildSetting{
		{Key: "-trimpath", Value: "true"}, {Key: "-ldflags", Value: "-X /home/ada"}, {Key: "CGO_ENABLED", Value: "0"},
		{Key: "GOOS", Value: "linux"}, {Key: "GOAMD64", Value: "v1"}, {Key: "vcs.revision", Value: "0123"},
	}}
	if got, want := settings(info), "built with -trimpath=true CGO_ENABLED=0 GOAMD64=v1\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := settings(new(debug.BuildInfo)); got != "" {
		t.Errorf("without any: %q", got)
	}
}

// The first line begins with the program and has Go's version and the system.
func TestText(t *testing.T) {
	got := Text("weir", "2026a")
	first, rest, _ := strings.Cut(got, "\n")
	if !strings.HasPrefix(first, "weir ") || !strings.Contains(first, " go1.") ||
		!strings.HasSuffix(first, " tzdata 2026a") {
		t.Errorf("the first line is %q", first)
	}
	if rest != "" && !strings.HasPrefix(rest, "built with ") {
		t.Errorf("then comes %q", rest)
	}
}

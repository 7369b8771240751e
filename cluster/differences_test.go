package cluster

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/peer"
)

// What live members have is compared; who does not tell is left out.
func TestDiffering(t *testing.T) {
	for want, members := range map[string][]peer.Member{
		"": {{Name: "a", State: peer.Active, ZoneData: "2025c"}, {Name: "b", State: peer.Active},
			{Name: "c", State: peer.Dead, ZoneData: "2024a"}},
		"a 2025c, c 2025b": {{Name: "a", State: peer.Active, ZoneData: "2025c"}, {Name: "b", State: peer.Active},
			{Name: "c", State: peer.Leaving, ZoneData: "2025b"}},
		"b 1, c 1, d 2, e 1": {{Name: "b", ZoneData: "1"}, {Name: "c", ZoneData: "1"}, {Name: "d", ZoneData: "2"},
			{Name: "e", ZoneData: "1"}},
	} {
		if got := differing(members, zoneData); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A difference is logged once, and its end too.
func TestDifferencesAreLoggedOnce(t *testing.T) {
	var said bytes.Buffer
	m := &census{member: &member{log: slog.New(slog.NewTextHandler(&said, nil))}}
	for _, now := range []string{"", "a 2025c, b 2025b", "a 2025c, b 2025b", "", ""} {
		m.zones.now = now
		m.report()
	}
	if text := said.String(); strings.Count(text, "level=WARN") != 1 || strings.Count(text, "level=INFO") != 1 ||
		!strings.Contains(text, `releases="a 2025c, b 2025b"`) {
		t.Error(text)
	}
}

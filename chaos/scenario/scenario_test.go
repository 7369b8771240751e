//go:build linux

package scenario

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/history"
	"github.com/weirlimit/weir/chaos/netlab"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	policy "github.com/weirlimit/weir/rules"
)

// built builds the node program.
func built(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "node")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", file,
		"github.com/weirlimit/weir/cmd/node").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}

// TestPromises is a few of the faults that `make chaos` tries, each once.
func TestPromises(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	names := []string{"kill", "leave", "split", "one-way", "loss"}
	binary := built(t)
	c := fleet.Config{Seed: 1, Ground: fleet.Namespaces{Binary: binary}, Dir: t.TempDir()}
	if err := netlab.Usable(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("CI must be able to make namespaces: %v", err)
		}
		t.Logf("on loopback: %v", err)
		c.Ground, names = fleet.Loopback{Binary: binary}, []string{"kill", "leave", "pause"}
	}
	all := All()
	var f *fleet.Fleet
	for _, name := range names {
		i := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == name })
		if f == nil {
			var err error
			if f, err = all[i].Fleet(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}()
			haveTLS(t, f)
		}
		r, err := all[i].Try(t.Context(), f, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range r.Violations {
			t.Errorf("%s, %s: %v", name, r.Faults[0].What, v)
		}
		// A network that carries nothing breaks no promise: something must have been
		// decided on both sides of the bound, while it was broken too.
		during := 0
		for j := range r.Ops {
			if o := &r.Ops[j]; o.Counted() && o.Call > r.Faults[0].At {
				during++
			}
		}
		if r.Figures.Allowed < 100 || r.Figures.Denied < 100 || during < 100 {
			t.Errorf("%s: %+v, %d of it after the fault: too little was decided to tell anything", name, r.Figures, during)
		}
	}
}

// haveTLS fails the test unless nodes have TLS with each other and with clients.
func haveTLS(t *testing.T, f *fleet.Fleet) {
	t.Helper()
	for _, n := range f.Nodes() {
		if !n.Alive() {
			continue
		}
		m, err := n.Metrics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(n.URL(), "https://") || m[`weir_certificate_expiry_seconds{plane="peer"}`] <= 0 ||
			m[`weir_certificate_expiry_seconds{plane="client"}`] <= 0 {
			t.Errorf("%s is asked at %s, and has no certificates for members or clients", n.Name, n.URL())
		}
	}
}

// TestScenarios: each has a name of its own, and says what it is.
func TestScenarios(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range All() {
		if s.Name == "" || s.About == "" || seen[s.Name] || strings.ContainsAny(s.Name, " /") {
			t.Errorf("%q (%q) cannot be a scenario's name", s.Name, s.About)
		}
		seen[s.Name] = true
	}
}

// TestTakeoversOfAFault: what is broken once costs a key little, however long it lasts.
func TestTakeoversOfAFault(t *testing.T) {
	for _, row := range []struct {
		f     fault
		lasts history.Micros
		want  int
	}{
		{fault{}, 30_000_000, takeoversEach},
		{fault{takes: 1}, 1_000_000, 1},
		{fault{takes: 1, shaky: true}, 1_000_000, 1 + takeoversPerSecond},
		{fault{shaky: true}, 3_000_000, takeoversEach + 3*takeoversPerSecond},
	} {
		if got := row.f.takeovers(row.lasts); got != row.want {
			t.Errorf("%+v: %d, want %d", row.f, got, row.want)
		}
	}
}

// TestMixesAllowNoMoreThanTheirFaults do.
func TestMixesAllowNoMoreThanTheirFaults(t *testing.T) {
	for _, row := range []struct {
		cuts, losses int
		want         history.Allows
	}{
		{0, 0, history.Allows{Closed: 1, Local: 1, Open: 1}},
		{0, 2, history.Allows{Closed: 3, Local: 3, Open: 3, Losses: 2}},
		{1, 0, history.Allows{Closed: 1, Local: 2, Open: 2}},
		{5, 1, history.Allows{Closed: 2, Local: 4, Open: 4, Losses: 1}},
	} {
		row.want.Raised = true
		if got := mixed(3, row.cuts, row.losses); got != row.want {
			t.Errorf("%d cuts, %d losses: %+v, want %+v", row.cuts, row.losses, got, row.want)
		}
	}
}

// TestUnfelt: of which faults no client is to notice anything, which hold up what nodes
// tell each other, and which are to start nodes again or to have one join.
func TestUnfelt(t *testing.T) {
	f, err := fleet.New(t.Context(), fleet.Config{Nodes: 2 * size, Spare: 2 * size, Ground: fleet.Loopback{},
		Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, s := range All() {
		st := &stage{Fleet: f, rng: rngOf(s.Name, 1), size: s.size(), spared: -1, rules: rules()}
		want := slices.Contains([]string{"gossip-blocked", "disorder"}, s.Name)
		f := s.make(st)
		if got := f.allows.Unfelt; got != want {
			t.Errorf("%s: %v, want %v", s.Name, got, want)
		}
		holds := history.HoldsAlways
		switch s.Name {
		case "nothing", "kill", "kill-hot", "quick-restart", "leave", "join", "rolling-restart", "rolling-hot",
			"whole-restart", "power-cut", "power-cut-two", "power-cut-clock", "disk-full", "reload", "reload-kill",
			"clocks", "clocks-apart", "clocks-kill", "leave-kill", "several", "cached-denials":
			holds = history.HoldsNothing
		case "pause", "pause-hot", "split", "split-30s", "split-asked", "leave-alone", "shattered", "one-link":
			holds = history.HoldsBack
		}
		if f.holds != holds {
			t.Errorf("%s: it holds up %q, want %q", s.Name, f.holds, holds)
		}
		if f.allows.Full != (s.Name == "full") {
			t.Errorf("%s: nodes may have no room: %v", s.Name, f.allows.Full)
		}
		again, joins := 0, 0
		switch s.Name {
		case "rolling-restart", "rolling-hot", "whole-restart", "power-cut", "power-cut-clock", "disk-full", "clocks",
			"clocks-apart":
			again = size
		case "power-cut-two":
			again = size - 1
		case "kill", "kill-hot", "clocks-kill", "quick-restart", "leave", "stale-owner", "leave-alone":
			again = 1
		case "join":
			joins = 1
		}
		if len(f.again) != again || len(f.joins) != joins {
			t.Errorf("%s: %d are to start again and %d to join, want %d and %d", s.Name, len(f.again), len(f.joins), again,
				joins)
		}
	}
}

// Both rules that draw on a quota of a run count by one counter, and the file is what its
// author means.
func TestQuotasOfRuns(t *testing.T) {
	set, err := policy.Parse("run", []byte(yaml(served(), unaskedLimit, "a test")), policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	quotas := 0
	for _, r := range served() {
		var keys []arith.Key
		for _, path := range r.Paths() {
			var c arith.Charge
			if m, err := set.Resolve(&limiter.Request{Path: path, User: "u", IP: "192.0.2.1"}, &c); err != nil || m.Rule == "" {
				t.Errorf("%s: %+v, %v", path, m, err)
			}
			keys = append(keys, *c.Key(0))
		}
		if !r.Quota {
			continue
		}
		quotas++
		if len(keys) != 2 || keys[0] != keys[1] || keys[0].Rule.Name != r.Name {
			t.Errorf("%s: %+v", r.Name, keys)
		}
	}
	if quotas != 2 {
		t.Errorf("%d quotas", quotas)
	}
}

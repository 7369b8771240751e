//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// A cluster of the last version becomes one of this version, member by member, and goes back to
// it, while clients ask: no check fails, every count is exact, and an id counts once. testdata/last-version
// is the commit of the last version; whoever makes a release, or a new wire, changes it.
func TestUpgrade(t *testing.T) {
	if os.Getenv("WEIR_UPGRADE") == "" {
		t.Skip("it builds the last version, for a minute or more: make upgrade-test runs it")
	}
	last := lastVersion(t)
	for name, c := range map[string]struct{ before, after string }{
		"up":   {last, program},
		"back": {program, last},
	} {
		t.Run(name, func(t *testing.T) {
			v := surviving{3, func(t *testing.T, all []*seat) []*seat {
				t.Helper()
				ids := upgradedIDs{a: newAsker(t, all)}
				ids.ask(t, all)
				for _, s := range all {
					s.signal(syscall.SIGTERM)
					s.left(t)
					s.program = c.after
					s.start(t)
					settle(t, all) // the next one goes when this one is back
					ids.ask(t, all)
				}
				return all
			}}
			v.runFrom(t, c.before).judge(t)
		})
	}
}

// upgradedIDs are checks with ids, which members of either version are asked.
type upgradedIDs struct {
	a      *asker
	stages int
	used   uint64 // units that were charged for the key
}

// ask asks each member, of either version, about one id, and requires that it counts once.
func (u *upgradedIDs) ask(t *testing.T, all []*seat) {
	t.Helper()
	u.stages++
	u.used++
	for i, s := range all {
		check := &weirv1.CheckRequest{Path: "/k", User: "ids", Id: fmt.Sprint("stage-", u.stages)}
		d, err := u.a.nodes[i].Check(t.Context(), check)
		if err != nil || !d.GetAllowed() || d.GetRepeated() != (i > 0) || len(d.GetLimits()) != 1 ||
			d.GetLimits()[0].GetRemaining() != clusterLimit-u.used {
			t.Errorf("stage %d, %s, after %d units: %v, %v", u.stages, s.name, u.used, d, err)
		}
		wide := int64(limiter.NarrowUnits + 1)
		d, err = u.a.nodes[i].Check(t.Context(), &weirv1.CheckRequest{Path: "/k", User: "wide", Cost: &wide})
		if err != nil || d.GetAllowed() || !d.GetNever() {
			t.Errorf("stage %d, %s, a wide cost: %v, %v", u.stages, s.name, d, err)
		}
	}
}

// lastVersion builds the node of the last version from the repository's history.
func lastVersion(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "last-version"))
	if err != nil {
		t.Fatal(err)
	}
	commit, dir := strings.TrimSpace(string(text)), t.TempDir()
	out, err := command(t, filepath.Join("..", ".."), nil, "git", "cat-file", "-e", commit+"^{commit}")
	if err != nil {
		t.Fatalf("the commit %s of the last version is not in this clone: get all of the history (git fetch --unshallow): "+
			"%v\n%s", commit, err, out)
	}
	if out, err := command(t, filepath.Join("..", ".."), nil, "bash", "-euo", "pipefail", "-c",
		`git archive "$1" | tar -C "$2" -xf -`, "bash", commit, dir); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	node := filepath.Join(dir, "last-node")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", node, "./cmd/node")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", commit, err, out)
	}
	return node
}

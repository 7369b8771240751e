//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// A cluster of the last version becomes one of this version, member by member, and goes back to
// it, while clients ask: no check fails, and every count is exact. Ids of checks are refused while a
// member has a version that does not know them, and count once where all know them. testdata/last-version
// is the commit of the last version; whoever makes a release changes it.
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

// upgradedIDs are checks with ids, of members of both versions.
type upgradedIDs struct {
	a      *asker
	stages int
	used   uint64 // units that were charged for the key
}

// ask asks each member of this version about one id, and requires that it counts once if all
// members have this version, and is refused if one has the last.
func (u *upgradedIDs) ask(t *testing.T, all []*seat) {
	t.Helper()
	u.stages++
	remembered := !slices.ContainsFunc(all, func(s *seat) bool { return !s.knowsIDs() })
	for i, s := range all {
		if !s.knowsIDs() {
			continue
		}
		check := &weirv1.CheckRequest{Path: "/k", User: "ids", Id: fmt.Sprint("stage-", u.stages)}
		d, err := u.a.nodes[i].Check(t.Context(), check)
		switch {
		case !remembered && (status.Code(err) != codes.InvalidArgument ||
			!strings.Contains(err.Error(), "remembers no ids: upgrade it, or leave out the id")):
			t.Errorf("stage %d, %s, in a cluster of both versions: %v, %v", u.stages, s.name, d, err)
		case remembered && (err != nil || !d.GetAllowed() || d.GetRepeated() != (i > 0)):
			t.Errorf("stage %d, %s, in a cluster of this version: %v, %v", u.stages, s.name, d, err)
		}
		if remembered && i == 0 {
			u.used++
		}
		wide := int64(limiter.NarrowUnits + 1)
		d, err = u.a.nodes[i].Check(t.Context(), &weirv1.CheckRequest{Path: "/k", User: "wide", Cost: &wide})
		switch {
		case !remembered && (status.Code(err) != codes.InvalidArgument ||
			!strings.Contains(err.Error(), "counts no units above 4294967295")):
			t.Errorf("stage %d, %s, in a cluster of both versions, a wide cost: %v, %v", u.stages, s.name, d, err)
		case remembered && (err != nil || d.GetAllowed() || !d.GetNever()):
			t.Errorf("stage %d, %s, in a cluster of this version, a wide cost: %v, %v", u.stages, s.name, d, err)
		}
		check.IdOptional = true
		d, err = u.a.nodes[i].Check(t.Context(), check)
		if !remembered {
			u.used++
		}
		if err != nil || !d.GetAllowed() || d.GetRepeated() != remembered || len(d.GetLimits()) != 1 ||
			d.GetLimits()[0].GetRemaining() != clusterLimit-u.used {
			t.Errorf("stage %d, %s, after %d units, an optional id: %v, %v", u.stages, s.name, u.used, d, err)
		}
	}
	for i, s := range all { // those of the last version, too
		d, err := u.a.nodes[i].Check(t.Context(), &weirv1.CheckRequest{Path: "/k", User: "ids", Peek: true})
		if err != nil || len(d.GetLimits()) != 1 || d.GetLimits()[0].GetRemaining() != clusterLimit-u.used {
			t.Errorf("stage %d, %s, after %d units: %v, %v", u.stages, s.name, u.used, d, err)
		}
	}
}

// knowsIDs reports whether the seat's node has this version.
func (s *seat) knowsIDs() bool { return s.program == "" || s.program == program }

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

package archtest

import (
	"io/fs"
	"os"
	"testing"
)

// repository is the root of the module, seen from this package.
func repository() fs.FS { return os.DirFS("../..") }

func TestHouse(t *testing.T) {
	m, err := load(repository())
	if err != nil {
		t.Fatal(err)
	}
	if len(m.files) == 0 {
		t.Fatal("no source was found, so nothing was checked")
	}
	for _, f := range newChecker().check(m) {
		t.Error(f)
	}
}

// TestRows holds the tables themselves against what they are for: a ban
// without a reason teaches nothing, and a library for a row that does not exist
// bans it from everyone by accident.
func TestRows(t *testing.T) {
	c := newChecker()
	seen := map[string]bool{}
	for _, r := range c.rows {
		if seen[r.path] {
			t.Errorf("%s has two rows", show(&r))
		}
		seen[r.path] = true
		if r.knows == "" {
			t.Errorf("%s: say what it is for", show(&r))
		}
		for _, b := range r.never {
			if b.why == "" {
				t.Errorf("%s: no reason for the ban of %s %s", show(&r), b.kind, b.name)
			}
		}
	}
	for _, g := range c.generals {
		if g.why == "" {
			t.Errorf("no reason for the general ban of %s %s", g.kind, g.name)
		}
		for _, p := range g.but {
			if !seen[p] {
				t.Errorf("the ban of %s %s spares %q, which has no row", g.kind, g.name, p)
			}
		}
	}
	for _, l := range c.libraries {
		if l.why == "" {
			t.Errorf("no reason given for %s", l.path)
		}
		for _, p := range l.in {
			if !seen[p] {
				t.Errorf("%s is for %q, which has no row", l.path, p)
			}
		}
	}
}

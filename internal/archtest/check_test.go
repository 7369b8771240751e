package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// finding is one thing that is not as it should be.
type finding struct {
	path string
	line int // 0: the whole file
	what string
	why  string
}

func (f finding) String() string {
	at := f.path
	if f.line > 0 {
		at = fmt.Sprintf("%s:%d", f.path, f.line)
	}
	return fmt.Sprintf("%s: %s\n\tbecause: %s", at, f.what, f.why)
}

// checker holds a module against the tables.
type checker struct {
	rows      []row
	libraries []library
	generals  []general
	state     map[string]string
	long      map[string]allowance // by the path of a file
	// largeAllowed are the exceptions of [checker.large].
	largeAllowed map[string]allowance
	// flat are the structs whose fields have no bound.
	flat     map[string]string
	maxLines int // of a file of code that is not in long
	maxTest  int // of a test file that is not in long
}

// newChecker returns the checker of the house as it is.
func newChecker() *checker {
	return &checker{
		rows: house(), libraries: libraries(), generals: generals(),
		state: stateAllowed(), long: longAllowed(), largeAllowed: largeAllowed(), flat: flatTypes(),
		maxLines: 450, maxTest: 700,
	}
}

// check returns all that is wrong with a module.
func (c *checker) check(m *module) []finding {
	var out []finding
	homeless := map[string]bool{}
	for _, f := range m.files {
		r := c.row(f.pkg)
		if r == nil {
			if !homeless[f.pkg] {
				out = append(out, finding{f.path, 0, fmt.Sprintf("package %q has no row in the house", f.pkg),
					"a package starts with its floor and its bans: give it a row in internal/archtest/house_test.go"})
			}
			homeless[f.pkg] = true
			continue
		}
		if !f.test {
			out = append(out, c.bans(r, f)...)
			out = append(out, c.floors(r, f)...)
			out = append(out, c.thirdParty(r, f)...)
			out = append(out, c.variables(f)...)
		}
		out = append(out, c.style(r, f)...)
	}
	out = append(out, c.requirements(m)...)
	out = append(out, c.large(m)...)
	return append(out, c.stale(m)...)
}

// row returns the row of the package in directory pkg, nil if it has none. A
// tree's row holds for what is below it, unless that has a row of its own.
func (c *checker) row(pkg string) *row {
	var best *row
	for i := range c.rows {
		r := &c.rows[i]
		if r.path == pkg {
			return r
		}
		if r.tree && strings.HasPrefix(pkg, r.path+"/") && (best == nil || len(r.path) > len(best.path)) {
			best = r
		}
	}
	return best
}

// bans holds a file against its row and the general bans. A fact is reported
// once, with the reason of its own row where both have one.
func (c *checker) bans(r *row, f *file) []finding {
	var out []finding
	if f.generated {
		return nil
	}
	for _, x := range f.facts {
		b := matching(r.never, x)
		if b == nil {
			b = matching(c.generalBans(r), x)
		}
		if b != nil {
			out = append(out, finding{f.path, x.line, fmt.Sprintf("%s: %s", show(r), x.says()), b.why})
		}
	}
	return out
}

func (c *checker) generalBans(r *row) []ban {
	var out []ban
	for _, g := range c.generals {
		if (g.below == 0 || r.floor < g.below) && !slices.Contains(g.but, r.path) {
			out = append(out, g.ban)
		}
	}
	return out
}

func matching(bans []ban, x fact) *ban {
	for i := range bans {
		if bans[i].matches(x) {
			return &bans[i]
		}
	}
	return nil
}

// matches reports whether x is what b bans.
func (b *ban) matches(x fact) bool {
	if b.kind != x.kind {
		return false
	}
	if stem, ok := strings.CutSuffix(b.name, "*"); ok {
		return strings.HasPrefix(x.name, stem)
	}
	if b.kind == imports {
		return b.name == origin(x.name) || within(x.name, b.name)
	}
	return b.name == x.name
}

// within reports whether path is root or lies below it.
func within(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

// floors reports imports that do not point down.
func (c *checker) floors(r *row, f *file) []finding {
	var out []finding
	for _, x := range f.facts {
		if x.kind != imports || origin(x.name) != "ours" {
			continue
		}
		to := c.row(strings.TrimPrefix(x.name, "./"))
		switch {
		case to == nil || to == r && r.tree:
			// Reported where that package is, or within one row.
		case to.floor > r.floor:
			out = append(out, finding{f.path, x.line,
				fmt.Sprintf("%s, on floor %d, imports %s, on floor %d above it", show(r), r.floor, show(to), to.floor),
				"imports point down only: what is below can be understood, tested and used without what is above"})
		case to.floor == r.floor:
			out = append(out, finding{f.path, x.line,
				fmt.Sprintf("%s imports %s, both on floor %d", show(r), show(to), r.floor),
				"packages of one floor do not know each other: what both need is on a floor below, and they meet on one above"})
		}
	}
	return out
}

// thirdParty reports imports of libraries by others than those who may.
func (c *checker) thirdParty(r *row, f *file) []finding {
	var out []finding
	for _, x := range f.facts {
		if x.kind != imports || origin(x.name) != "third-party" {
			continue
		}
		lib := c.library(x.name)
		switch {
		case lib == nil:
			out = append(out, finding{f.path, x.line, fmt.Sprintf("%s imports %s, which is not among the libraries", show(r),
				x.name),
				"a dependency is a decision: add it to the libraries in internal/archtest/house_test.go, with its reason"})
		case !slices.Contains(lib.in, r.path):
			out = append(out, finding{f.path, x.line,
				fmt.Sprintf("%s imports %s, which is for %s", show(r), x.name, whom(lib)), lib.why})
		}
	}
	return out
}

func (c *checker) library(importPath string) *library {
	for i := range c.libraries {
		if within(importPath, c.libraries[i].path) {
			return &c.libraries[i]
		}
	}
	return nil
}

// requirements reports modules in go.mod that are no library of the house.
func (c *checker) requirements(m *module) []finding {
	var out []finding
	for _, r := range m.requires {
		if c.library(r.path) == nil {
			out = append(out, finding{"go.mod", r.line, fmt.Sprintf("%s is not among the libraries", r.path),
				"a dependency is a decision, and rivals to compare with belong to the nested module bench: " +
					"add it to the libraries in internal/archtest/house_test.go, with its reason, or drop it"})
		}
	}
	return out
}

// says puts a fact into words.
func (x fact) says() string {
	switch x.kind {
	case imports:
		return "imports " + x.name
	case uses:
		return "uses " + x.name
	case spawns:
		return "starts a goroutine"
	case panics:
		return "panics"
	}
	return fmt.Sprintf("has the literal %q", x.name)
}

func show(r *row) string {
	if r.path == "" {
		return "the root package"
	}
	return r.path
}

func whom(l *library) string {
	if len(l.in) == 0 {
		return "tests only"
	}
	return strings.Join(l.in, ", ") + " only"
}

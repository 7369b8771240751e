package archtest

import (
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A test that leaves itself to `make wire` is in a package that `make wire` runs.
func TestWireRunsWhatIsLeftToIt(t *testing.T) {
	const root = "../.."
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	_, recipe, _ := strings.Cut(string(makefile), "\nwire: ")
	recipe, _, _ = strings.Cut(recipe, "\n\n")
	runs, found := strings.Fields(recipe), 0
	err = filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") ||
			strings.HasSuffix(path, filepath.Join("archtest", "wire_test.go")) {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), "make wire runs it") {
			return err
		}
		found++
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		all := strings.HasPrefix(dir, "chaos") && slices.Contains(runs, "./chaos/...") // but those that the recipe names
		if pkg := "./" + filepath.ToSlash(dir); !all && !slices.Contains(runs, strings.TrimSuffix(pkg, "/.")) &&
			!(dir == "." && slices.Contains(runs, ".")) {
			t.Errorf("%s leaves a test to `make wire`, which does not run %s", path, pkg)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found == 0 {
		t.Error("no test is left to it")
	}
}

// What `make race` leaves to `make wire` starts no goroutine, tests included: the race
// detector would find nothing.
func TestWhatTheRaceDetectorIsSpared(t *testing.T) {
	makefile, err := fs.ReadFile(repository(), "Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(makefile), "\nALONE  := ")
	list, _, _ = strings.Cut(list, "\n")
	_, recipe, _ := strings.Cut(string(makefile), "\nwire: ")
	recipe, _, _ = strings.Cut(recipe, "\n\n")
	files := map[string]int{}
	m, err := load(repository())
	if err != nil {
		t.Fatal(err)
	}
	alone := strings.Fields(list)
	for _, f := range m.files {
		if !slices.Contains(alone, f.pkg) {
			continue
		}
		files[f.pkg]++
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if spawned(n) {
				t.Errorf("%s:%d starts a goroutine: remove %s from ALONE in the Makefile", f.path, f.line(n.Pos()), f.pkg)
			}
			return true
		})
	}
	for _, pkg := range alone {
		if files[pkg] == 0 || strings.Count(recipe, " ./"+pkg+" ")+strings.Count(recipe, " ./"+pkg+"\n") != 1 {
			t.Errorf("%s: ALONE has it; it has %d files, and make wire must run it once", pkg, files[pkg])
		}
	}
}

// spawned reports whether a node of the syntax is a go statement, or calls a method Go
// with a function.
func spawned(n ast.Node) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		_, ok = n.(*ast.GoStmt)
		return ok
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	_, function := call.Args[0].(*ast.FuncLit)
	return ok && function && method.Sel.Name == "Go"
}

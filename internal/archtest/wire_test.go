package archtest

import (
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
		if err != nil || !strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "wire_test.go") {
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
		if pkg := "./" + filepath.ToSlash(dir); !slices.Contains(runs, strings.TrimSuffix(pkg, "/.")) && !(dir == "." && slices.Contains(runs, ".")) {
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

package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// Some rows of the list could hold in one mode and not in another, and have. They must
// be shown in every mode: by a function whose comment names the modes behind the id,
// such as "A9 (memory, cluster, redis): ...", which a test calls, and which lies in a
// file with a function seedModes that makes each of these modes.

// modeSeeds returns the ids that must be shown in all modes.
func modeSeeds() []string { return []string{"A9", "A12", "B1", "B5", "D7", "E8"} }

// allModes are the modes.
func allModes() []string { return []string{"cluster", "memory", "redis"} }

func TestSeedModes(t *testing.T) {
	shown, problems, err := findSeedModes(repository())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range append(problems, seedModeProblems(modeSeeds(), shown)...) {
		t.Error(p)
	}
}

// seedModeProblems says which ids are not shown in which modes.
func seedModeProblems(ids []string, shown map[string][]string) (out []string) {
	for _, id := range ids {
		for _, mode := range allModes() {
			if !slices.Contains(shown[id], mode) {
				out = append(out, fmt.Sprintf("%s is not shown in mode %s: a function of a test must do so, with a comment that "+
					"begins with %s (%s)", id, mode, id, strings.Join(allModes(), ", ")))
			}
		}
	}
	return out
}

// seedWithModes is the beginning of a comment that names modes.
var seedWithModes = regexp.MustCompile(`^([A-E][0-9]{1,2}(?:, [A-E][0-9]{1,2})*) \(([a-z]+(?:, [a-z]+)*)\):`)

// findSeedModes returns the modes in which functions of tests show an id, and what is
// wrong with those functions.
func findSeedModes(fsys fs.FS) (shown map[string][]string, problems []string, err error) {
	shown = map[string][]string{}
	err = fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != "." && (path.Base(p)[0] == '.' || p == "internal/archtest"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(p, "_test.go") || strings.Contains(p, "testdata/"):
			return nil
		}
		more, err := seedModesIn(fsys, p, shown)
		problems = append(problems, more...)
		return err
	})
	return shown, problems, err
}

func seedModesIn(fsys fs.FS, p string, shown map[string][]string) (problems []string, err error) {
	src, err := fs.ReadFile(fsys, p)
	if err != nil {
		return nil, err
	}
	f, err := parser.ParseFile(token.NewFileSet(), p, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	used, made := map[string]int{}, map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			used[n.Name]++
		case *ast.FuncDecl:
			if n.Name.Name == "seedModes" && n.Body != nil {
				made = keysOf(n.Body)
			}
		}
		return true
	})
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Doc == nil {
			continue
		}
		m := seedWithModes.FindStringSubmatch(fn.Doc.Text())
		if m == nil {
			continue
		}
		if used[fn.Name.Name] < 2 {
			problems = append(problems, fmt.Sprintf("%s: nothing calls %s, which is to show %s", p, fn.Name.Name, m[1]))
			continue
		}
		for _, mode := range strings.Split(m[2], ", ") {
			if !made[mode] {
				problems = append(problems,
					fmt.Sprintf("%s: %s is to show %s in mode %s, which seedModes of that file does not make", p, fn.Name.Name, m[1],
						mode))
				continue
			}
			for _, id := range strings.Split(m[1], ", ") {
				shown[id] = append(shown[id], mode)
			}
		}
	}
	return problems, nil
}

// keysOf returns the keys of literals in a function that are strings.
func keysOf(body *ast.BlockStmt) map[string]bool {
	keys := map[string]bool{}
	ast.Inspect(body, func(n ast.Node) bool {
		if kv, ok := n.(*ast.KeyValueExpr); ok {
			if lit, ok := kv.Key.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if s, err := strconv.Unquote(lit.Value); err == nil {
					keys[s] = true
				}
			}
		}
		return true
	})
	return keys
}

// TestSeedModesProblems plants what the search must find and what it must not.
func TestSeedModesProblems(t *testing.T) {
	const modes = "\nfunc seedModes() map[string]int { return map[string]int{\"memory\": 1, \"cluster\": 2, \"redis\": " +
		"3} }\n"
	fsys := fstest.MapFS{
		"a_test.go": {Data: []byte("package a\n" + modes +
			"\nfunc TestA() { shows(); also() }\n\n// A9 (memory, cluster, redis): so.\nfunc shows() {}\n\n// B1, B5 (memory, " +
			"redis): so.\nfunc also() {}\n\n// D7 (memory, cluster, redis): nobody.\nfunc unused() {}\n\n// E8: in one.\nfunc " +
			"one() {}\n")},
		"b/b_test.go": {Data: []byte("package b\n\n// E8 (memory, cluster, redis): without the modes.\nfunc shows() " +
			"{}\n\nfunc TestB() { shows() }\n")},
		"c/c.go": {Data: []byte("package c\n" + modes +
			"\n// A12 (memory, cluster, redis): in no test.\nfunc shows() { shows() }\n")},
		".git/e_test.go": {Data: []byte("package e\n" + modes +
			"\n// A12 (memory, cluster, redis): x.\nfunc shows() { shows() }\n")},
		"d/empty_test.go": {Data: []byte("package d\n")},
	}
	shown, problems, err := findSeedModes(fsys)
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(shown)); !slices.Equal(got, []string{"A9", "B1", "B5"}) {
		t.Errorf("shown are %v", got)
	}
	if len(problems) != 4 { // unused, and each mode of b
		t.Errorf("problems are %q", problems)
	}
	missing := seedModeProblems([]string{"A9", "B1", "E8"}, shown)
	if len(missing) != 4 || !strings.Contains(missing[0], "B1 is not shown in mode cluster") {
		t.Errorf("missing are %q", missing)
	}
}

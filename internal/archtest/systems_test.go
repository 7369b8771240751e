//go:build !race

package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// listed is a package as `go list` describes it. A test's variant of a package is a
// package of its own: "p [p.test]" is p with its test files.
type listed struct {
	Dir, ImportPath string
	GoFiles         []string
	ImportMap       map[string]string
	Module          *struct {
		Main      bool
		GoVersion string
	}
	Error *struct{ Err string }
}

// TestOtherSystems: all code and all tests pass the type checker as macOS and Windows
// see them. That finds what a compiler would, in a few seconds and not in minutes,
// since no machine code is made; `make cross` compiles.
func TestOtherSystems(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make systems runs it")
	}
	for _, system := range []string{"darwin", "windows"} {
		for dir, least := range map[string]int{".": 50, instruments: 20} {
			t.Run(system+"/"+dir, func(t *testing.T) {
				own, wrong, err := typeCheck(t, filepath.Join("../..", dir), system)
				if err != nil {
					t.Fatal(err)
				}
				if own < least {
					t.Errorf("only %d packages of the module were checked", own)
				}
				for _, err := range wrong {
					t.Error(err)
				}
			})
		}
	}
}

// TestOtherSystemsAreSeen: what only another system's compiler sees is found, in code
// and in tests.
func TestOtherSystemsAreSeen(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make systems runs it")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":        "module m\n\ngo 1.26.0\n",
		"m.go":          "package m\n\nfunc f() int { return g() }\n",
		"m_linux.go":    "package m\n\nfunc g() int { return 1 }\n",
		"m_darwin.go":   "package m\n\nfunc g() int { return 1 }\n",
		"m_test.go":     "package m\n\nvar _ = f() + h\n",
		"h_test.go":     "//go:build !darwin\n\npackage m\n\nconst h = 1\n",
		"other_test.go": "package m_test\n\nimport \"m\"\n\nvar _ = m.F\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for system, want := range map[string][]string{
		"linux":   {"undefined: m.F"},
		"darwin":  {"undefined: h", "undefined: m.F"},
		"windows": {"undefined: g", "undefined: g", "undefined: m.F"},
	} {
		own, wrong, err := typeCheck(t, dir, system)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, err := range wrong {
			var e types.Error
			if errors.As(err, &e) {
				got = append(got, e.Msg)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || own != 3 {
			t.Errorf("%s: %d packages, %q, want %q", system, own, got, want)
		}
	}
}

// typeCheck type-checks the module in a directory, its tests and all that they import,
// from source. It returns how many packages of the module there are, tests counted
// apart, and what is wrong with them.
func typeCheck(t *testing.T, dir, system string) (own int, wrong []error, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-test",
		"-json=Dir,ImportPath,GoFiles,ImportMap,Module,Error", "./...")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH=amd64", "CGO_ENABLED=0", "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		return 0, nil, fmt.Errorf("go list for %s: %w", system, err)
	}
	checked := map[string]*types.Package{"unsafe": types.Unsafe}
	fset := token.NewFileSet()
	for in := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := in.Decode(&p); errors.Is(err, io.EOF) {
			return own, wrong, nil
		} else if err != nil {
			return own, wrong, err
		}
		mine := p.Module != nil && p.Module.Main
		switch {
		case p.Error != nil:
			wrong = append(wrong, errors.New(p.Error.Err))
			continue
		case p.ImportPath == "unsafe" || filepath.Ext(p.ImportPath) == ".test":
			continue // the main package of a test is generated
		case mine:
			own++
		}
		pkg, errs := check(fset, &p, checked, mine)
		checked[p.ImportPath] = pkg
		wrong = append(wrong, errs...)
	}
}

// check type-checks one package, whose imports are checked already. Of packages that
// are not the module's own only declarations are.
func check(fset *token.FileSet, p *listed, checked map[string]*types.Package, mine bool) (*types.Package, []error) {
	var wrong []error
	var files []*ast.File
	for _, name := range p.GoFiles {
		if !filepath.IsAbs(name) {
			name = filepath.Join(p.Dir, name)
		}
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		files = append(files, f)
	}
	c := types.Config{
		Sizes: types.SizesFor("gc", "amd64"), IgnoreFuncBodies: !mine, FakeImportC: true,
		Importer: importer(func(path string) (*types.Package, error) {
			if to, ok := p.ImportMap[path]; ok {
				path = to
			}
			if pkg := checked[path]; pkg != nil {
				return pkg, nil
			}
			return nil, fmt.Errorf("%s is not among what %s imports", path, p.ImportPath)
		}),
		Error: func(err error) {
			if mine {
				wrong = append(wrong, err)
			}
		},
	}
	if p.Module != nil && p.Module.GoVersion != "" {
		c.GoVersion = "go" + p.Module.GoVersion
	}
	pkg, err := c.Check(p.ImportPath, fset, files, nil)
	if err != nil && len(wrong) == 0 && mine {
		wrong = append(wrong, err)
	}
	return pkg, wrong
}

// importer is a function that finds packages.
type importer func(path string) (*types.Package, error)

// Import implements [types.Importer].
func (f importer) Import(path string) (*types.Package, error) { return f(path) }

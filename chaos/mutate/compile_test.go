package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// listed is a package of go list, or one of its tests.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	ImportMap               map[string]string
}

// program is what go list says of all packages, by their paths, and by their files.
type program struct {
	byPath map[string]*listed
	byFile map[string]*listed

	set   *token.FileSet
	reads types.Importer // what the compiler has of packages that are not built for a test
}

// list lists the packages of the product and of its instruments, with what they need, and what the compiler has of it.
func list(t *testing.T, root string) *program {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-test", "-deps", "-export",
		"-json=ImportPath,Dir,Export,GoFiles,ImportMap", "./...", "./chaos/...")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{byPath: make(map[string]*listed), byFile: make(map[string]*listed), set: token.NewFileSet()}
	p.reads = p.importer(nil)
	for in := json.NewDecoder(bytes.NewReader(out)); ; {
		one := new(listed)
		if err := in.Decode(one); errors.Is(err, io.EOF) {
			return p
		} else if err != nil {
			t.Fatal(err)
		}
		p.byPath[one.ImportPath] = one
		for _, f := range one.GoFiles {
			if name := filepath.Join(one.Dir, f); p.byFile[name] == nil { // a package comes before its tests
				p.byFile[name] = one
			}
		}
	}
}

// importer reads what the compiler has of packages. For a test some have another path.
func (p *program) importer(paths map[string]string) types.Importer {
	return importer.ForCompiler(p.set, "gc", func(path string) (io.ReadCloser, error) {
		if to, ok := paths[path]; ok {
			path = to
		}
		of := p.byPath[path]
		if of == nil || of.Export == "" {
			return nil, fmt.Errorf("%s is not listed", path)
		}
		return os.Open(of.Export)
	})
}

// compile returns what is wrong with a package if a file of it has another text. Of its other files only the
// declarations are read, so it takes some milliseconds.
func (p *program) compile(pkg *listed, file, text string) (wrong error) {
	var files []*ast.File
	for _, name := range pkg.GoFiles {
		path, src := filepath.Join(pkg.Dir, name), any(nil)
		if path == file {
			src = text
		}
		f, err := parser.ParseFile(p.set, path, src, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range f.Decls {
			if fn, is := d.(*ast.FuncDecl); is && path != file {
				fn.Body = nil
			}
		}
		files = append(files, f)
	}
	reads := p.reads
	if len(pkg.ImportMap) > 0 {
		reads = p.importer(pkg.ImportMap)
	}
	config := types.Config{
		Importer: reads,
		Error: func(err error) {
			var e types.Error
			if errors.As(err, &e) && p.set.Position(e.Pos).Filename == file && wrong == nil {
				wrong = err
			}
		},
	}
	_, _ = config.Check(strings.TrimSuffix(pkg.ImportPath, ".test"), p.set, files, nil) // Error has what counts
	return wrong
}

// TestEditsCompile: what does not compile is noticed by no test.
func TestEditsCompile(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	p, tried := list(t, root), 0
	for _, m := range mutations() {
		texts := make(map[string]string)
		for _, e := range m.edits {
			path := filepath.Join(root, e.file)
			if _, ok := texts[path]; !ok {
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				texts[path] = string(text)
			}
			start, end, err := e.place(texts[path])
			if err != nil {
				t.Errorf("%s: %v", m.name, err)
				continue
			}
			texts[path] = texts[path][:start] + e.now + texts[path][end:]
		}
		for path, text := range texts {
			if filepath.Ext(path) != ".go" {
				continue
			}
			pkg := p.byFile[path]
			if pkg == nil {
				t.Errorf("%s: %s is in no package that is built here", m.name, path)
				continue
			}
			tried++
			if err := p.compile(pkg, path, text); err != nil {
				t.Errorf("%s: it does not compile: %v", m.name, err)
			}
		}
	}
	if tried < len(mutations())/2 {
		t.Errorf("%d files were compiled for %d mutations", tried, len(mutations()))
	}
}

package archtest

import (
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// instruments is the nested module that keeps the rules of this one: it sees what is internal.
const instruments = "chaos"

// module is the parsed source of a Go module, with instruments, and other nested modules left out.
type module struct {
	path     string // module path, such as github.com/weirlimit/weir
	requires []require
	files    []*file
}

// require is a direct requirement of go.mod.
type require struct {
	path string
	line int
}

// file is one Go file.
type file struct {
	path      string // slash-separated, relative to the module
	pkg       string // its directory, "" for the module's root
	test      bool
	generated bool
	lines     int
	wide      []int // lines that have more than maxColumns
	fset      *token.FileSet
	ast       *ast.File
	facts     []fact
}

// fact is something that a file does and that a ban may name.
type fact struct {
	kind kind
	name string
	line int
}

// kind tells what sort of thing a fact is.
type kind string

const (
	imports  kind = "import"  // name: import path, "./ring" for one of the module
	uses     kind = "use"     // name: import path and selector, such as time.Now
	spawns   kind = "go"      // a go statement
	panics   kind = "panic"   // a call of panic
	literals kind = "literal" // name: the value of a string literal
)

var moduleLine = regexp.MustCompile(`(?m)^module\s+(\S+)`)

// load parses every Go file of the module at the root of fsys.
func load(fsys fs.FS) (*module, error) {
	gomod, err := fs.ReadFile(fsys, "go.mod")
	if err != nil {
		return nil, err
	}
	name := moduleLine.FindSubmatch(gomod)
	if name == nil {
		return nil, errors.New("go.mod names no module")
	}
	m := &module{path: string(name[1]), requires: directRequires(string(gomod))}
	err = walk(fsys, func(p string) error {
		if path.Ext(p) != ".go" {
			return nil
		}
		src, err := fs.ReadFile(fsys, p)
		if err != nil {
			return err
		}
		f, err := m.parse(p, src)
		if err != nil {
			return err
		}
		m.files = append(m.files, f)
		return nil
	})
	return m, err
}

// walk calls visit for every file that belongs to the module: not below
// testdata, hidden directories or nested modules but instruments.
func walk(fsys fs.FS, visit func(path string) error) error {
	return fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() {
			return visit(p)
		}
		if p == "." {
			return nil
		}
		base := path.Base(p)
		_, nested := fs.Stat(fsys, path.Join(p, "go.mod"))
		if base == "testdata" || base[0] == '.' || base[0] == '_' || nested == nil && p != instruments {
			return fs.SkipDir
		}
		return nil
	})
}

// directRequires returns the requirements of a go.mod that are not marked
// indirect.
func directRequires(gomod string) []require {
	var out []require
	inBlock := false
	for i, line := range strings.Split(gomod, "\n") {
		text, comment, _ := strings.Cut(line, "//")
		fields := strings.Fields(text)
		switch {
		case len(fields) == 0:
			continue
		case fields[0] == ")":
			inBlock = false
			continue
		case fields[0] == "require" && fields[len(fields)-1] == "(":
			inBlock = true
			continue
		case fields[0] == "require":
			fields = fields[1:]
		case !inBlock:
			continue
		}
		if !strings.Contains(comment, "indirect") {
			out = append(out, require{fields[0], i + 1})
		}
	}
	return out
}

func (m *module) parse(p string, src []byte) (*file, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, p, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &file{
		path: p, pkg: path.Dir(p), test: strings.HasSuffix(p, "_test.go"),
		generated: ast.IsGenerated(tree), lines: bytes.Count(src, []byte("\n")),
		fset: fset, ast: tree,
	}
	f.measure(src)
	if f.pkg == "." {
		f.pkg = ""
	}
	m.gather(f)
	return f, nil
}

// maxColumns is how many columns a line of Go has at most; a tab is one.
const maxColumns = 120

// measure finds the lines that are too wide, but for those of a text of several lines.
func (f *file) measure(src []byte) {
	within := make(map[int]bool)
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if n, ok := n.(*ast.BasicLit); ok && n.Kind == token.STRING {
			for from, to := f.line(n.Pos()), f.line(n.End()); from < to; from++ {
				within[from], within[to] = true, true
			}
		}
		return true
	})
	for i, line := range bytes.Split(src, []byte("\n")) {
		if !f.generated && !within[i+1] && utf8.RuneCount(line) > maxColumns {
			f.wide = append(f.wide, i+1)
		}
	}
}

// gather fills in the facts of a file.
func (m *module) gather(f *file) {
	names := map[string]string{} // local name of an import -> its path
	for _, spec := range f.ast.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		local := localName(p)
		p = m.relative(p)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		names[local] = p
		f.add(imports, p, spec)
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && names[x.Name] != "" {
				f.add(uses, names[x.Name]+"."+n.Sel.Name, n)
			}
		case *ast.GoStmt:
			f.add(spawns, "", n)
		case *ast.CallExpr:
			if x, ok := n.Fun.(*ast.Ident); ok && x.Name == "panic" {
				f.add(panics, "", n)
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				s, _ := strconv.Unquote(n.Value)
				f.add(literals, s, n)
			}
		}
		return true
	})
}

func (f *file) add(k kind, name string, n ast.Node) {
	f.facts = append(f.facts, fact{k, name, f.line(n.Pos())})
}

func (f *file) line(p token.Pos) int { return f.fset.Position(p).Line }

// does reports whether the file has a fact of that kind and name.
func (f *file) does(k kind, name string) bool {
	for _, x := range f.facts {
		if x.kind == k && x.name == name {
			return true
		}
	}
	return false
}

// relative shortens the import path of a package of the module to "./" and its
// directory, and leaves any other as it is.
func (m *module) relative(importPath string) string {
	if importPath == m.path {
		return "./"
	}
	if rest, ok := strings.CutPrefix(importPath, m.path+"/"); ok {
		return "./" + rest
	}
	return importPath
}

var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

// localName guesses the name of a package from its import path.
func localName(importPath string) string {
	base := path.Base(importPath)
	if majorVersion.MatchString(base) {
		base = path.Base(path.Dir(importPath))
	}
	return base
}

// origin tells whose package an import path, as in a fact, names.
func origin(importPath string) string {
	first, _, _ := strings.Cut(importPath, "/")
	switch {
	case first == ".":
		return "ours"
	case strings.Contains(first, "."):
		return "third-party"
	}
	return "std"
}

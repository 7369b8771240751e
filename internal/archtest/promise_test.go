package archtest

import (
	"bytes"
	"flag"
	"go/ast"
	"go/printer"
	"go/token"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false,
	"write the API as it is into testdata/api.txt, to be read before it is committed")

// promised returns the packages whose API 1.0 will promise. The types of other packages
// that they name are promised with them.
func promised() []string {
	return []string{"", "client", "cluster", "limiter", "middleware/grpclimit", "middleware/httplimit",
		"middleware/identity",
		"weirtest"}
}

// unpromised names what these packages export for other packages of this module, with
// the reason why no program should use it.
func unpromised() map[string]string {
	return map[string]string{
		"weir.Backend":       "its implementation is redisstore; it follows the arithmetic",
		"weir.BackendExtras": "as weir.Backend",
		"weir.Clustering":    "its implementation is package cluster",

		"weir.Administered": "the program's administration calls it",

		"cluster.Config.OpenMember": "weir.Open calls it",

		"cluster.Store":  "its implementation is diskstore; it follows the protocol",
		"cluster.Tracer": "which spans there are follows the protocol",

		"limiter.Compiled":       "limiter/arith reads it; it follows the algorithms",
		"limiter.Limit.C":        "as limiter.Compiled",
		"limiter.Limit.Plain":    "as limiter.Compiled",
		"limiter.Params":         "as limiter.Compiled",
		"limiter.Decision.Steps": "limiter/arith keeps there what it needs from one step to the next",
		"limiter.Steps":          "as limiter.Decision.Steps",
	}
}

// TestPromisedAPI holds testdata/api.txt against the source, so that a change of what
// is promised is seen where it is reviewed.
func TestPromisedAPI(t *testing.T) {
	m, err := load(repository())
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/api.txt"
	got := strings.Join(newSurface(m).lines(), "\n") + "\n"
	if *rewrite {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	was, is := strings.Split(string(file), "\n"), strings.Split(got, "\n")
	for _, line := range was {
		if !slices.Contains(is, line) {
			t.Errorf("gone: %s", line)
		}
	}
	for _, line := range is {
		if !slices.Contains(was, line) {
			t.Errorf("new: %s", line)
		}
	}
	if t.Failed() {
		t.Log("if that is meant, say so in CHANGELOG.md under API changes, and run: go test ./internal/archtest -run " +
			"TestPromisedAPI -rewrite")
	}
}

// surface is what the promised packages, and the types that they name, export.
type surface struct {
	files map[string][]*file // by package, tests apart
	names map[string]string  // the name of a package -> its path
	types map[string]bool    // types of other packages, to be described: limiter.Request
	todo  []string
	out   []string
}

func newSurface(m *module) *surface {
	s := &surface{files: map[string][]*file{}, names: map[string]string{}, types: map[string]bool{}}
	for _, f := range m.files {
		if !f.test {
			s.files[f.pkg] = append(s.files[f.pkg], f)
			s.names[f.ast.Name.Name] = f.pkg
		}
	}
	return s
}

// lines describes each exported name in a line of its own, sorted.
func (s *surface) lines() []string {
	for _, p := range promised() {
		s.describe(p, func(string) bool { return true })
	}
	for len(s.todo) > 0 {
		name := s.todo[0]
		s.todo = s.todo[1:]
		pkg, of, _ := strings.Cut(name, ".")
		s.describe(s.names[pkg], func(n string) bool { return n == of })
	}
	slices.Sort(s.out)
	return slices.Compact(s.out)
}

// describe adds the exported declarations of a package whose name, or the name of whose
// receiver or constant type, is wanted.
func (s *surface) describe(pkg string, want func(name string) bool) {
	for _, f := range s.files[pkg] {
		name := f.ast.Name.Name
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				of, before := d.Name.Name, "func "
				if d.Recv != nil {
					of = receiver(d)
					before = "method (" + of + ") "
				}
				if d.Name.IsExported() && ast.IsExported(of) && want(of) && unpromised()[name+"."+of] == "" &&
					unpromised()[name+"."+of+"."+d.Name.Name] == "" {
					s.add(f, name, before+d.Name.Name, d.Type)
				}
			case *ast.GenDecl:
				s.general(f, name, d, want)
			}
		}
	}
}

func receiver(d *ast.FuncDecl) string {
	t := d.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	switch x := t.(type) {
	case *ast.IndexExpr: // of a type with a parameter
		t = x.X
	case *ast.IndexListExpr:
		t = x.X
	}
	return t.(*ast.Ident).Name
}

func (s *surface) general(f *file, name string, d *ast.GenDecl, want func(string) bool) {
	group := "" // the type of the constants
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if n := spec.Name.Name; spec.Name.IsExported() && want(n) && unpromised()[name+"."+n] == "" {
				s.typ(f, name, n, spec)
			}
		case *ast.ValueSpec:
			if id, ok := spec.Type.(*ast.Ident); ok {
				group = id.Name
			}
			for _, id := range spec.Names {
				if id.IsExported() && (want(id.Name) || d.Tok == token.CONST && want(group)) {
					s.out = append(s.out, name+": "+d.Tok.String()+" "+strings.TrimSpace(id.Name+" "+group))
				}
			}
		}
	}
}

// typ describes a type: each exported field or method in a line of its own.
func (s *surface) typ(f *file, pkg, name string, spec *ast.TypeSpec) {
	switch t := spec.Type.(type) {
	case *ast.StructType:
		s.out = append(s.out, pkg+": type "+name+" struct")
		s.members(f, pkg, "field ", name, t.Fields)
	case *ast.InterfaceType:
		s.out = append(s.out, pkg+": type "+name+" interface")
		s.members(f, pkg, "method ", name, t.Methods)
	default:
		before := "type " + name
		if spec.Assign.IsValid() {
			before += " ="
		}
		s.add(f, pkg, before, t)
	}
}

func (s *surface) members(f *file, pkg, before, name string, list *ast.FieldList) {
	for _, m := range list.List {
		for _, id := range m.Names {
			if id.IsExported() && unpromised()[pkg+"."+name+"."+id.Name] == "" {
				s.add(f, pkg, before+name+"."+id.Name, m.Type)
			}
		}
		if len(m.Names) == 0 {
			s.add(f, pkg, "type "+name+" has", m.Type)
		}
	}
}

// add adds a line, and what other packages' types it names.
func (s *surface) add(f *file, pkg, before string, n ast.Expr) {
	text := new(bytes.Buffer)
	if err := printer.Fprint(text, f.fset, n); err != nil {
		text.WriteString(err.Error())
	}
	line := " " + strings.Join(strings.Fields(text.String()), " ")
	if strings.HasPrefix(before, "func ") || strings.HasPrefix(before, "method ") {
		line = strings.TrimPrefix(line, " func")
	}
	s.out = append(s.out, pkg+": "+before+line)
	own := map[*ast.Ident]bool{} // selectors and parameters, which are no types of this package
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && s.ours(f, x.Name) {
				s.need(x.Name + "." + n.Sel.Name)
			}
			return false
		case *ast.Field:
			for _, id := range n.Names {
				own[id] = true
			}
		case *ast.Ident:
			if !own[n] && n.IsExported() {
				s.need(pkg + "." + n.Name)
			}
		}
		return true
	})
}

// ours reports whether a file means a package of this module by a name.
func (s *surface) ours(f *file, name string) bool {
	p, ok := s.names[name]
	if !ok {
		return false
	}
	for _, i := range f.facts {
		if i.kind == imports && i.name == "./"+p && (p == "" || path.Base(p) == name) {
			return true
		}
	}
	return false
}

func (s *surface) need(name string) {
	pkg, _, _ := strings.Cut(name, ".")
	if !s.types[name] && !slices.Contains(promised(), s.names[pkg]) && unpromised()[name] == "" {
		s.types[name] = true
		s.todo = append(s.todo, name)
	}
}

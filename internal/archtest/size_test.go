package archtest

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
)

// The most fields and methods of one type. Beyond, a type has more than one concern, and
// files, however short, cannot hide it.
const (
	maxFields  = 20
	maxMethods = 30
)

// size is how large a type is: an embedded struct is one field.
type size struct {
	path            string // of the file that declares it
	line            int
	fields, methods int
}

// sizes returns the sizes of all structs, and of all types with methods, that are not in
// tests or generated. The key is the package's path, a dot, and the name.
func sizes(m *module) map[string]*size {
	out := map[string]*size{}
	at := func(f *file, name string) *size {
		key := f.pkg + "." + name
		if out[key] == nil {
			out[key] = &size{path: f.path}
		}
		return out[key]
	}
	for _, f := range m.files {
		if f.test || f.generated {
			continue
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil && len(d.Recv.List) == 1 {
					at(f, receiverOf(d.Recv.List[0].Type)).methods++
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					spec, ok := s.(*ast.TypeSpec)
					if !ok {
						continue
					}
					if t, ok := spec.Type.(*ast.StructType); ok {
						x := at(f, spec.Name.Name)
						x.path, x.line, x.fields = f.path, f.line(spec.Pos()), t.Fields.NumFields()
					}
				}
			}
		}
	}
	return out
}

// receiverOf returns the name of the type of a method.
func receiverOf(e ast.Expr) string {
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// large reports types that are too large, and exceptions that nothing needs any more.
func (c *checker) large(m *module) []finding {
	all := sizes(m)
	var out []finding
	needed := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		x := all[name]
		for _, of := range []struct {
			what     string
			is, most int
		}{{"fields", x.fields, maxFields}, {"methods", x.methods, maxMethods}} {
			if of.is <= of.most {
				continue
			}
			key := name + " " + of.what
			needed[key] = true
			if c.largeAllowed[key] == "" {
				out = append(out, finding{x.path, x.line,
					fmt.Sprintf("%s has %d %s, more than %d", name[strings.LastIndex(name, ".")+1:], of.is, of.what, of.most),
					"a type is one concern: split it, or say in largeAllowed why it is still one"})
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.largeAllowed)) {
		if !needed[key] {
			out = append(out, finding{"internal/archtest/house_test.go", 0, fmt.Sprintf("the exception for the %s is needed no more", key),
				"an exception that outlives its reason hides the next mistake: remove it"})
		}
	}
	return out
}

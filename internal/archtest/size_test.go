package archtest

import (
	"fmt"
	"go/ast"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Beyond so many fields and methods a type needs a reason, and so does a file beyond so many lines. They are no
// targets: what is below may be too large as well, and what has two ideas is two. TestReport shows what is largest.
const (
	maxFields  = 20
	maxMethods = 30
)

// allowance lets something be larger than others: as large as it was when the reason was given.
type allowance struct {
	most int
	why  string
}

// size is how large a type is, with what it embeds: to embed parts would hide a large object as well.
type size struct {
	path            string // of the file that declares it
	line            int
	fields, methods int
	embeds          []string // types of the module
}

// whole adds to a size what the type embeds. An embedded type of another module is one field.
func (x *size) whole(all map[string]*size) (fields, methods int) {
	fields, methods = x.fields, x.methods
	for _, name := range x.embeds {
		if e := all[name]; e != nil && e.line > 0 {
			f, m := e.whole(all)
			fields, methods = fields-1+f, methods+m
		}
	}
	return fields, methods
}

// embedded returns the keys of the types of the module that a struct embeds. A pointer is to an object of
// its own.
func embedded(m *module, f *file, t *ast.StructType) (keys []string) {
	for _, field := range t.Fields.List {
		if len(field.Names) > 0 {
			continue
		}
		switch of := field.Type.(type) {
		case *ast.Ident:
			keys = append(keys, f.pkg+"."+of.Name)
		case *ast.SelectorExpr:
			if x, ok := of.X.(*ast.Ident); ok {
				if path := f.imported(x.Name); strings.HasPrefix(path, m.path+"/") {
					keys = append(keys, strings.TrimPrefix(path, m.path+"/")+"."+of.Sel.Name)
				}
			}
		}
	}
	return keys
}

// imported returns the path that a file imports by a name, empty if there is none.
func (f *file) imported(name string) string {
	for _, i := range f.ast.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		if i.Name != nil && i.Name.Name == name || i.Name == nil && path.Base(p) == name {
			return p
		}
	}
	return ""
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
						x.path, x.line, x.fields, x.embeds = f.path, f.line(spec.Pos()), t.Fields.NumFields(), embedded(m, f, t)
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
		fields, methods := x.whole(all)
		for _, of := range []struct {
			what     string
			is, most int
		}{{"fields", fields, maxFields}, {"methods", methods, maxMethods}} {
			if of.is <= of.most {
				continue
			}
			key := name + " " + of.what
			needed[key] = true
			if c.flat[name] != "" && of.what == "fields" {
				continue
			}
			if most := max(of.most, c.largeAllowed[key].most); of.is > most {
				out = append(out, finding{x.path, x.line,
					fmt.Sprintf("%s has %d %s, more than %d", name[strings.LastIndex(name, ".")+1:], of.is, of.what, most),
					"a type is one concern: split it where there are two, or say in largeAllowed why it is still one"})
			}
		}
	}
	exceptions := slices.Collect(maps.Keys(c.largeAllowed))
	for name := range c.flat {
		exceptions = append(exceptions, name+" fields")
	}
	for _, key := range slices.Sorted(slices.Values(exceptions)) {
		if !needed[key] {
			out = append(out, finding{"internal/archtest/house_test.go", 0,
				fmt.Sprintf("the exception for the %s is needed no more", key),
				"an exception that outlives its reason hides the next mistake: remove it"})
		}
	}
	return out
}

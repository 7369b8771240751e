package archtest

import (
	"go/ast"
	"io/fs"
	"regexp"
	"strings"
	"testing"
)

// TestArchitectureNamesMethods: each `Type.method` that ARCHITECTURE.md names is a method
// of a type of that name, or something that a package of that name declares. Who follows
// the page finds it.
func TestArchitectureNamesMethods(t *testing.T) {
	page, err := fs.ReadFile(repository(), "ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	m, err := load(repository())
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]bool{}
	for _, f := range m.files {
		for _, d := range f.ast.Decls {
			declare(declared, f.ast.Name.Name, d)
		}
	}
	// The page calls package internal/cluster core, as its importers do.
	names := regexp.MustCompile("`([A-Za-z]+)\\.([A-Za-z]+)`").FindAllStringSubmatch(string(page), -1)
	if len(names) < 30 {
		t.Errorf("premise: only %d names were found", len(names))
	}
	for _, n := range names {
		name := strings.Replace(n[1], "core", "cluster", 1) + "." + n[2]
		if !declared[name] && n[2] != "go" { // the rest are files
			t.Errorf("ARCHITECTURE.md names %s, which is not declared", n[0])
		}
	}
}

// declare adds what a declaration declares: package.name, and Type.method.
func declare(declared map[string]bool, pkg string, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		of := pkg
		if d.Recv != nil {
			of = receiver(d)
		}
		declared[of+"."+d.Name.Name] = true
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				declared[pkg+"."+s.Name.Name] = true
				if st, ok := s.Type.(*ast.StructType); ok {
					for _, field := range st.Fields.List {
						for _, n := range field.Names {
							declared[s.Name.Name+"."+n.Name] = true
						}
					}
				}
			case *ast.ValueSpec:
				for _, n := range s.Names {
					declared[pkg+"."+n.Name] = true
				}
			}
		}
	}
}

package archtest

import (
	"go/ast"
	"io/fs"
	"path"
	"regexp"
	"strconv"
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

// TestArchitectureListsPackages: the table of packages in ARCHITECTURE.md has each row of
// the house, on its floor, and each package that it names exists.
func TestArchitectureListsPackages(t *testing.T) {
	page, err := fs.ReadFile(repository(), "ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## Packages\n")
	_, table, _ = strings.Cut(table, "\n```\n")
	table, _, _ = strings.Cut(table, "\n```\n")
	listed := map[string]int{} // package -> floor
	floor := 0
	for line := range strings.Lines(table) {
		m := regexp.MustCompile(`^(-?\d+)? +([a-z].*)`).FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("%q is neither a package nor more of one", line)
		}
		if m[1] != "" {
			if floor, err = strconv.Atoi(m[1]); err != nil {
				t.Fatal(err)
			}
		}
		if len(line)-len(strings.TrimLeft(line, " ")) > 8 {
			continue // more of the description
		}
		names, _, _ := strings.Cut(m[2], "  ")
		first, before := "", ""
		for i, name := range strings.Split(names, ", ") {
			at := name
			switch {
			case i == 0:
				first = name
			case strings.HasPrefix(name, "/"):
				at = first + name
			case !isPackage(name):
				at = path.Join(strings.SplitN(before, "/", 2)[0], name)
			}
			if name == "weir (the root)" {
				at = ""
			}
			if before = at; !isPackage(at) {
				t.Errorf("ARCHITECTURE.md lists %s, which does not exist", at)
			}
			listed[at] = floor
		}
	}
	for _, r := range house() {
		found := false
		for at, floor := range listed {
			if at == r.path || r.tree && strings.HasPrefix(at, r.path+"/") {
				if found = true; floor != r.floor {
					t.Errorf("ARCHITECTURE.md has %q on floor %d, the house on %d", at, floor, r.floor)
				}
			}
		}
		if !found {
			t.Errorf("ARCHITECTURE.md does not list %q", r.path)
		}
	}
}

// TestArchitectureNamesFiles: each file and package that ARCHITECTURE.md names exists, and each name before a file in
// brackets is declared in that file.
func TestArchitectureNamesFiles(t *testing.T) {
	page, err := fs.ReadFile(repository(), "ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	m, err := load(repository())
	if err != nil {
		t.Fatal(err)
	}
	wrong, found := strangers(string(page), m)
	for _, w := range wrong {
		t.Error(w)
	}
	if found < 90 {
		t.Errorf("premise: only %d files and names were found", found)
	}
	for text, want := range map[string]int{
		"`internal/cluster/part.go` and `internal/cluster` and `rules`, `cluster.Core`": 0,
		"`internal/cluster/parts.go`": 1, "`internal/clusters`": 1, "`github.com/weirlimit/weir/diskstores`": 1,
		"`internal/cluster.Core`, `Replica.Due`, `testdata/takeover.txt`, (claim.go)": 0, "(claims.go)": 1,
		"`takeOvers`": 1, "`testdata/takeovers.txt`": 1, "`pace` (`tick.go`)": 1, "`Replica.takeOver` (learn.go)": 1,
		"`Replica.takeOver`\n   (claim.go)": 0,
	} {
		if wrong, _ := strangers(text, m); len(wrong) != want {
			t.Errorf("%s: %q, want %d that are not there", text, wrong, want)
		}
	}
}

// strangers returns what a page names that is not there, and how many files and names it has.
func strangers(page string, m *module) (wrong []string, found int) {
	declaredIn := map[string]map[string]bool{} // name, or Type.method -> base names of files
	for _, f := range m.files {
		names := map[string]bool{}
		for _, d := range f.ast.Decls {
			declare(names, f.ast.Name.Name, d)
		}
		for name := range names {
			for _, n := range []string{name, name[strings.IndexByte(name, '.')+1:]} {
				if declaredIn[n] == nil {
					declaredIn[n] = map[string]bool{}
				}
				declaredIn[n][path.Base(f.path)] = true
			}
		}
	}
	isThere := func(name string) bool {
		if _, err := fs.Stat(repository(), path.Clean(name)); err == nil {
			return true
		}
		for _, dir := range []string{"internal/cluster", "internal/cluster/replica"} { // what most of the page is about
			if _, err := fs.Stat(repository(), path.Join(dir, name)); err == nil {
				return true
			}
		}
		return false
	}
	for _, n := range regexp.MustCompile("`([^`\\s]+)`").FindAllStringSubmatch(page, -1) {
		name := strings.Replace(n[1], root+"/", "./", 1) // as it is imported
		at, of, ok := strings.Cut(path.Base(name), ".")
		isFile := regexp.MustCompile(`\.(go|lua|txt)$`).MatchString(name)
		switch {
		case ok && strings.Contains(name, "/") && !isFile: // a package and a name in it
			if found++; !isThere(path.Join(path.Dir(name), at)) || declaredIn[of] == nil {
				wrong = append(wrong, n[1])
			}
		case isFile || strings.Contains(name, "/"):
			if found++; !isThere(name) {
				wrong = append(wrong, n[1])
			}
		case regexp.MustCompile(`^[A-Za-z]*[A-Z][A-Za-z]*$`).MatchString(name):
			if found++; declaredIn[name] == nil {
				wrong = append(wrong, n[1])
			}
		}
	}
	for _, n := range regexp.MustCompile(`\(([a-z_]+\.go)\)`).FindAllStringSubmatch(page, -1) {
		if found++; !isThere(n[1]) {
			wrong = append(wrong, n[1])
		}
	}
	of := regexp.MustCompile("`([A-Za-z.]+)`\\s+\\(`?(?:[a-z/]+/)?([a-z_]+\\.go)\\b")
	for _, n := range of.FindAllStringSubmatch(page, -1) {
		if found++; !declaredIn[n[1]][n[2]] {
			wrong = append(wrong, n[0])
		}
	}
	return wrong, found
}

// isPackage reports whether a directory of the repository has Go files.
func isPackage(dir string) bool {
	files, err := fs.Glob(repository(), path.Join(dir, "*.go"))
	return err == nil && len(files) > 0
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

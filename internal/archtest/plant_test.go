package archtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// A check that cannot fail protects nothing. The tests here plant violations in
// modules made up in memory and ask that each is found, with its reason, and
// nothing besides.

const plantedModule = "module example.com/planted\n\ngo 1.26\n"

// plant checks a module made of the given files.
func plant(t *testing.T, c *checker, files map[string]string) []finding {
	t.Helper()
	fsys := fstest.MapFS{"go.mod": {Data: []byte(plantedModule)}}
	for name, src := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(src)}
	}
	m, err := load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return c.check(m)
}

// plantable returns the checker of the house without its exceptions, which in
// a planted module would all be stale.
func plantable() *checker {
	c := newChecker()
	c.state, c.long, c.largeAllowed, c.flat = nil, nil, nil, nil
	return c
}

// source returns a file that does x and nothing else.
func (x fact) source() string {
	name := strings.Replace(x.name, "*", "", 1)
	switch x.kind {
	case imports:
		return "package p\n\nimport _ \"" + planted(name) + "\"\n"
	case uses:
		dot := strings.LastIndex(name, ".")
		sel := name[dot+1:]
		if sel == "" {
			sel = "X" // the ban was of all that the package exports
		}
		return "package p\n\nimport x \"" + planted(name[:dot]) + "\"\n\nfunc f() { g(x." + sel + ") }\n"
	case spawns:
		return "package p\n\nfunc f() { go f() }\n"
	case panics:
		return "package p\n\nfunc f() { panic(1) }\n"
	}
	return "package p\n\nfunc f() string { return \"" + name + "\" }\n"
}

// planted turns the name of a ban on imports into an import path of the module.
func planted(name string) string {
	switch name {
	case "ours":
		name = "./elsewhere"
	case "third-party":
		name = "example.net/somebody"
	}
	if rest, ok := strings.CutPrefix(name, "./"); ok {
		return "example.com/planted/" + rest
	}
	return name
}

func fileIn(pkg string) string { return strings.TrimPrefix(pkg+"/planted.go", "/") }

// TestEveryBan plants what each row bans, in the row and, for a tree, below it.
func TestEveryBan(t *testing.T) {
	c := plantable()
	for _, r := range c.rows {
		dirs := []string{r.path}
		if r.tree {
			dirs = append(dirs, r.path+"/below")
		}
		for _, b := range r.never {
			for _, dir := range dirs {
				x := fact{kind: b.kind, name: b.name}
				expectBan(t, c, fileIn(dir), x.source(), b)
			}
		}
	}
}

// TestEveryGeneralBan plants what is banned all over in each row that it binds,
// and sees that it is free in each that it does not.
func TestEveryGeneralBan(t *testing.T) {
	c := plantable()
	for _, g := range c.generals {
		x := fact{kind: g.kind, name: g.name}
		for _, r := range c.rows {
			stronger := slices.ContainsFunc(r.never, func(b ban) bool { return b.kind == g.kind && b.why != g.why })
			bound := (g.below == 0 || r.floor < g.below) && !slices.Contains(g.but, r.path)
			switch {
			case bound && !stronger:
				expectBan(t, c, fileIn(r.path), x.source(), g.ban)
			case !bound:
				for _, f := range plant(t, c, map[string]string{fileIn(r.path): x.source()}) {
					if f.why == g.why {
						t.Errorf("%s is free of the ban of %s %s, yet: %v", show(&r), g.kind, g.name, f)
					}
				}
			}
		}
	}
}

func expectBan(t *testing.T, c *checker, file, src string, b ban) {
	t.Helper()
	found := plant(t, c, map[string]string{file: src})
	hit := slices.ContainsFunc(found, func(f finding) bool { return f.path == file && f.line > 0 && f.why == b.why })
	if !hit {
		t.Errorf("%s %s in %s was not found; found: %v", b.kind, b.name, file, found)
	}
	// Tests are free of bans.
	test := strings.TrimSuffix(file, ".go") + "_test.go"
	for _, f := range plant(t, c, map[string]string{test: src}) {
		if f.why == b.why {
			t.Errorf("%s %s was found in a test: %v", b.kind, b.name, f)
		}
	}
}

// TestEveryFloor plants an import of every package by every other.
func TestEveryFloor(t *testing.T) {
	c := plantable()
	for _, from := range c.rows {
		for _, to := range c.rows {
			if from.path == to.path {
				continue
			}
			src := fmt.Sprintf("package p\n\nimport _ %q\n", strings.TrimSuffix("example.com/planted/"+to.path, "/"))
			want := ""
			switch {
			case to.floor > from.floor:
				want = fmt.Sprintf("on floor %d, imports %s, on floor %d above it", from.floor, show(&to), to.floor)
			case to.floor == from.floor:
				want = fmt.Sprintf("imports %s, both on floor %d", show(&to), to.floor)
			}
			var got []string
			for _, f := range plant(t, c, map[string]string{fileIn(from.path): src}) {
				if strings.Contains(f.what, "floor") {
					got = append(got, f.what)
				}
			}
			if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.Contains(got[0], want)) {
				t.Errorf("%s importing %s: got %q, want %q", show(&from), show(&to), got, want)
			}
		}
	}
}

// TestEveryLibrary plants an import of each library in every row.
func TestEveryLibrary(t *testing.T) {
	c := plantable()
	for _, l := range c.libraries {
		for _, r := range c.rows {
			src := "package p\n\nimport _ \"" + l.path + "/below\"\n"
			found := plant(t, c, map[string]string{fileIn(r.path): src})
			hit := slices.ContainsFunc(found, func(f finding) bool { return f.why == l.why })
			if free := slices.Contains(l.in, r.path); hit == free {
				t.Errorf("%s imports %s, free %v: found %v", show(&r), l.path, free, found)
			}
		}
	}
}

// TestStyle plants what no table lists. Each case is a module; want is part of
// the one finding, or empty if there is none.
func TestStyle(t *testing.T) {
	long := strings.Repeat("\n", 10_000)
	for name, x := range map[string]struct{ file, src, want string }{
		"nothing":      {"limiter/a.go", "package limiter\n", ""},
		"no row":       {"helpers/a.go", "package helpers\n", `package "helpers" has no row`},
		"no row below": {"limiter/helpers/a.go", "package helpers\n", `package "limiter/helpers" has no row`},
		"within one row": {"cmd/weir/a.go", "package main\n\nimport _ \"example.com/planted/cmd/weir/internal/b\"\n",
			""},
		"unknown library": {"client/a.go", "package client\n\nimport _ \"example.net/somebody\"\n",
			"not among the libraries"},
		"variable": {"rules/a.go", "package rules\n\nvar cache = map[string]int{}\n",
			"variable cache at package level"},
		"variable among many": {"rules/a.go", "package rules\n\nvar (\n\t_ = 1\n\tn int\n)\n",
			"variable n at package level"},
		"variable in program": {"cmd/node/a.go", "package main\n\nvar verbose bool\n", "variable verbose at package level"},
		"variable in a test":  {"rules/a_test.go", "package rules\n\nvar cache = map[string]int{}\n", ""},
		"local variable":      {"rules/a.go", "package rules\n\nfunc f() { var n int; _ = n }\n", ""},
		"assertion":           {"rules/a.go", "package rules\n\nvar _ error = (*T)(nil)\n", ""},
		"sentinel": {"rules/a.go",
			"package rules\n\nimport \"errors\"\n\nvar ErrInvalid = errors.New(\"invalid\")\n", ""},
		"sentinel that wraps": {"rules/a.go",
			"package rules\n\nimport \"fmt\"\n\nvar errTwo = fmt.Errorf(\"two: %w\", f())\n", ""},
		"another's sentinel": {"a.go",
			"package p\n\nimport \"example.com/planted/limiter\"\n\nvar ErrInvalid = limiter.ErrInvalid\n", ""},
		"another's variable": {"a.go",
			"package p\n\nimport \"example.com/planted/limiter\"\n\nvar ErrLast = limiter.Last\n",
			"variable ErrLast at package level"},
		"sentinel's name only": {"rules/a.go", "package rules\n\nvar errLast error\n", "variable errLast at package level"},
		"sentinel's call only": {"rules/a.go", "package rules\n\nimport \"errors\"\n\nvar last = errors.New(\"x\")\n",
			"variable last at package level"},
		"another errors.New": {"rules/a.go", "package rules\n\nvar errLast = errors.New(\"x\")\n",
			"variable errLast at package level"},
		"pattern": {"cmd/weir/a.go",
			"package main\n\nimport \"regexp\"\n\nvar name = regexp.MustCompile(\"a\")\n", ""},
		"embedded": {"redisstore/a.go",
			"package redisstore\n\nimport _ \"embed\"\n\n//go:embed a.lua\nvar script string\n", ""},
		"embedded in a group": {"redisstore/a.go",
			"package redisstore\n\nimport _ \"embed\"\n\nvar (\n\t//go:embed a.lua\n\tscript string\n)\n", ""},
		"beside embedded": {"redisstore/a.go",
			"package redisstore\n\nimport _ \"embed\"\n\n//go:embed a.lua\nvar (\n\tscript string\n)\n", "variable script"},
		"init":           {"ring/a.go", "package ring\n\nfunc init() {}\n", "has a func init"},
		"init in a test": {"ring/a_test.go", "package ring\n\nfunc init() {}\n", "has a func init"},
		"method init":    {"ring/a.go", "package ring\n\nfunc (T) init() {}\n", ""},
		"dot":            {"transport/a.go", "package transport\n\nimport . \"time\"\n", "with a dot"},
		"dot in a test": {"limiter/a_test.go", "package limiter_test\n\nimport . \"example.com/planted/limiter\"\n",
			""},
		"renamed import": {"limiter/a.go", "package limiter\n\nimport clock \"time\"\n\nfunc f() { clock.Now() }\n",
			"uses time.Now"},
		"version in the path": {"internal/cluster/a.go",
			"package cluster\n\nimport \"math/rand/v2\"\n\nfunc f() { rand.IntN(2) }\n", "uses math/rand/v2.IntN"},
		"own generator": {"internal/cluster/a.go",
			"package cluster\n\nimport \"math/rand/v2\"\n\nfunc f() { rand.New(rand.NewPCG(1, 2)).IntN(2) }\n", ""},
		"time as a unit":       {"limiter/a.go", "package limiter\n\nimport \"time\"\n\nconst s = time.Second\n", ""},
		"unfinished":           {"client/a.go", "package client\n\n// TO" + "DO: the rest.\n", "a comment says TO" + "DO"},
		"unfinished in a test": {"client/a_test.go", "package client\n\n/* a\nFIX" + "ME */\n", "a comment says FIX" + "ME"},
		"unfinished as text":   {"client/a.go", "package client\n\nconst s = \"TO" + "DO\"\n", ""},
		"long":                 {"client/a.go", "package client\n" + long, "lines, more than 450"},
		"long test":            {"client/a_test.go", "package client\n" + long, "lines, more than 700"},
		"long, generated": {"proto/a.pb.go", "// Code generated by hand. DO NOT EDIT.\n\npackage proto\n\nvar x int\n" +
			long, ""},
		"a test sleeps": {"internal/cluster/a_test.go",
			"package cluster\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n", "a test sleeps"},
		"virtual sleep": {"internal/cluster/a_test.go",
			"package cluster\n\nimport (\n\t\"testing/synctest\"\n\t\"time\"\n)\n\nfunc f() { synctest.Wait(); time.Sleep(1) " +
				"}\n", ""},
		"an adapter's test": {"transport/a_test.go",
			"package transport\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n", ""},
		"testdata": {"rules/testdata/a.go", "package rules\n\nvar cache int\n", ""},
		"generated": {"proto/a.pb.go",
			"// Code generated by hand. DO NOT EDIT.\n\npackage proto\n\nfunc init() { panic(1) }\n", ""},
		"a longer name": {"limiter/a.go", "package limiter\n\nimport _ \"logical\"\n", ""},
		"set aside":     {"_old/a.go", "package cache\n\nvar cache int\n", ""},
		"hidden":        {".cache/a.go", "package cache\n\nvar cache int\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			found := plant(t, plantable(), map[string]string{x.file: x.src})
			switch {
			case x.want == "" && len(found) > 0:
				t.Errorf("found %v, want nothing", found)
			case x.want != "" && (len(found) != 1 || !strings.Contains(found[0].what, x.want)):
				t.Errorf("found %v, want %q alone", found, x.want)
			}
		})
	}
}

// TestExceptions shows that an exception frees what it names and nothing else,
// and that one which frees nothing is reported.
func TestExceptions(t *testing.T) {
	c := plantable()
	c.state = map[string]string{"rules.table": "read only"}
	c.long = map[string]allowance{"client/long.go": {c.maxLines + 1, "one table"}}
	files := map[string]string{
		"rules/a.go":     "package rules\n\nvar table, cache []int\n",
		"client/long.go": "package client\n" + strings.Repeat("\n", c.maxLines),
	}
	found := plant(t, c, files)
	if len(found) != 1 || !strings.Contains(found[0].what, "variable cache") {
		t.Errorf("found %v, want the variable cache alone", found)
	}
	files["rules/a.go"] = "package rules\n"
	files["client/long.go"] = "package client\n"
	found = plant(t, c, files)
	if len(found) != 2 {
		t.Errorf("found %v, want both exceptions", found)
	}
	for _, f := range found {
		if !strings.Contains(f.what, "needed no more") {
			t.Error(f)
		}
	}
}

// TestLargeTypes shows that a type has at most so many fields and methods, wherever they
// are declared, and that an exception lasts as long as its reason.
func TestLargeTypes(t *testing.T) {
	fields, methods := "type a struct {\n\tm, n int\n\tsync.Mutex\n", ""
	for i := range maxFields - 3 {
		fields += fmt.Sprintf("\tf%d int\n", i)
	}
	for i := range maxMethods {
		methods += fmt.Sprintf("func (x *b[T]) m%d() {}\n", i)
	}
	files := map[string]string{
		"client/a.go":      "package client\n\nimport \"sync\"\n\n" + fields + "}\n",
		"client/b.go":      "package client\n\ntype b[T any] int\n",
		"client/c.go":      "package client\n\n" + methods,
		"client/d_test.go": "package client\n\nfunc (x *b[T]) test() {}\n",
	}
	if found := plant(t, plantable(), files); len(found) > 0 {
		t.Errorf("at the bounds %v is found", found)
	}
	files["client/a.go"] = strings.Replace(files["client/a.go"], "m, n int", "m, n, o int", 1)
	files["client/b.go"] += "\nfunc (x b[T]) another() {}\n"
	var got []string
	for _, f := range plant(t, plantable(), files) {
		got = append(got, f.what)
	}
	want := []string{"a has 21 fields, more than 20", "b has 31 methods, more than 30"}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	// What a type embeds counts with it, from any package of the module; what it points to does not.
	files["client/e.go"] = "package client\n\nimport \"" + planted("./ring") +
		"\"\n\ntype e struct {\n\ta\n\t*b[int]\n\tring.R\n}\n"
	files["ring/r.go"] = "package ring\n\ntype R struct{ o, p int }\n"
	embeds := plant(t, plantable(), files)
	if !slices.ContainsFunc(embeds, func(f finding) bool {
		return f.what == "e has 24 fields, more than 20"
	}) || len(embeds) != 3 {
		t.Errorf("with what is embedded %v is found", embeds)
	}
	delete(files, "client/e.go")
	c := plantable()
	c.largeAllowed = map[string]allowance{"client.a fields": {21, "x"}, "client.b methods": {31, "x"},
		"client.b fields": {21, "x"}}
	if found := plant(t, c, files); len(found) != 1 ||
		!strings.Contains(found[0].what, "client.b fields is needed no more") {
		t.Errorf("found %v, want the exception that nothing needs", found)
	}
	// The methods of a flat type are bounded, its fields are not.
	c.largeAllowed, c.flat = nil, map[string]string{"client.a": "x", "client.b": "x"}
	got = nil
	for _, f := range plant(t, c, files) {
		got = append(got, f.what)
	}
	want = []string{"b has 31 methods, more than 30", "the exception for the client.b fields is needed no more"}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("of flat types %q is found, want %q", got, want)
	}
}

// TestNestedModule shows that a nested module has a house of its own.
func TestNestedModule(t *testing.T) {
	files := map[string]string{
		"bench/go.mod": "module example.com/planted/bench\n",
		"bench/a.go":   "package bench\n\nimport _ \"golang.org/x/time/rate\"\n",
	}
	if found := plant(t, plantable(), files); len(found) > 0 {
		t.Errorf("found %v", found)
	}
	delete(files, "bench/go.mod")
	if found := plant(t, plantable(), files); len(found) == 0 {
		t.Error("without its go.mod it should have been found")
	}
}

// TestRequirements shows that go.mod takes no module that is not a library.
func TestRequirements(t *testing.T) {
	gomod := plantedModule + "\nrequire example.net/rival v1.0.0\n\nrequire (\n" +
		"\tgithub.com/spf13/cobra v1.10.2\n\texample.net/other v1.0.0\n\texample.net/theirs v1.0.0 // indirect\n)\n"
	m, err := load(fstest.MapFS{"go.mod": {Data: []byte(gomod)}})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, f := range plantable().check(m) {
		got[f.what] = f.line
	}
	want := map[string]int{
		"example.net/rival is not among the libraries": 5,
		"example.net/other is not among the libraries": 9,
	}
	if !maps.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}

func TestLoadErrors(t *testing.T) {
	for name, fsys := range map[string]fstest.MapFS{
		"no go.mod":  {"a.go": {Data: []byte("package a\n")}},
		"no module":  {"go.mod": {Data: []byte("go 1.26\n")}},
		"bad syntax": {"go.mod": {Data: []byte(plantedModule)}, "a.go": {Data: []byte("pack age\n")}},
	} {
		if _, err := load(fsys); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

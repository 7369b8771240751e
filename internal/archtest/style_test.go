package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// unfinished finds the words that mark work left undone. They are put together
// here so that a search of the source for them comes back empty.
var unfinished = regexp.MustCompile(`\b(` + "TO" + "DO|FIX" + "ME|XX" + `X)\b`)

// style reports what holds for code and tests alike.
func (c *checker) style(r *row, f *file) []finding {
	if f.generated {
		return nil
	}
	var out []finding
	say := func(line int, why, format string, args ...any) {
		out = append(out, finding{f.path, line, fmt.Sprintf(format, args...), why})
	}
	if most := max(c.most(f), c.long[f.path].most); f.lines > most {
		say(0, "one file is one idea that fits into a head: split it where there are two, or say in longAllowed why it is "+
			"still one",
			"%d lines, more than %d", f.lines, most)
	}
	for _, line := range f.wide {
		say(line, "whoever reads two files beside each other sees no more", "more than %d columns", maxColumns)
	}
	for _, g := range f.ast.Comments {
		for _, x := range g.List {
			if w := unfinished.FindString(x.Text); w != "" {
				say(f.line(x.Pos()), "what is left undone belongs to the list of issues, where it is seen", "a comment says %s", w)
			}
		}
	}
	for _, d := range f.ast.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			say(f.line(fn.Pos()), "what happens on import happens to everyone who imports; let the caller ask for it",
				"has a func init")
		}
	}
	for _, s := range f.ast.Imports {
		if !f.test && s.Name != nil && s.Name.Name == "." {
			say(f.line(s.Pos()), "it hides where names come from, from readers and from these checks", "imports %s with a dot",
				s.Path.Value)
		}
	}
	if f.test && r.floor < 6 && !f.does(imports, "testing/synctest") {
		for _, x := range f.facts {
			if x.kind == uses && x.name == "time.Sleep" {
				say(x.line, "below the adapters time is passed in or virtual (testing/synctest), so a test waits for nothing",
					"a test sleeps")
			}
		}
	}
	return out
}

func (c *checker) most(f *file) int {
	if f.test {
		return c.maxTest
	}
	return c.maxLines
}

// variables reports state at package level. What cannot change in practice is
// free: errors, embedded files, compiled patterns, and blank assertions.
func (c *checker) variables(f *file) []finding {
	if f.generated {
		return nil
	}
	var out []finding
	eachVariable(f, func(name *ast.Ident, value ast.Expr, embedded bool) {
		switch {
		case name.Name == "_", embedded, f.isSentinel(name.Name, value),
			f.calls(value, "regexp", "MustCompile", "MustCompilePOSIX"):
		case c.state[f.pkg+"."+name.Name] != "":
		default:
			out = append(out, finding{f.path, f.line(name.Pos()), fmt.Sprintf("variable %s at package level", name.Name),
				"whatever can change there is shared by all nodes and tests of a program; use a constant, a function or a field, " +
					"or say in stateAllowed why it is harmless"})
		}
	})
	return out
}

// eachVariable visits the variables at package level.
func eachVariable(f *file, visit func(name *ast.Ident, value ast.Expr, embedded bool)) {
	for _, d := range f.ast.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.VAR {
			continue
		}
		for _, s := range decl.Specs {
			spec, ok := s.(*ast.ValueSpec)
			if !ok {
				continue
			}
			embedded := isEmbed(spec.Doc) || isEmbed(decl.Doc) && !decl.Lparen.IsValid()
			for i, name := range spec.Names {
				var value ast.Expr
				if i < len(spec.Values) {
					value = spec.Values[i]
				}
				visit(name, value, embedded)
			}
		}
	}
}

func isEmbed(doc *ast.CommentGroup) bool {
	if doc == nil {
		return false
	}
	for _, c := range doc.List {
		if strings.HasPrefix(c.Text, "//go:embed ") {
			return true
		}
	}
	return false
}

var sentinelName = regexp.MustCompile(`^[eE]rr[A-Z]`)

// isSentinel reports whether a variable is an error that is only compared with:
// made here, or another package's under its name.
func (f *file) isSentinel(name string, value ast.Expr) bool {
	if !sentinelName.MatchString(name) {
		return false
	}
	if other, ok := value.(*ast.SelectorExpr); ok {
		return sentinelName.MatchString(other.Sel.Name)
	}
	return f.calls(value, "errors", "New") || f.calls(value, "fmt", "Errorf")
}

// calls reports whether e is a call of one of the functions of a package of the
// standard library that is imported under its own name.
func (f *file) calls(e ast.Expr, pkg string, funcs ...string) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	if !ok || x.Name != pkg || !f.does(imports, pkg) {
		return false
	}
	for _, name := range funcs {
		if sel.Sel.Name == name {
			return true
		}
	}
	return false
}

// stale reports exceptions that nothing needs any more.
func (c *checker) stale(m *module) []finding {
	used := map[string]bool{}
	for _, f := range m.files {
		if f.lines > c.most(f) {
			used[f.path] = true
		}
		if !f.test {
			eachVariable(f, func(name *ast.Ident, _ ast.Expr, _ bool) { used[f.pkg+"."+name.Name] = true })
		}
	}
	var out []finding
	for _, name := range slices.Concat(slices.Sorted(maps.Keys(c.state)), slices.Sorted(maps.Keys(c.long))) {
		if !used[name] {
			out = append(out, finding{"internal/archtest/house_test.go", 0,
				fmt.Sprintf("the exception for %s is needed no more", name),
				"an exception that outlives its reason hides the next mistake: remove it"})
		}
	}
	return out
}

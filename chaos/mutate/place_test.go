package main

import "testing"

// A piece of a Go file is found where its lines were broken anew, if it is there once.
func TestAPieceIsFoundWhereLinesAreBroken(t *testing.T) {
	const text = "package p\n\nfunc f() {\n\tg(\n\t\t1, // the first\n\t\th(\"a,)\"),\n\t)\n\tg(2)\n\tg(2)\n}\n"
	for _, one := range []struct{ file, old, want string }{
		{"p.go", `g(1, h("a,)"))`, "g(\n\t\t1, // the first\n\t\th(\"a,)\"),\n\t)"},
		{"p.go", `1, h(`, "1, // the first\n\t\th("},
		{"p.go", "\tg(2)\n}", "\tg(2)\n}"},
		{"p.go", "g(2)", ""},
		{"p.go", `g( 2 )`, ""},
		{"p.go", `g(1, h("a, )"))`, ""},
		{"p.yaml", `g(1, h("a,)"))`, ""},
	} {
		from, to, err := edit{one.file, one.old, ""}.place(text)
		if (err == nil) != (one.want != "") || err == nil && text[from:to] != one.want {
			t.Errorf("%q in %s: %q, %v; want %q", one.old, one.file, text[from:to], err, one.want)
		}
	}
}

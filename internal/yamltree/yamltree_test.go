package yamltree

import (
	"fmt"
	"strings"
	"testing"
)

// read reads a file, and returns its problems, one a line, "line:column: text".
func read(text string, form Form) (*Node, string) {
	var problems []string
	root := Read([]byte(text), form, func(line, column int, format string, args ...any) {
		problems = append(problems, fmt.Sprintf("%d:%d: %s", line, column, fmt.Sprintf(format, args...)))
	})
	return root, strings.Join(problems, "\n")
}

func form() Form {
	return Form{Name: "a list of towns", Bytes: 1000, Depth: 3, Keys: 4,
		Shared: "; write it twice", LeftOut: "; write some", Empty: "; write a town"}
}

// A file's bounds are those of its form, and its problems are told in the form's words. Nothing is
// decoded of a file that the library should not see.
func TestFormsDiffer(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "1:1: the file is empty; write a town"},
		{"# nobody", "1:1: the file is empty; write a town"},
		{strings.Repeat("#", 1001), "1:1: the file has 1001 bytes; at most 1000 are allowed"},
		{"a: \xff", "1:4: byte 0xff is not UTF-8 text"},
		{"a: \x00",
			"1:4: character U+0000 is not allowed in a list of towns; write it as an escape in double quotes"},
		{"[[[[a]]]]", "1:4: nested more than 3 levels deep"},
		{"{a: 1, b: 2, c: , d: 4, e: 5}", "1:25: more than 4 fields in one mapping"},
		{"a: 1\na: 2", "2:1: \"a\" is given twice; the first is on line 1"},
		{"a: &b 1", "1:4: anchors (&name) are not supported; write it twice; quote a value that begins with &"},
		{"a: !b 1", "1:4: tags (!name) are not supported; quote a value that begins with !"},
		{"a: 1\n---\nb: 2", "2:1: a second document begins here; a list of towns is one document"},
		{"a: 1\n\tb: 2", "2:1: this line is indented with a tab, which YAML does not allow: replace it by blanks"},
		{"a: [1, 2", "1:4: YAML cannot be read: sequence end token ']' not found"},
		{strings.Repeat("n", maxKeyName+1) + ": 1", "1:1: a field's name has 65 bytes; at most 64 are allowed"},
	} {
		if _, got := read(c.text, form()); got != c.want {
			t.Errorf("%.40q:\n got %s\nwant %s", c.text, got, c.want)
		}
	}
}

// Should the YAML library panic on some file, that is a problem like others.
func TestPanicOfTheLibrary(t *testing.T) {
	var got string
	r := &reader{report: func(_, _ int, format string, args ...any) { got = fmt.Sprintf(format, args...) }}
	beyond := 5
	if root := r.protected(func() *Node { return &Node{Line: make([]int, 1)[beyond]} }); root != nil {
		t.Errorf("a tree: %+v", root)
	}
	if !strings.HasPrefix(got, "YAML cannot be read: runtime error: index out of range") {
		t.Errorf("problem %q", got)
	}
}

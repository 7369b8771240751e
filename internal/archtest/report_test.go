package archtest

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
)

// TestReport shows the twenty largest types and files, to look at them: none is too large by its number alone.
//
//	go test -v -run TestReport ./internal/archtest
func TestReport(t *testing.T) {
	m, err := load(repository())
	if err != nil {
		t.Fatal(err)
	}
	type entry struct {
		size int
		of   string
	}
	show := func(what string, all []entry) {
		slices.SortFunc(all, func(a, b entry) int { return cmp.Or(b.size-a.size, cmp.Compare(a.of, b.of)) })
		if len(all) < 20 {
			t.Fatalf("only %d %s were found", len(all), what)
		}
		for _, e := range all[:20] {
			t.Logf("%5d %s: %s", e.size, what, e.of)
		}
	}
	var fields, methods, lines []entry
	all := sizes(m)
	for name, x := range all {
		f, n := x.whole(all)
		fields, methods = append(fields, entry{f, name}), append(methods, entry{n, name})
	}
	for _, f := range m.files {
		if !f.generated {
			lines = append(lines, entry{f.lines, fmt.Sprintf("%s (%d wide)", f.path, len(f.wide))})
		}
	}
	show("fields", fields)
	show("methods", methods)
	show("lines", lines)
}

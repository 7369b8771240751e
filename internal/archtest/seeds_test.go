package archtest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// Weir generalises five published rate limiters, and a list of their behaviours
// and worked examples, each with an id such as A5 or E4, says what it must be
// able to do. A test that shows such a behaviour says so in a comment that
// begins with the id, or with several: "A2, A7: the first pattern that...".
// Transcripts do the same in their own comments, which begin with #.

// seedIDs returns the ids of the list.
func seedIDs() []string {
	var out []string
	for _, g := range []struct {
		letter string
		n      int
	}{{"A", 12}, {"B", 9}, {"C", 6}, {"D", 7}, {"E", 9}} {
		for i := range g.n {
			out = append(out, fmt.Sprintf("%s%d", g.letter, i+1))
		}
	}
	return out
}

const (
	transcripts = "limiter/limitertest/testdata"
	// seedList is where the list itself may lie, seen from this package. It is
	// no part of the repository.
	seedList = "../../../shared/SEEDS.md"
)

func TestSeeds(t *testing.T) {
	found, err := findSeeds(repository())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range seedProblems(seedIDs(), found) {
		t.Error(p)
	}
}

// TestSeedList holds the ids above against the list that they come from.
func TestSeedList(t *testing.T) {
	text, err := os.ReadFile(seedList)
	if errors.Is(err, fs.ErrNotExist) {
		t.Logf("not checked: %s is absent, so the ids stand as they are written here", seedList)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, want := listedSeeds(text), seedIDs(); !slices.Equal(got, want) {
		t.Errorf("the list has the ids %v, this test has %v", got, want)
	}
}

var listedSeed = regexp.MustCompile(`(?m)^\|\s*([A-Z][0-9]+)\s*\|`)

func listedSeeds(text []byte) []string {
	var out []string
	for _, m := range listedSeed.FindAllSubmatch(text, -1) {
		out = append(out, string(m[1]))
	}
	return out
}

// seedProblems says which ids lack a test, and which tests name an unknown one.
func seedProblems(ids []string, found map[string][]string) []string {
	var out []string
	bad := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, id := range ids {
		if len(found[id]) == 0 {
			bad("%s has no test: none has a comment that begins with %s, and neither has a transcript in %s", id, id,
				transcripts)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(found)) {
		if !slices.Contains(ids, id) {
			bad("%s names %s, which is no id", found[id][0], id)
		}
	}
	return out
}

// findSeeds returns, for each id, where a test's comment begins with it.
func findSeeds(fsys fs.FS) (map[string][]string, error) {
	found := map[string][]string{}
	note := func(at, line string) {
		for _, id := range seedsOf(line) {
			found[id] = append(found[id], at)
		}
	}
	err := fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != "." && (path.Base(p)[0] == '.' || p == "internal/archtest"):
			return fs.SkipDir
		case d.IsDir():
			return nil
		case path.Dir(p) == transcripts && path.Ext(p) == ".txt":
			return transcriptComments(fsys, p, note)
		case strings.HasSuffix(p, "_test.go") && !strings.Contains(p, "testdata/"):
			return testComments(fsys, p, note)
		}
		return nil
	})
	return found, err
}

func transcriptComments(fsys fs.FS, p string, note func(at, line string)) error {
	text, err := fs.ReadFile(fsys, p)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		if c, ok := strings.CutPrefix(strings.TrimSpace(lines.Text()), "#"); ok {
			note(fmt.Sprintf("%s:%d", p, n), strings.TrimLeft(c, "#"))
		}
	}
	return lines.Err()
}

func testComments(fsys fs.FS, p string, note func(at, line string)) error {
	src, err := fs.ReadFile(fsys, p)
	if err != nil {
		return err
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, p, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, g := range f.Comments {
		for _, c := range g.List {
			text := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(c.Text, "//"), "/*"), "*/")
			for i, line := range strings.Split(text, "\n") {
				note(fmt.Sprintf("%s:%d", p, fset.Position(c.Pos()).Line+i), line)
			}
		}
	}
	return nil
}

var (
	// seedHead is the run of ids at the beginning of a comment's line.
	seedHead = regexp.MustCompile(`^\s*(?:[A-E][0-9]{1,2}(?:,\s*|\s+and\s+|\s+))*[A-E][0-9]{1,2}(?:$|[\s:;.,(])`)
	seedID   = regexp.MustCompile(`[A-E][0-9]{1,2}`)
)

// seedsOf returns the ids that a line of a comment begins with.
func seedsOf(line string) []string {
	return seedID.FindAllString(seedHead.FindString(line), -1)
}

func TestSeedsOf(t *testing.T) {
	for line, want := range map[string]string{
		" A5":                              "A5",
		" A2, A7: path regexps":            "A2 A7",
		"B3":                               "B3",
		" E4 and E6: the worked examples":  "E4 E6",
		" B3 B4 the three windows":         "B3 B4",
		" A10, D2, E5.":                    "A10 D2 E5",
		" A5 (without the status)":         "A5",
		" the same as A5":                  "",
		" A55X is a part":                  "",
		" D50 percent is a false friend":   "D50",
		"":                                 "",
		" A request that":                  "",
		" E4s":                             "",
		" C1, and so on: a list goes on":   "C1",
		" D6, its examples, and D7's too.": "D6",
	} {
		if got := strings.Join(seedsOf(line), " "); got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}

// TestSeedProblems plants what the search must find and what it must not.
func TestSeedProblems(t *testing.T) {
	fsys := fstest.MapFS{
		"limiter/a_test.go": {Data: []byte("package limiter\n\n// A1: shown.\nfunc TestX() {\n\t// " +
			"B1, B2\n}\n")},
		"limiter/a.go": {Data: []byte("package limiter\n\n// A2 is only spoken of.\n")},
		"limiter/b_test.go": {
			Data: []byte("package limiter\n\nconst s = `\n// A3\n`\n\n/*\nA4\n*/\n")},
		"limiter/testdata/c_test.go":                {Data: []byte("package c\n\n// A5\n")},
		"internal/archtest/d_test.go":               {Data: []byte("package archtest\n\n// A6\n")},
		"limiter/limitertest/testdata/windows.txt":  {Data: []byte("# A7\nA8\n## A9: a title\n  # A11\n")},
		"limiter/limitertest/testdata/fuzz/x/y.txt": {Data: []byte("# A10\n")},
		".git/e_test.go":                            {Data: []byte("package e\n\n// A12\n")},
		"bench/go.mod":                              {Data: []byte("module bench\n")},
		"bench/f_test.go":                           {Data: []byte("package bench\n\n// E1 in a nested module\n\n// E77\n")},
	}
	found, err := findSeeds(fsys)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"A1", "A11", "A4", "A7", "A9", "B1", "B2", "E1", "E77"}
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
	if got := found["A9"]; !slices.Equal(got, []string{transcripts + "/windows.txt:3"}) {
		t.Errorf("A9 is at %v", got)
	}

	problems := seedProblems([]string{"A1", "A2", "A3", "A4", "A7", "A9", "A11", "B1", "B2", "E1"}, found)
	parts := []string{
		"A2 has no test",
		"A3 has no test",
		"bench/f_test.go:5 names E77, which is no id",
	}
	if len(problems) != len(parts) {
		t.Fatalf("got %q, want %q", problems, parts)
	}
	for i, p := range parts {
		if !strings.Contains(problems[i], p) {
			t.Errorf("got %q, want %q", problems[i], p)
		}
	}
}

func TestListedSeeds(t *testing.T) {
	list := "| id | behaviour |\n|---|---|\n| A1 | one |\n|A12| twelve |\n| E4 | the examples of A2 |\n\n| fixed_window " +
		"| A A |\n"
	if got := listedSeeds([]byte(list)); !slices.Equal(got, []string{"A1", "A12", "E4"}) {
		t.Errorf("got %v", got)
	}
}

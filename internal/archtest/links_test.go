package archtest

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"unicode"
)

var (
	pageLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	pageHeading = regexp.MustCompile(`^#+ +(.*)$`)
	pageAnchor  = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
)

// TestLinks: each link from one page of the repository to another, and to a heading, leads there.
func TestLinks(t *testing.T) {
	dead, err := deadLinks(repository())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dead {
		t.Error(d)
	}
}

// deadLinks returns the links of all pages that lead nowhere. It does not follow links to other sites.
func deadLinks(fsys fs.FS) (dead []string, err error) {
	pages := map[string]string{}
	err = fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != "." && (path.Base(p)[0] == '.' || path.Base(p) == "testdata"):
			return fs.SkipDir
		case path.Ext(p) == ".md":
			text, err := fs.ReadFile(fsys, p)
			pages[p] = string(text)
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	headings := map[string]map[string]bool{}
	for p, text := range pages {
		headings[p] = anchors(text)
	}
	for p, text := range pages {
		for n, line := range proseLines(text) {
			for _, m := range pageLink.FindAllStringSubmatch(line, -1) {
				to, anchor, _ := strings.Cut(m[1], "#")
				if strings.Contains(to, ":") {
					continue
				}
				at := p
				if to != "" {
					at = path.Join(path.Dir(p), to)
				}
				_, missing := fs.Stat(fsys, at)
				if missing != nil || anchor != "" && path.Ext(at) == ".md" && !headings[at][anchor] {
					dead = append(dead, fmt.Sprintf("%s:%d: the link %s leads nowhere", p, n+1, m[1]))
				}
			}
		}
	}
	return dead, nil
}

// proseLines returns the lines of a page, with those of code empty.
func proseLines(text string) []string {
	lines, code := strings.Split(text, "\n"), false
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fence {
			code = !code
		}
		if fence || code {
			lines[i] = ""
		}
	}
	return lines
}

// anchors returns the anchors of a page's headings, as code hosts make them.
func anchors(text string) map[string]bool {
	out := map[string]bool{}
	for _, line := range proseLines(text) {
		for _, m := range pageAnchor.FindAllStringSubmatch(line, -1) {
			out[m[1]] = true
		}
		m := pageHeading.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, m[1])
		name := slug
		for n := 1; out[name]; n++ {
			name = fmt.Sprintf("%s-%d", slug, n)
		}
		out[name] = true
	}
	return out
}

func TestDeadLinks(t *testing.T) {
	dead, err := deadLinks(fstest.MapFS{
		"a.md": {Data: []byte("# A `b` (c): d-e\n\n## Two\n\n## Two\n\n[x](#a-b-c-d-e) [y](docs/b.md#two-1) [z](#two-1) " +
			"[o](https://example.com/#q)\n" +
			"[f](#absent) [g](docs/absent.md) [h](docs/b.md#two-2) [d](docs)\n```\n[i](absent)\n```\n")},
		"docs/b.md": {Data: []byte("# Two\n# Two\n[a](../a.md#two) [c](../a.md#absent)\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a.md:8: the link #absent leads", "a.md:8: the link docs/absent.md leads",
		"a.md:8: the link docs/b.md#two-2 leads", "docs/b.md:3: the link ../a.md#absent leads"}
	if got := strings.Join(dead, "\n"); len(dead) != len(want) {
		t.Fatalf("found\n%s", got)
	}
	for _, w := range want {
		if !strings.Contains(strings.Join(dead, "\n"), w) {
			t.Errorf("%s nowhere: not found", w)
		}
	}
}

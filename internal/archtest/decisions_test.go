package archtest

import (
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
)

// decisionName is how code and files that are no pages refer to a decision: by its heading.
var decisionName = regexp.MustCompile(`docs/decisions\.md, "([^"]+)"`)

// TestDecisionNames: each decision is in the table of contents of docs/decisions.md, and each
// decision that a file of the repository names is there. (TestLinks has the links of pages.)
func TestDecisionNames(t *testing.T) {
	page, err := fs.ReadFile(repository(), "docs/decisions.md")
	if err != nil {
		t.Fatal(err)
	}
	names, listed := map[string]bool{}, regexp.MustCompile(`(?m)^- \[(.*)\]\(#`)
	for _, m := range regexp.MustCompile(`(?m)^### (.*)$`).FindAllStringSubmatch(string(page), -1) {
		names[m[1]] = false
	}
	for _, m := range listed.FindAllStringSubmatch(string(page), -1) {
		names[m[1]] = true
	}
	for name, in := range names {
		if !in {
			t.Errorf("the contents of docs/decisions.md lack %q", name)
		}
	}
	referred := 0
	err = fs.WalkDir(repository(), ".", func(p string, d fs.DirEntry, err error) error {
		switch base := path.Base(p); {
		case err != nil:
			return err
		case d.IsDir():
			if p != "." && (base[0] == '.' || base == "testdata") {
				return fs.SkipDir
			}
			return nil
		case path.Ext(p) != ".go" && base != "Dockerfile":
			return nil
		}
		text, err := fs.ReadFile(repository(), p)
		for _, m := range decisionName.FindAllStringSubmatch(strings.ReplaceAll(string(text), "\n// ", " "), -1) {
			referred++
			if _, ok := names[m[1]]; !ok {
				t.Errorf("%s names the decision %q, which docs/decisions.md does not have", p, m[1])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 60 || referred < 3 {
		t.Errorf("found %d decisions and %d references to them", len(names), referred)
	}
}

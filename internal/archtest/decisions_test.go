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

// TestDecisionNames: each decision that a file of the repository names is in docs/decisions.md.
// (TestLinks has the links of pages.)
func TestDecisionNames(t *testing.T) {
	page, err := fs.ReadFile(repository(), "docs/decisions.md")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^### (.*)$`).FindAllStringSubmatch(string(page), -1) {
		names[m[1]] = true
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
			if !names[m[1]] {
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

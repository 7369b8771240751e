package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestEachMutationIsAccountedFor: real processes show it, or there is a reason why
// they do not.
func TestEachMutationIsAccountedFor(t *testing.T) {
	known := showings()
	for _, m := range mutations() {
		s, ok := known[m.name]
		switch {
		case !ok:
			t.Errorf("%s: nothing says whether real processes show it", m.name)
		case (s.scenario == "") == (s.why == ""):
			t.Errorf("%s: name the scenario that shows it, or the reason why none does", m.name)
		}
		delete(known, m.name)
	}
	for name := range known {
		t.Errorf("%s is no mutation", name)
	}
}

// TestEditsStillFit: each piece to be replaced occurs once in its file.
func TestEditsStillFit(t *testing.T) {
	for _, m := range mutations() {
		for _, e := range m.edits {
			text, err := os.ReadFile(filepath.Join("..", "..", e.file))
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := e.place(string(text)); err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
		}
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

// All modules are listed, a replaced one as what replaces it, with their sums, and Go itself.
func TestMaterials(t *testing.T) {
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8", Main: debug.Module{Path: "example.com/weir", Version: "v1.0.0"},
		Deps: []*debug.Module{
			{Path: "example.com/a", Version: "v2.0.0+incompatible", Sum: "h1:abc="},
			{Path: "example.com/b", Version: "v0.1.0", Replace: &debug.Module{Path: "example.com/fork", Version: "v0.2.0"}},
		},
		Settings: []debug.BuildSetting{{Key: "CGO_ENABLED", Value: "0"}},
	}
	got := materials("node", "00ff", info)
	if c := got.Metadata.Component; c.Name != "node" || c.Type != "application" ||
		c.PURL != "pkg:golang/example.com/weir@v1.0.0" ||
		len(c.Hashes) != 1 || c.Hashes[0] != (hash{"SHA-256", "00ff"}) || len(c.Properties) != 1 {
		t.Errorf("the program: %+v", c)
	}
	var names []string
	refs := map[string]bool{}
	for _, c := range got.Components {
		names = append(names, c.PURL)
		if refs[c.Ref] {
			t.Errorf("two components are %s", c.Ref)
		}
		refs[c.Ref] = true
	}
	want := "pkg:golang/stdlib@v1.26.8 pkg:golang/example.com/a@v2.0.0+incompatible pkg:golang/example.com/fork@v0.2.0"
	if strings.Join(names, " ") != want {
		t.Errorf("components are %q, want %s", names, want)
	}
	if p := got.Components[1].Properties; len(p) != 1 || p[0] != (property{"go:sum", "h1:abc="}) {
		t.Errorf("properties of a module: %+v", p)
	}
}

// A program's own file gives a document, the same each time; no file and no program is an error.
func TestRun(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	if err := run([]string{self}, &first); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{self}, &second); err != nil || first.String() != second.String() {
		t.Errorf("the second differs: %v", err)
	}
	var d document
	if err := json.Unmarshal(first.Bytes(), &d); err != nil || d.Format != "CycloneDX" || len(d.Components) == 0 ||
		len(d.Metadata.Component.Hashes[0].Content) != 64 {
		t.Errorf("%v, %+v", err, d)
	}
	for _, args := range [][]string{nil, {self, self}, {"missing"}, {"main.go"}} {
		if run(args, new(bytes.Buffer)) == nil {
			t.Errorf("%q is taken", args)
		}
	}
}

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// -node is a path, and never looked for in PATH; who names something else is told.
func TestProgram(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"node": 0o755, "plain": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	t.Chdir(t.TempDir())
	if path, err := program(t.Context(), nil, "node"); err == nil || !strings.Contains(err.Error(), "-node") {
		t.Errorf("a program of PATH: %q, %v", path, err)
	}
	t.Chdir(dir)
	want := filepath.Join(dir, "node")
	if path, err := program(t.Context(), nil, "node"); err != nil || path != want {
		t.Errorf("one of the working directory: %q, %v, want %q", path, err, want)
	}
	for _, name := range []string{"plain", "."} {
		if path, err := program(t.Context(), nil, name); err == nil || !strings.Contains(err.Error(), "is none") {
			t.Errorf("%s, which is no program: %q, %v", name, path, err)
		}
	}
}

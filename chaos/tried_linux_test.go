package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A run of which the ground allows nothing has tried nothing, and says so.
func TestNothingTried(t *testing.T) {
	o := options{only: "split", on: "loopback", trials: 1, out: t.TempDir()}
	o.binary = filepath.Join(t.TempDir(), "node")
	if err := os.WriteFile(o.binary, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := o.run(context.Background()); err == nil || !strings.Contains(err.Error(), "nothing was tried") {
		t.Errorf("a split on loopback: %v", err)
	}
}

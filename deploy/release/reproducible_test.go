package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Two builds of a release, from two directories and without anything in common that was compiled
// before, have the same bytes. They say what they are of, and the checksums are theirs.
func TestReproducible(t *testing.T) {
	if os.Getenv("WEIR_RELEASE") == "" {
		t.Skip("it compiles everything twice, for minutes: make release-test runs it")
	}
	const commit = "0123456789abcdef0123456789abcdef01234567"
	var outs []string
	root := filepath.Join("..", "..")
	head := strings.TrimSpace(script(t, root, nil, "git", "rev-parse", "HEAD")) // once: it may move meanwhile
	for _, name := range []string{"a", filepath.Join("a longer", "path")} {
		tree := filepath.Join(t.TempDir(), name)
		if err := os.MkdirAll(tree, 0o755); err != nil {
			t.Fatal(err)
		}
		script(t, root, nil, "bash", "-euo", "pipefail", "-c", `git archive "$2" | tar -C "$1" -xf -`, "bash", tree, head)
		out := filepath.Join(tree, "dist")
		script(t, tree, []string{"GOCACHE=" + t.TempDir()}, "scripts/release.sh", out, "v1.2.3-test", commit,
			"1700000000", runtime.GOOS+"/"+runtime.GOARCH)
		outs = append(outs, out)
	}
	files, err := os.ReadDir(outs[0])
	if err != nil || len(files) != 9 {
		t.Fatalf("%v: %v", err, files)
	}
	for _, f := range files {
		if read(t, outs[0], f.Name()) != read(t, outs[1], f.Name()) {
			t.Errorf("%s differs between two builds", f.Name())
		}
	}
	base := "_1.2.3-test_" + runtime.GOOS + "_" + runtime.GOARCH
	script(t, outs[0], nil, "tar", "-xzf", "weir"+base+".tar.gz")
	for _, program := range []string{"weir-node", "weir"} {
		file := filepath.Join(outs[0], "weir"+base, program)
		if says := script(t, ".", nil, file, "version"); !strings.HasPrefix(says,
			program+" v1.2.3-test (0123456789ab) go1.") || !strings.Contains(says, "-trimpath=true") {
			t.Errorf("%s says %q", program, says)
		}
		var bill struct {
			Components []struct{ Name string }
		}
		if err := json.Unmarshal([]byte(read(t, outs[0], program+base+".cdx.json")), &bill); err != nil ||
			len(bill.Components) < 10 {
			t.Errorf("the bill of %s: %v, %+v", program, err, bill)
		}
	}
	script(t, outs[0], nil, "sha256sum", "--check", "--strict", "SHA256SUMS")
	if sums := strings.Count(read(t, outs[0], "SHA256SUMS"), "\n"); sums != 8 {
		t.Errorf("%d checksums", sums)
	}
}

// script runs a program in a directory, with more environment, and returns what it prints.
func script(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	if strings.Contains(name, "/") && !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", name, err, out, said.String())
	}
	return string(out)
}

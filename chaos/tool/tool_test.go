package tool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// program is what the tests start with `go run`: it has a temporary directory, says
// where, and waits for its end.
const program = `package main

import (
	"fmt"
	"os"

	"github.com/weirlimit/weir/chaos/tool"
)

func main() {
	ctx, stop := tool.Context()
	d, err := tool.NewDir()
	if err != nil {
		panic(err)
	}
	fmt.Println(os.Getpid(), d.Path)
	<-ctx.Done()
	stop()
	if err := d.Remove(); err != nil {
		panic(err)
	}
}
`

// Whoever ends `go run` alone ends what it started too, in good order.
func TestGoRunIsKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("parents are known on Linux alone")
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", file)
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	var path string
	if _, err := fmt.Fscan(out, &pid, &path); err != nil {
		t.Fatal(err, said.String())
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err == nil { // until the last of them has closed it
		t.Error("it said more than it was to say")
	}
	_ = cmd.Wait() // it says that it was killed
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s of process %d is still there: %v", path, pid, err)
	}
}

// A build that is interrupted leaves nothing in the directory.
func TestABuildIsInterrupted(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the stand-in for go is a shell script")
	}
	dir := t.TempDir()
	script := "#!/bin/sh\nmkdir \"$GOTMPDIR/go-build\"\ntrap 'rm -r \"$GOTMPDIR/go-build\"; exit 1' INT\n: > " +
		"\"$GOTMPDIR/begun\"\nwhile :; do sleep 0.01; done\n"
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("TMPDIR", dir)
	d, err := NewDir()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go follow(ctx, cancel, func() bool {
		_, err := os.Stat(filepath.Join(d.Path, "begun"))
		return err != nil
	})
	if err := d.Go(ctx, "build").Run(); err == nil {
		t.Error("a build that was interrupted is said to be done")
	}
	var left []string
	found, err := os.ReadDir(d.Path)
	for _, f := range found {
		left = append(left, f.Name())
	}
	if err != nil || strings.Join(left, " ") != "begun" {
		t.Errorf("there is %q, %v", left, err)
	}
	if err := d.Remove(); err != nil {
		t.Error(err)
	}
}

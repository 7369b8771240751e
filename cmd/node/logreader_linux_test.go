package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// A node whose log goes to a pipe serves on, and stops in good order, when whoever reads the pipe has gone.
func TestTheReaderOfTheLogGoesAway(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "serve", "--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0",
		"--admin-addr", "off", "--health-addr", "off")
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var ready struct{ HTTP string }
	for in := bufio.NewScanner(r); ready.HTTP == "" && in.Scan(); {
		if strings.Contains(in.Text(), "the node is ready") {
			if err := json.Unmarshal(in.Bytes(), &ready); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil { // it logs that it stops
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || ready.HTTP == "" {
		t.Errorf("a node at %q ended: %v", ready.HTTP, err)
	}
}

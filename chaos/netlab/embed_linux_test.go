package netlab

import (
	"bufio"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/internal/certs/certstest"
)

// embedder is a program around the lines of docs/embed.md that open a member. Its argument is how many units it takes
// of a counter of 100 once it is ready; it then says what remains.
const embedder = `package main

import (
	"bufio"
	"context"
	"fmt"
	"os"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cluster"
)

var rules = []byte("rules: [{name: shared, key: [rule], limits: [{limit: 100, window: 1h, algorithm: sliding_log}]}]")

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	SNIPPET
	if err != nil {
		return err
	}
	in := bufio.NewScanner(os.Stdin)
	for fmt.Println("ready"); in.Scan(); {
		d, err := n.Check(ctx, weir.Request{})
		if err != nil {
			return err
		}
		fmt.Println(d.Limit(0).Remaining, d.Source)
	}
	return nil
}
`

// snippet returns the lines of docs/embed.md that open a member.
func snippet(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/embed.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "```go\nsecret, err :=")
	text, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("docs/embed.md has no lines that open a member")
	}
	return "secret, err :=" + text
}

// TestEmbeddedOnTwoMachines builds the lines of docs/embed.md as they are printed, with addresses in place of names,
// and runs them in two network namespaces: both count together.
func TestEmbeddedOnTwoMachines(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds two programs")
	}
	l := lab(t)
	authority := certstest.New(t, "peers")
	secret, gossip := make([]byte, 32), make([]byte, 32)
	_, _ = rand.Read(secret)
	_, _ = rand.Read(gossip)
	keeper := NewKeeper()
	t.Cleanup(keeper.Close)
	type machine struct {
		in  *bufio.Writer
		out *bufio.Scanner
	}
	var machines []machine
	for i := range 2 {
		name := fmt.Sprintf("node-%d", i+1)
		text := strings.NewReplacer(`Advertise: "node-1"`, `Advertise: "`+l.PeerHost(i)+`"`, `Name: "node-1"`,
			`Name: "`+name+`"`,
			`"node-1:7946"`, `"`+l.PeerHost(0)+`:7946"`, `"node-2:7946"`, `"`+l.PeerHost(1)+`:7946"`, "certs/node-1-peer",
			"certs/"+name+"-peer").Replace(snippet(t))
		source, err := os.MkdirTemp(".", "embed-") //nolint:usetesting // it is built as a part of this module
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(source) })
		dir := t.TempDir()
		write := func(path string, data []byte) {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(filepath.Join(source, "main.go"), []byte(strings.Replace(embedder, "SNIPPET", strings.TrimSpace(text), 1)))
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "member"),
			"./"+source).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		files := authority.Write(t, t.TempDir(), certstest.Leaf{Name: name, URI: certs.MemberURI("weir", name)})
		if err := os.Mkdir(filepath.Join(dir, "certs"), 0o700); err != nil {
			t.Fatal(err)
		}
		for from, to := range map[string]string{files.Cert: name + "-peer.crt", files.Key: name + "-peer.key",
			files.CA: "peer-ca.crt"} {
			data, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			write(filepath.Join(dir, "certs", to), data)
		}
		write(filepath.Join(dir, "certs", "secret"), secret)
		write(filepath.Join(dir, "certs", "gossip.keys"), []byte(base64.StdEncoding.EncodeToString(gossip)+"\n"))
		cmd := exec.Command(filepath.Join(dir, "member"))
		cmd.Dir, cmd.Stderr = dir, os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := keeper.Start(l.Node(i), cmd); err != nil {
			t.Fatal(err)
		}
		hang := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		t.Cleanup(func() {
			hang.Stop()
			_ = in.Close()
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		machines = append(machines, machine{bufio.NewWriter(in), bufio.NewScanner(out)})
	}
	for i, m := range machines {
		if !m.out.Scan() || m.out.Text() != "ready" {
			t.Fatalf("machine %d: %q, %v", i+1, m.out.Text(), m.out.Err())
		}
	}
	for i := range 20 {
		m := machines[i%2]
		fmt.Fprintln(m.in)
		_ = m.in.Flush()
		if !m.out.Scan() {
			t.Fatalf("machine %d ended: %v", i%2+1, m.out.Err())
		}
		if want := fmt.Sprintf("%d owner", 99-i); m.out.Text() != want {
			t.Errorf("check %d: %q, want %q", i, m.out.Text(), want)
		}
	}
}

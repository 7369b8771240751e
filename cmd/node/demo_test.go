package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// demo starts the demo on free ports.
func demo(t *testing.T) *process {
	t.Helper()
	p := launch(t, "demo", "--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0")
	p.until(p.out, "What is decided")
	return p
}

// said returns the line of the demo that begins with a command.
func (p *process) said(command string) string {
	return strings.TrimSpace(p.until(p.out, "  "+command+" "))
}

// The demo prints a curl command; that command works, and is denied to a client that
// checks too often. Ctrl-C ends the demo.
func TestDemoWithCurl(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		missing(t, "curl", err)
	}
	p := demo(t)
	line := p.said("curl")
	allowed, denied := 0, 0
	for denied == 0 && allowed < 200 {
		out, err := command(t, "", nil, "sh", "-c", line)
		switch {
		case err != nil:
			t.Fatalf("%s: %v\n%s", line, err, out)
		case strings.HasPrefix(out, "HTTP/1.1 200 ") || strings.Contains(out, "\nHTTP/1.1 200 "):
			allowed++
		case strings.Contains(out, "HTTP/1.1 429 ") && strings.Contains(out, `"blocked_by":"login/`) &&
			strings.Contains(out, "Retry-After: "):
			denied++
		default:
			t.Fatalf("%s\n%s", line, out)
		}
	}
	if allowed == 0 || denied == 0 {
		t.Errorf("%d allowed, %d denied", allowed, denied)
	}
	line = p.said("curl -s")
	if out, err := command(t, "", nil, "sh", "-c", line); err != nil || strings.Count(out, `"state":"active"`) != 3 {
		t.Errorf("%s: %v\n%s", line, err, out)
	}
	p.until(p.out, "   1s   ada ")
	p.signal(os.Interrupt)
	p.end(0)
	if out := p.out.String(); !strings.Contains(out, "\n  bob ") || p.log.String() != "" {
		t.Errorf("%s\n%s", out, p.log)
	}
}

// The demo kills a member that owns a counter: its heir knows the count, and the limit holds.
func TestDemoKill(t *testing.T) {
	p := launch(t, "demo", "--kill", "--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr",
		"127.0.0.1:0")
	p.until(p.out, "In all 20 were allowed, of 20;")
	p.until(p.out, "  root ") // the others are still answered
	p.signal(os.Interrupt)
	p.end(0)
	out := p.out.String()
	for _, want := range []string{"node-4 owns the counter of user kim-", "He has 12; the last answer:",
		"\"remaining\": 8,",
		"\"owner\": \"node-4\"", "node-4 was killed (kill -9). ", "\"source\": \"heir\"", "\"remaining\": 7,"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s\n%s", want, out, p.log)
		}
	}
}

// grpcurl of this version is what the test builds where there is none.
const grpcurl = "github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4"

// findGRPCurl returns a directory with grpcurl in it.
func findGRPCurl(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("grpcurl"); err == nil {
		return filepath.Dir(path)
	}
	bin, err := command(t, "", nil, "go", "env", "GOPATH")
	if err != nil {
		t.Fatal(err)
	}
	if bin = filepath.Join(strings.TrimSpace(bin), "bin"); exec.Command(filepath.Join(bin, "grpcurl"),
		"-version").Run() == nil {
		return bin
	}
	bin = t.TempDir()
	if out, err := command(t, "", []string{"GOBIN=" + bin, "GOFLAGS="}, "go", "install", grpcurl); err != nil {
		t.Log(out)
		missing(t, "grpcurl", err)
	}
	return bin
}

func TestDemoWithGRPCurl(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-long runs it")
	}
	if runtime.GOOS == "windows" {
		t.Skip("the line is for a shell")
	}
	dir := findGRPCurl(t)
	p := demo(t)
	line := p.said("grpcurl")
	out, err := command(t, "", []string{"PATH=" + dir + string(os.PathListSeparator) + os.Getenv("PATH")}, "sh", "-c",
		line)
	if err != nil || !strings.Contains(out, `"allowed": true`) || !strings.Contains(out, `"key": "you:10s"`) {
		t.Errorf("%s: %v\n%s", line, err, out)
	}
}

// The program that the demo shows compiles and runs as it stands, in a module
// that requires this one.
func TestDemoWithGo(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-long runs it")
	}
	p := demo(t)
	text, _, ok := strings.Cut(p.out.String(), "\n\nWhat is decided")
	at := strings.Index(text, "  package main\n")
	if !ok || at < 0 {
		t.Fatalf("there is no program:\n%s", p.out)
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string]string{
		"main.go": text[at:] + "\n",
		"go.mod": "module ask\n\ngo 1.26.0\n\nrequire github.com/weirlimit/weir v0.0.0\n\nreplace " +
			"github.com/weirlimit/weir => " + root + "\n",
		"go.sum": string(sums),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := command(t, dir, []string{"GOFLAGS=-mod=mod", "GOWORK=off"}, "go", "run", ".")
	if err != nil || !strings.HasSuffix(out, "allowed: true wait: 0s\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

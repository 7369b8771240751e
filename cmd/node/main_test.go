package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/cmd/node/internal/app"
)

// program is the built node; these tests run it as a process of its own.
var program string

func TestMain(m *testing.M) {
	if len(os.Args) == 0 {
		main() // never: it links the program in, so that no result is cached from before a change
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "node")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program = filepath.Join(dir, "node")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	if out, err := exec.CommandContext(context.Background(), "go", "build", "-o", program,
		".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%s%v\n", out, err)
		return 1
	}
	return m.Run()
}

// soon is how long a test waits for what must happen. No test waits for it to
// pass.
const soon = 30 * time.Second

// process is a node that runs.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  *lines // standard output
	log  *lines // standard error
	done chan struct{}
}

// lines are what a process wrote.
type lines struct {
	mu   sync.Mutex
	text []string
	more chan struct{} // closed at the next line
}

func (l *lines) read(from io.Reader) {
	in := bufio.NewReader(from)
	for {
		text, err := in.ReadString('\n')
		l.mu.Lock()
		if text != "" {
			l.text = append(l.text, strings.TrimSuffix(text, "\n"))
		}
		close(l.more)
		l.more = make(chan struct{})
		l.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.text, "\n")
}

// launch starts the program.
func launch(t *testing.T, args ...string) *process {
	t.Helper()
	return launchBy(t, exec.CommandContext(t.Context(), program, args...))
}

// launchBy starts the program by a command.
func launchBy(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{
		t: t, cmd: cmd, done: make(chan struct{}),
		out: &lines{more: make(chan struct{})}, log: &lines{more: make(chan struct{})},
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	log, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	// Where a test does not say otherwise, what is served apart takes free ports.
	p.cmd.Env = append(os.Environ(), "WEIR_ADMIN_ADDR=127.0.0.1:0", "WEIR_HEALTH_ADDR=127.0.0.1:0")
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		var reading sync.WaitGroup
		reading.Go(func() { p.out.read(out) })
		reading.Go(func() { p.log.read(log) })
		reading.Wait()
		_ = p.cmd.Wait() // its exit status is in ProcessState
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // where the test has not ended it
		<-p.done
	})
	return p
}

// until waits for a line with some text, and returns it.
func (p *process) until(l *lines, text string) string {
	p.t.Helper()
	timeout := time.After(soon)
	for seen := 0; ; {
		l.mu.Lock()
		for ; seen < len(l.text); seen++ {
			if strings.Contains(l.text[seen], text) {
				defer l.mu.Unlock()
				return l.text[seen]
			}
		}
		more := l.more
		l.mu.Unlock()
		select {
		case <-more:
		case <-timeout:
			p.t.Fatalf("it never said %q:\n%s\n%s", text, p.out, p.log)
		}
	}
}

// signal sends a signal, which Windows cannot.
func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if runtime.GOOS == "windows" {
		p.t.Skip("signals cannot be sent on Windows")
	}
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// end waits for the process to end, and wants an exit status.
func (p *process) end(want int) {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(soon):
		p.t.Fatalf("it does not end:\n%s\n%s", p.out, p.log)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != want {
		p.t.Errorf("exit status %d, want %d:\n%s\n%s", got, want, p.out, p.log)
	}
}

// serve starts a node on free ports, and returns it with its addresses when it
// is ready.
func serve(t *testing.T, args ...string) (p *process, overHTTP, overGRPC string) {
	t.Helper()
	p = launch(t, append([]string{"serve", "--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0"}, args...)...)
	var ready struct{ HTTP, GRPC string }
	if err := json.Unmarshal([]byte(p.until(p.log, "the node is ready")), &ready); err != nil {
		t.Fatal(err)
	}
	return p, ready.HTTP, ready.GRPC
}

// at returns where the node is asked, as "admin" or "health", by what it logged when it
// was ready.
func (p *process) at(what string) string {
	p.t.Helper()
	var ready map[string]any
	if err := json.Unmarshal([]byte(p.until(p.log, "the node is ready")), &ready); err != nil {
		p.t.Fatal(err)
	}
	addr, ok := ready[what].(string)
	if !ok {
		p.t.Fatalf("the node does not say where %q is: %v", what, ready)
	}
	return addr
}

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// replace writes a file as careful programs do: readers see the old or the new.
func replace(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

// asked asks over HTTP with some headers, and returns the status and the body.
func asked(t *testing.T, c *http.Client, method, url, body string, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if r.Header.Set(header[i], header[i+1]); header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func get(t *testing.T, c *http.Client, url string) (status int, body string) {
	t.Helper()
	return asked(t, c, http.MethodGet, url, "")
}

const townRules = `version: 1
rules:
  - {name: towns, match: {path: "^/towns"}, key: [path, user], limits: [{limit: 2, window: 1d, algorithm: fixed_window, align: first_hit}]}
`

// A node starts, is ready, decides, takes new rules by itself and by SIGHUP, and
// ends by SIGTERM in good order.
func TestLife(t *testing.T) {
	rules := write(t, townRules)
	p, overHTTP, _ := serve(t, "--rules", rules)
	c := &http.Client{}
	check := "http://" + overHTTP + "/v1/check?path=/towns&user=ada"
	if status, body := get(t, c, "http://"+overHTTP+"/readyz"); status != http.StatusOK {
		t.Fatalf("not ready: %d %s", status, body)
	}
	for i, want := range []int{200, 200, 429} {
		if status, body := get(t, c, check); status != want {
			t.Errorf("check %d: %d %s", i, status, body)
		}
	}
	replace(t, rules, strings.Replace(townRules, "limit: 2", "limit: 3", 1))
	p.until(p.log, "rules are in force")
	for i, want := range []int{200, 429} {
		if status, body := get(t, c, check); status != want {
			t.Errorf("check %d after the file changed: %d %s", i, status, body)
		}
	}
	replace(t, rules, "version: 1\nrules: [{name: a}, {name: b}]\n")
	line := p.until(p.log, "the old rules stay in force")
	if !strings.Contains(line, "2:9: ") || !strings.Contains(line, "2:20: ") {
		t.Errorf("not all problems are told: %s", line)
	}
	p.signal(syscall.SIGHUP)
	p.signal(syscall.SIGTERM)
	p.end(0)
	if got := p.log.String(); strings.Count(got, `"rules are in force"`) != 1 ||
		!strings.HasSuffix(got, `"msg":"stopped"}`) {
		t.Error(got)
	}
}

// slowRequest begins a request that the node waits for.
func slowRequest(t *testing.T, address string) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprint(conn, "POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "+
		"10\r\nExpect: 100-continue\r\n\r\n")
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("%q, %v", line, err)
	}
}

// Ctrl-C ends a node at once where nothing is being answered: the bound of its stop is longer
// than this test waits.
func TestInterrupt(t *testing.T) {
	p, _, _ := serve(t, "--shutdown-timeout", "1h")
	p.signal(os.Interrupt)
	p.end(0)
}

// A request that does not end cannot keep a node longer than the bound.
func TestBound(t *testing.T) {
	p, overHTTP, _ := serve(t, "--shutdown-timeout", "1s")
	slowRequest(t, overHTTP)
	p.signal(syscall.SIGTERM)
	p.until(p.log, "stopping")
	p.end(1)
	if !strings.Contains(p.log.String(), "stopped with errors") {
		t.Error(p.log)
	}
}

// A second signal ends it without further ado. One within a second of the first is the same wish, and counts for
// nothing.
func TestSecondSignal(t *testing.T) {
	p, overHTTP, _ := serve(t, "--shutdown-timeout", "5m")
	slowRequest(t, overHTTP)
	p.signal(syscall.SIGTERM)
	p.until(p.log, "stopping")
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for range 600 { // nothing says that the second is over, so it is asked until it obeys
		err := p.cmd.Process.Signal(os.Interrupt)
		if err != nil || strings.Contains(p.log.String(), "ending at once") {
			break
		}
		<-again.C
	}
	p.end(1)
	if !strings.Contains(p.log.String(), "ending at once") {
		t.Error(p.log)
	}
}

func TestProcess(t *testing.T) {
	_, overHTTP, overGRPC := serve(t)
	bad := write(t, "version: 1\nrules: [{name: a}, {name: b}]\n")
	for name, c := range map[string]struct {
		args   []string
		status int
		out    string
		err    string
	}{
		"version":      {[]string{"version"}, 0, "node ", ""},
		"help":         {[]string{"--help"}, 0, "--allow-request-limits", ""},
		"unknown flag": {[]string{"--rulez", "x"}, app.ExitUsage, "", "did you mean --rules?"},
		"HTTP port in use": {[]string{"--http-addr", overHTTP, "--grpc-addr", "127.0.0.1:0"}, 1, "",
			"cannot listen on " + overHTTP +
				": another program has that port; stop it, or choose another address with --http-addr"},
		"gRPC port in use": {[]string{"--grpc-addr", overGRPC}, 1, "",
			"cannot listen on " + overGRPC +
				": another program has that port; stop it, or choose another address with --grpc-addr"},
		"demo in use": {[]string{"demo", "--http-addr", overHTTP, "--grpc-addr", "127.0.0.1:0"}, 1, "",
			"choose another address with --http-addr"},
		"bad rules": {[]string{"--rules", bad}, 1, "", "2:20: "},
	} {
		t.Run(name, func(t *testing.T) {
			p := launch(t, c.args...)
			p.end(c.status)
			if out := p.out.String(); !strings.Contains(out, c.out) || c.out == "" && out != "" {
				t.Errorf("standard output: %q", out)
			}
			if errs := p.log.String(); !strings.Contains(errs, c.err) || c.err == "" && errs != "" ||
				strings.Contains(errs, "goroutine") {
				t.Errorf("standard error: %q", errs)
			}
		})
	}
}

// command runs a command to its end, and returns what it wrote.
func command(t *testing.T, dir string, env []string, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// missing skips a test for want of a program, but not where all is to be tested.
func missing(t *testing.T, program string, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is missing: %v", program, err)
	}
	t.Skipf("NOT TESTED: there is no %s: %v", program, err)
}

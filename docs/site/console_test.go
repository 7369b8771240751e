package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// The tests of the console start three real nodes, ask them, and look at their pages with a real browser.

const consoleRules = `version: 1
rules:
  - name: login
    match: {path: "^/login/?$", method: POST}
    key: [user]
    limits: [{name: minute, limit: 5, window: 1m}]
  - name: api
    match: {path: "^/api/"}
    key: [user]
    limits: [20/second, 300/minute]
  - name: export
    match: {path: "^/export/?$"}
    key: [ip]
    limits: [20/minute]
`

// hostileUser is a name with markup, marks that turn the direction of a text, and 256 bytes.
var hostileUser = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>" +
	"\u202egnp.exe\u2066" + strings.Repeat("x", 160)

// node is one of the three.
type node struct {
	name, http, admin string
	cmd               *exec.Cmd
	out               *bytes.Buffer
}

// nodes starts a cluster of three from the source, and waits until all are ready.
func nodes(t *testing.T, flags ...string) []*node {
	t.Helper()
	for _, program := range []string{"chromium", "go"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("%v: scripts/deps.sh installs it", err)
			}
			t.Skip(err)
		}
	}
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir, "./cmd/node", "./cmd/weir")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	file := filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(file, []byte(consoleRules), 0o600); err != nil {
		t.Fatal(err)
	}
	free := ports(t, 10)
	gossip := free[9].addr()
	var all []*node
	for i := range 3 {
		n := &node{name: fmt.Sprint("n", i+1), http: free[3*i].addr(), admin: free[3*i+1].addr(), out: new(bytes.Buffer)}
		args := []string{"serve", "--name", n.name, "--rules", file, "--http-addr", n.http, "--grpc-addr", free[3*i+2].addr(),
			"--admin-addr", n.admin, "--health-addr", "off", "--peer-addr", "127.0.0.1:0", "--gossip-addr", gossip,
			"--join", gossip, "--expect", "1", "--cluster-name", "shop", "--allow-reset"}
		if i > 0 {
			args[16] = "127.0.0.1:0"
		}
		n.cmd = exec.Command(filepath.Join(dir, "node"), append(args, flags...)...)
		n.cmd.Stdout, n.cmd.Stderr = n.out, n.out
		if err := n.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = n.cmd.Process.Signal(syscall.SIGTERM)
			_ = n.cmd.Wait()
			if t.Failed() {
				t.Logf("%s: %.3000s", n.name, n.out)
			}
		})
		all = append(all, n)
		until(t, n.name+" is ready", func() bool { return status(n.http, "/readyz") == http.StatusOK })
	}
	tool = filepath.Join(dir, "weir")
	return all
}

// tool is the path of the program weir.
var tool string

type port int

func (p port) addr() string { return fmt.Sprintf("127.0.0.1:%d", int(p)) }

// ports returns ports that were free a moment ago.
func ports(t *testing.T, n int) (out []port) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		out = append(out, port(l.Addr().(*net.TCPAddr).Port))
	}
	return out
}

func status(addr, path string) int {
	res, err := http.Get("http://" + addr + path)
	if err != nil {
		return 0
	}
	res.Body.Close()
	return res.StatusCode
}

// until waits until ok returns true, as long as a test may take.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came to pass: %s", what)
		}
	}
}

type ask struct {
	Path   string `json:"path"`
	Method string `json:"method,omitempty"`
	User   string `json:"user,omitempty"`
	IP     string `json:"ip,omitempty"`
}

// check asks a node.
func (n *node) check(t *testing.T, a ask) (out struct {
	Allowed, Overridden bool
	Rule                string
}) {
	t.Helper()
	body, _ := json.Marshal(a)
	res, err := http.Post("http://"+n.http+"/v1/check", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

// load asks all nodes as a service would, until the test ends.
func load(t *testing.T, all []*node) {
	ctx, cancel := context.WithCancel(context.Background())
	var asking sync.WaitGroup
	for i, n := range all {
		asking.Go(func() {
			for round := i; ctx.Err() == nil; round++ {
				var b struct {
					Checks []ask `json:"checks"`
				}
				add := func(times int, a ask) {
					for range times {
						b.Checks = append(b.Checks, a)
					}
				}
				add(1, ask{Path: "/login", Method: "POST", User: "192.0.2.66", IP: "192.0.2.66"})
				if round%7 == 0 {
					add(1, ask{Path: "/login", Method: "POST", User: "ada", IP: "198.51.100.7"})
					add(1, ask{Path: "/export", IP: fmt.Sprint("198.51.100.", round%3)})
				}
				for j := range 12 + 6*(round/40%4) {
					add(1, ask{Path: "/api/towns", User: fmt.Sprint("user-", (round*7+j)%60), IP: "198.51.100.9"})
				}
				add(3, ask{Path: "/api/search", User: "crawler", IP: "203.0.113.5"})
				body, _ := json.Marshal(b)
				if res, err := http.Post("http://"+n.http+"/v1/check/batch", "application/json",
					bytes.NewReader(body)); err == nil {
					_, _ = io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
				select {
				case <-ctx.Done():
				case <-time.After(80 * time.Millisecond):
				}
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		asking.Wait()
	})
}

// looking starts chromium, in the dark or not. It collects what goes wrong on pages.
func looking(t *testing.T, dark bool) *browser {
	t.Helper()
	scheme := "1"
	if dark {
		scheme = "0"
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("chromium"), chromedp.NoSandbox,
		chromedp.UserDataDir(t.TempDir()), chromedp.Flag("blink-settings", "preferredColorScheme="+scheme),
		chromedp.Flag("ignore-certificate-errors", true), // those of the tests
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	b := new(browser)
	b.ctx, cancel = chromedp.NewContext(ctx, chromedp.WithListener(func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.report("exception: " + e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.ConsoleAPICalledTypeError {
				b.report(fmt.Sprintf("console.error with %d arguments", len(e.Args)))
			}
		case *log.EventEntryAdded:
			if e.Entry.Level == log.EntryLevelError {
				b.report("error: " + e.Entry.Text + " " + e.Entry.URL)
			}
		case *network.EventRequestWillBeSent:
			if u := e.Request.URL; !strings.HasPrefix(u, "http://127.0.0.1:") {
				b.report("asked for " + u)
			}
		}
	}))
	t.Cleanup(cancel)
	if err := chromedp.Do(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.ctx, cancel = context.WithTimeout(b.ctx, 10*time.Minute)
	t.Cleanup(cancel)
	return b
}

func (b *browser) do(t *testing.T, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

// is evaluates an expression.
func is[T any](t *testing.T, b *browser, expression string) T {
	t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// clean fails the test if something went wrong on a page.
func (b *browser) clean(t *testing.T, page string) {
	t.Helper()
	for _, bad := range b.reported() {
		t.Errorf("%s: %s", page, bad)
	}
}

// consolePages are the pages, as a person comes to them.
func consolePages() map[string]string {
	return map[string]string{"now": "/", "refused": "/refused",
		"why":       "/why?path=/login&method=POST&user=192.0.2.66&ip=192.0.2.66",
		"why-empty": "/why", "rules": "/rules", "members": "/members"}
}

// TestConsole: all of the console, in one cluster, as to start it takes longest.
func TestConsole(t *testing.T) {
	all := nodes(t)
	load(t, all)
	b := looking(t, false)
	site := "http://" + all[0].admin

	t.Run("each page loads without an error", func(t *testing.T) {
		for name, path := range consolePages() {
			for _, wide := range []int64{1280, 390} {
				b.do(t, chromedp.EmulateViewport(wide, 800), chromedp.Navigate(site+path))
				if title := is[string](t, b, "document.title"); !strings.Contains(title, "shop") {
					t.Errorf("%s has the title %q", name, title)
				}
				if over := is[int](t, b, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
					t.Errorf("%s is %d pixels wider than a window of %d", name, over, wide)
				}
				b.clean(t, name)
			}
			if got := status(all[0].admin, "/"+strings.TrimSuffix(name, "-empty")+".json"); got != http.StatusOK {
				t.Errorf("%s as JSON: %d", name, got)
			}
		}
	})
	b.do(t, chromedp.EmulateViewport(1280, 800))
	t.Run("a refusal appears, with its reason, and leads to why", func(t *testing.T) {
		b.do(t, chromedp.Navigate(site+"/refused?user=zoe"))
		for range 7 {
			all[1].check(t, ask{Path: "/login", Method: "POST", User: "zoe", IP: "198.51.100.77"})
		}
		began := time.Now()
		until(t, "it is on the page of another member", func() bool {
			return strings.Contains(is[string](t, b, "document.getElementById('refusals').innerText"), "zoe")
		})
		t.Logf("the refusal was on the page after %v", time.Since(began))
		b.do(t, chromedp.Click("#refusals .go a"), chromedp.WaitVisible("#says"))
		if says := is[string](t, b, "document.getElementById('says').innerText"); !strings.Contains(says,
			"zoe may not: 5 of 5 used in login/minute") {
			t.Errorf("the answer is %q", says)
		}
		b.clean(t, "why")
	})
	t.Run("an override by a click denies elsewhere and ends", func(t *testing.T) {
		b.do(t, chromedp.Navigate(site+"/why?path=/api/x&user=eve"), chromedp.WaitVisible("#set"),
			chromedp.SetValue(".wideact input[name=for]", "4s"), chromedp.SetValue(".wideact input[name=why]", "a test"),
			chromedp.Click("#set"), chromedp.WaitVisible(".flash"))
		began := time.Now()
		until(t, "another member denies", func() bool {
			a := all[2].check(t, ask{Path: "/api/x", User: "eve"})
			return !a.Allowed && a.Overridden && a.Rule == "api"
		})
		t.Logf("another member denied after %v", time.Since(began))
		if text := is[string](t, b, "document.getElementById('answer').innerText"); !strings.Contains(text,
			"Override in force") ||
			!strings.Contains(text, "a test") {
			t.Errorf("the page says %q", text)
		}
		until(t, "it ends by itself, here and there", func() bool {
			return all[2].check(t, ask{Path: "/api/x", User: "eve"}).Allowed && all[0].check(t, ask{Path: "/api/x",
				User: "eve"}).Allowed
		})
		b.clean(t, "override")
	})
	t.Run("markup in a name is text", func(t *testing.T) {
		for range 7 {
			all[0].check(t, ask{Path: "/login", Method: "POST", User: hostileUser})
		}
		for _, path := range []string{"/", "/refused", "/refused?user=" + url.QueryEscape(hostileUser),
			"/why?" + url.Values{"path": {"/login"}, "method": {"POST"}, "user": {hostileUser}}.Encode()} {
			b.do(t, chromedp.Navigate(site+path))
			until(t, "the parts that change have come", func() bool {
				text := is[string](t, b, "document.querySelector('main').innerText")
				return strings.Contains(text, "<script>") || !strings.Contains(path, "user=") && strings.Contains(text, "login")
			})
			if title := is[string](t, b, "document.title"); strings.Contains(title, "owned") {
				t.Errorf("%.20s: the markup has run", path)
			}
			if n := is[int](t, b, "document.querySelectorAll('main img, main script').length"); n > 0 {
				t.Errorf("%.20s: there are %d elements of a name", path, n)
			}
			if text := is[string](t, b, "document.body.innerText"); strings.ContainsAny(text, "\u202e\u2066") {
				t.Errorf("%.20s: marks of direction are shown as they are", path)
			}
			b.clean(t, path)
		}
	})
	t.Run("a member that is killed turns red", func(t *testing.T) {
		for range 8 {
			all[2].check(t, ask{Path: "/login", Method: "POST", User: "only-n3"})
		}
		b.do(t, chromedp.Navigate(site+"/members"))
		_ = all[2].cmd.Process.Kill()
		began := time.Now()
		until(t, "it is red", func() bool {
			return is[int](t, b, "document.querySelectorAll('#member-n3 .state.bad').length") == 1
		})
		t.Logf("it was red after %v", time.Since(began))
		until(t, "the frame says so", func() bool {
			return strings.Contains(is[string](t, b, "document.getElementById('trouble').innerText"), "n3")
		})
		b.clean(t, "members")
	})
	t.Run("why was X refused is one command, and what is missing is named", func(t *testing.T) {
		until(t, "n3 is dead", func() bool {
			out, _ := exec.Command(tool, "denials", "--server", all[0].admin, "--user", "zoe").CombinedOutput()
			return strings.Contains(string(out), "zoe at POST /login") && strings.Contains(string(out),
				"n3 is missing, as it is dead")
		})
		b.do(t, chromedp.Navigate(site+"/refused?user=zoe"))
		if text := is[string](t, b, "document.getElementById('refusals').innerText"); !strings.Contains(text, "Missing: n3") {
			t.Errorf("the page does not name who is missing: %q", text)
		}
		b.clean(t, "refused")
	})
}

// TestConsoleShots writes pictures of all pages, in both widths and themes, of a quiet cluster, one in trouble and an
// empty one, for a person to look at. It needs CONSOLE_SHOTS, a directory.
func TestConsoleShots(t *testing.T) {
	dir := os.Getenv("CONSOLE_SHOTS")
	if dir == "" {
		t.Skip("CONSOLE_SHOTS is not set: make console-shots sets it")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	all := nodes(t)
	light, dark := looking(t, false), looking(t, true)
	shoot := func(state string) {
		for theme, b := range map[string]*browser{"light": light, "dark": dark} {
			for name, path := range consolePages() {
				for _, wide := range []int64{1280, 390} {
					b.do(t, chromedp.EmulateViewport(wide, 800), chromedp.Navigate("http://"+all[0].admin+path))
					time.Sleep(300 * time.Millisecond) // the first parts have come
					picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
					if err != nil {
						t.Fatal(err)
					}
					file := filepath.Join(dir, fmt.Sprintf("%s-%s-%d-%s.png", state, name, wide, theme))
					if err := os.WriteFile(file, picture, 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	shoot("empty")
	load(t, all)
	time.Sleep(70 * time.Second) // a chart with something in it
	shoot("quiet")
	body := `{"rule":"api","user":"crawler","limit":"10/minute","for":"2h","why":"asks too often"}`
	res, err := http.Post("http://"+all[0].admin+"/v1/overrides/set", "application/json", strings.NewReader(body))
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatal(err, res)
	}
	res.Body.Close()
	_ = all[2].cmd.Process.Kill()
	time.Sleep(12 * time.Second)
	shoot("trouble")
}

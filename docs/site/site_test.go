package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// needs fails the test if a program is missing in CI, and skips it elsewhere.
func needs(t *testing.T) {
	t.Helper()
	for _, program := range []string{"mkdocs", "chromium"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("%v: scripts/deps.sh installs it", err)
			}
			t.Skipf("%v: scripts/deps.sh installs it", err)
		}
	}
}

// browser is headless chromium, and what went wrong on its pages.
type browser struct {
	ctx context.Context
	mu  sync.Mutex
	bad []string
}

// open starts chromium. Nothing but the site may be asked for.
func open(t *testing.T, site string) *browser {
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath("chromium"), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()),
		// Names are not resolved: a page that needs another host fails at once.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
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
			if u := e.Request.URL; !strings.HasPrefix(u, site) && !strings.HasPrefix(u, "data:") &&
				!strings.HasPrefix(u, "blob:"+site) {
				b.report("asked for " + u)
			}
		}
	}))
	t.Cleanup(cancel)
	if err := chromedp.Do(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.ctx, cancel = context.WithTimeout(b.ctx, 5*time.Minute)
	t.Cleanup(cancel)
	return b
}

func (b *browser) report(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bad = append(b.bad, what)
}

// reported returns what went wrong since it was asked last.
func (b *browser) reported() (bad []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	bad, b.bad = b.bad, nil
	return bad
}

// visited is what a page has: where its links lead, the anchors in it, and its title.
type visited struct {
	Links, Anchors []string
	Title          string
}

const look = `({
	Links: [...document.querySelectorAll("a[href]")].map(a => a.href),
	Anchors: [...document.querySelectorAll("[id], a[name]")].flatMap(e => [e.id, e.name].filter(s => typeof s == "string" && s)),
	Title: document.title,
})`

func (b *browser) visit(t *testing.T, page string) *visited {
	t.Helper()
	if err := chromedp.Do(b.ctx, chromedp.Navigate(page)); err != nil {
		t.Fatalf("%s: %v", page, err)
	}
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[*visited](look))
	if err != nil {
		t.Fatalf("%s: %v", page, err)
	}
	for _, bad := range b.reported() {
		t.Errorf("%s: %s", page, bad)
	}
	return v
}

// follow visits each page that links lead to, from the first page on, and returns them, and the
// links that lead nowhere.
func follow(t *testing.T, b *browser, site string) (pages map[string]*visited, dead []string) {
	pages, from, anchored := map[string]*visited{}, map[string]string{}, map[string]string{}
	for todo := []string{site + "/"}; len(todo) > 0; todo = todo[1:] {
		at := todo[0]
		res, err := http.Get(at)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			dead = append(dead, fmt.Sprintf("%s on %s: %s", at, from[at], res.Status))
			continue
		}
		if !strings.HasPrefix(res.Header.Get("Content-Type"), "text/html") {
			continue
		}
		pages[at] = b.visit(t, at)
		for _, l := range pages[at].Links {
			u, err := url.Parse(l)
			if err != nil {
				dead = append(dead, fmt.Sprintf("%s on %s: %v", l, at, err))
				continue
			}
			if !strings.HasPrefix(l, site) {
				continue
			}
			if u.Fragment != "" {
				anchored[l] = at
			}
			u.Fragment, u.RawFragment = "", ""
			if to := u.String(); from[to] == "" && to != site+"/" {
				from[to], todo = at, append(todo, to)
			}
		}
	}
	for l, at := range anchored {
		u, _ := url.Parse(l) // parsed above
		anchor := u.Fragment
		u.Fragment, u.RawFragment = "", ""
		if to := pages[u.String()]; to != nil && !slices.Contains(to.Anchors, anchor) {
			dead = append(dead, fmt.Sprintf("%s on %s: no such anchor", l, at))
		}
	}
	slices.Sort(dead)
	return pages, dead
}

// search returns the first page that the site's search finds. What is typed while a busy machine still
// reads the index may be lost, so it is typed again.
func search(t *testing.T, b *browser, site, text string) string {
	t.Helper()
	for tries := 1; ; tries++ {
		err := chromedp.Do(b.ctx, chromedp.Navigate(site+"/"), chromedp.SendKeys(`input.md-search__input`, text))
		if err != nil {
			t.Fatal("search:", err)
		}
		first, err := chromedp.Run(b.ctx, chromedp.Poll[string](`document.querySelector(".md-search-result__item a")?.href`,
			chromedp.WithPollingTimeout(20*time.Second)))
		if err == nil {
			return first
		}
		if tries == 5 || b.ctx.Err() != nil {
			t.Fatal("search:", err)
		}
	}
}

// TestSite: the site is built, each page of the repository is on it, each link inside leads
// somewhere, no page has an error or asks another host for something, and search finds a page.
func TestSite(t *testing.T) {
	needs(t)
	repo, dir := os.DirFS("../.."), t.TempDir()
	if err := build(t.Context(), repo, dir); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	b := open(t, server.URL)
	pages, dead := follow(t, b, server.URL)
	for _, d := range dead {
		t.Error(d)
	}
	files, err := published(repo)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name, ok := strings.CutSuffix(f, ".md"); ok && f != "README.md" && pages[server.URL+"/"+name+"/"] == nil {
			t.Errorf("no link leads to the page of %s", f)
		}
	}

	first := search(t, b, server.URL, "count_rejected")
	if !strings.HasPrefix(first, server.URL) {
		t.Errorf("search found %q", first)
	}
	for _, bad := range b.reported() {
		t.Error("search:", bad)
	}
}

// TestBrokenSite: what TestSite looks for is found where it is.
func TestBrokenSite(t *testing.T) {
	needs(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"index.html": `<!doctype html><link rel="icon" href="data:,"><h1 id="a">A</h1><a href="#a">1</a> <a ` +
			`href="#b">2</a> <a href="/absent/">3</a> <a href="/two.html#c">4</a>`,
		"two.html": `<!doctype html><link rel="icon" href="data:,">`,
		"loud.html": `<!doctype html><link rel="icon" href="data:,"><script>console.error("x"); addEventListener("error", ` +
			`() => window.thrown = true); setTimeout(() => { throw new Error("y") })</script>` +
			`<img src="https://fonts.example/f.png">`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	b := open(t, server.URL)
	err := chromedp.Do(b.ctx, chromedp.Navigate(server.URL+"/loud.html"), chromedp.Poll[chromedp.Void](`window.thrown`))
	if err != nil {
		t.Fatal(err)
	}
	bad := b.reported()
	for _, want := range []string{"exception: ", "console.error", "asked for https://fonts.example/f.png"} {
		if !slices.ContainsFunc(bad, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("%q is not among %q", want, bad)
		}
	}
	// The links of the first page lead to a quiet one. The loud one may say more in its own browser.
	_, dead := follow(t, open(t, server.URL), server.URL)
	for i, want := range []string{"/#b", "/absent/", "/two.html#c"} {
		if len(dead) != 3 || !strings.HasPrefix(dead[i], server.URL+want+" ") {
			t.Errorf("found %q, and not %q", dead, want)
		}
	}
}

// TestPage: links and lists are as mkdocs needs them, and code is left alone.
func TestPage(t *testing.T) {
	repo := fstest.MapFS{"docs/a.md": {}, "README.md": {}, "cmd/node/main.go": {}, "LICENSE": {}}
	files := []string{"README.md", "docs/a.md"}
	for in, want := range map[string]string{
		"[a](../README.md#x) [b](#y) [c](https://example.com/a)": "[a](../README.md#x) [b](#y) [c](https://example.com/a)",
		"[a](../LICENSE) [b](../cmd/node)": "[a](" + sources + "/blob/main/LICENSE) [b](" + sources +
			"/tree/main/cmd/node)",
		"- a\n  - b\n   1. c\n": "- a\n    - b\n    1. c\n",
		"```\n[a](../LICENSE)\n  - b\n```\n[a](../LICENSE)": "```\n[a](../LICENSE)\n  - b\n```\n[a](" + sources +
			"/blob/main/LICENSE)",
	} {
		if got := page(repo, files, "docs/a.md", in); got != want {
			t.Errorf("%q became %q, and not %q", in, got, want)
		}
	}
	if n := nav([]string{"README.md", "docs/zzz.md", "docs/rules.md"}); !strings.HasSuffix(n,
		"- \"Project\":\n      - docs/zzz.md\n") {
		t.Errorf("a page that no section names is not at the end of\n%s", n)
	}
}

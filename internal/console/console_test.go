package console_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/console"
	"github.com/weirlimit/weir/internal/denials"
	"github.com/weirlimit/weir/internal/overrides"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/metrics"
	"github.com/weirlimit/weir/transport"
)

const someRules = `version: 1
rules:
  - {name: login, match: {path: "^/login/?$"}, key: [user], limits: [3/minute]}
  - {name: api, match: {path: "^/api/"}, key: [user], limits: [100/minute]}
`

// hostile is a name as an attacker would choose it.
var hostile = `"><script>alert(1)</script><img src=x onerror=alert(2)>` + "\u202e\u2066\x00" + strings.Repeat("y", 250)

// desk is a node with a console, for tests.
type desk struct {
	*console.Console
	node   *weir.Node
	record *denials.Record
	book   *overrides.Book
	asked  func(question []byte) []console.Answered
	asks   func(ctx context.Context) ([]console.Answered, error)
	told   [][]byte
	heard  []overrides.Entry
	ended  []overrides.Entry
	url    string
	client *http.Client
	audit  audit

	options transport.AdminOptions
}

type audit struct {
	mu     sync.Mutex
	events []transport.AuditEvent
}

func (a *audit) Audited(e transport.AuditEvent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events = append(a.events, e)
}

// all returns what was told.
func (a *audit) all() []transport.AuditEvent {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.events)
}

// open opens one. access is nil for none.
func open(t *testing.T, access transport.Access, secure bool) *desk {
	t.Helper()
	d := &desk{book: new(overrides.Book)}
	var err error
	d.node, err = weir.Open(t.Context(), weir.Config{Rules: []byte(someRules), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.node.Close() })
	d.record = denials.New(denials.Config{Now: time.Now, KeyName: d.node.AppendKeyName})
	d.Console = console.New(console.Config{Node: func() *weir.Node { return d.node }, Name: "n1", Cluster: "shop",
		Denials: d.record, Overrides: d.book, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Totals: func() metrics.Totals { return metrics.Totals{} },
		Tell:   func(news []byte, _ ...string) { d.told = append(d.told, news) },
		Heard:  func(e *overrides.Entry) { d.heard = append(d.heard, *e) },
		Ended:  func(e *overrides.Entry) { d.ended = append(d.ended, *e) },
		Ask: func(ctx context.Context, q []byte) ([]console.Answered, error) {
			if d.asks != nil {
				return d.asks(ctx)
			}
			if d.asked == nil {
				return nil, nil
			}
			return d.asked(q), nil
		}})
	d.options = transport.AdminOptions{Routes: d.Routes(), Token: d.Token, Access: access, Audit: &d.audit,
		Overrides: d.Overriding}
	site := transport.NewAdmin(d.options)
	server := httptest.NewUnstartedServer(site.Handler())
	if secure {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	d.url, d.client = server.URL, server.Client()
	d.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return d
}

// refuse has a request denied, and recorded.
func (d *desk) refuse(t *testing.T, r weir.Request) {
	t.Helper()
	for range 4 {
		out, err := d.node.Check(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if !out.Allowed {
			d.record.Denied("http", &r, &out)
		}
	}
}

type answer struct {
	status int
	header http.Header
	body   string
}

// ask sends a request. Fields are pairs of names and values.
func (d *desk) ask(t *testing.T, method, path, body string, fields ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, d.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		if r.Header.Set(fields[i], fields[i+1]); fields[i] == "Host" {
			r.Host = fields[i+1]
		}
	}
	res, err := d.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(text)}
}

var mark = regexp.MustCompile(`name="mark" value="([0-9a-f]+)"`)

// people are callers by their tokens.
type people map[string]*person

type person struct {
	name, tenant string
	may          map[transport.Action]limiter.Scope // a nil scope: all rules
}

func (p people) Identify(c transport.Credentials) (transport.Caller, error) {
	if len(c.Authorization) == 1 {
		if who := p[strings.TrimPrefix(c.Authorization[0], "Bearer ")]; who != nil {
			return who, nil
		}
	}
	return nil, fmt.Errorf("%w: nobody knows it", transport.ErrUnauthenticated)
}

func (p *person) Name() string   { return p.name }
func (p *person) Tenant() string { return p.tenant }
func (p *person) May(a transport.Action) (limiter.Scope, error) {
	if s, ok := p.may[a]; ok {
		return s, nil
	}
	return nil, fmt.Errorf("%w: %v", limiter.ErrForbidden, a)
}
func (p *person) Spend(int, int) error { return nil }
func (p *person) OpenStream() error    { return nil }
func (p *person) CloseStream()         {}

type only string

func (o only) Permits(rule string) bool { return rule == string(o) }

func staff() people {
	return people{
		"viewer": {name: "viewer", may: map[transport.Action]limiter.Scope{transport.ActionAdmin: nil,
			transport.ActionExplain: nil}},
		"watcher": {name: "watcher", may: map[transport.Action]limiter.Scope{transport.ActionAdmin: nil}},
		"narrow": {name: "narrow", may: map[transport.Action]limiter.Scope{transport.ActionAdmin: nil,
			transport.ActionExplain: only("api"), transport.ActionReset: only("api"), transport.ActionRule: only("api")}},
		"operator": {name: "operator", may: map[transport.Action]limiter.Scope{transport.ActionAdmin: nil,
			transport.ActionExplain: nil, transport.ActionOverride: nil, transport.ActionReset: nil}},
		"login": {name: "login", may: map[transport.Action]limiter.Scope{transport.ActionAdmin: nil,
			transport.ActionOverride: only("login")}},
		"bank": {name: "bank", tenant: "bank", may: map[transport.Action]limiter.Scope{transport.ActionAdmin: nil,
			transport.ActionOverride: nil, transport.ActionExplain: nil}},
		"client": {name: "client", may: map[transport.Action]limiter.Scope{transport.ActionCheck: nil}},
	}
}

// TestNothingWithoutPermission: whatever the path, one who may not is told nothing of what there is.
func TestNothingWithoutPermission(t *testing.T) {
	d := open(t, staff(), true)
	d.refuse(t, weir.Request{Path: "/login", User: "ada-the-secret"})
	for path, route := range d.Routes() {
		method := http.MethodGet
		if route.Post {
			method = http.MethodPost
		}
		for name, fields := range map[string][]string{"nobody": nil, "a stranger": {"Authorization", "Bearer x"},
			"a client": {"Authorization", "Bearer client"}, "a cookie": {"Cookie", "__Host-weir=00"}} {
			got := d.ask(t, method, path, "", fields...)
			if strings.HasPrefix(path, "/console.") || path == "/favicon.svg" {
				continue // they are no secret
			}
			if got.status != http.StatusUnauthorized && got.status != http.StatusForbidden {
				t.Errorf("%s %s of %s: %d", method, path, name, got.status)
			}
			for _, secret := range []string{"ada-the-secret", "login/", "3/minute", "n1"} {
				if strings.Contains(got.body, secret) {
					t.Errorf("%s of %s tells of %q", path, name, secret)
				}
			}
		}
	}
}

// TestViewersChangeNothing: one with the permission admin alone sees all and changes nothing.
func TestViewersChangeNothing(t *testing.T) {
	d := open(t, staff(), true)
	by := []string{"Authorization", "Bearer viewer", "Content-Type", "application/json"}
	for path, body := range map[string]string{
		"/v1/overrides/set":    `{"rule":"login","user":"ada","deny":true,"why":"x"}`,
		"/v1/overrides/remove": `{"rule":"login","user":"ada"}`,
	} {
		if got := d.ask(t, http.MethodPost, path, body, by...); got.status != http.StatusForbidden {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	page := d.ask(t, http.MethodGet, "/why?path=/login&user=ada", "", by[:2]...)
	m := mark.FindStringSubmatch(page.body)
	if page.status != http.StatusOK || m == nil || !strings.Contains(page.body, "disabled") {
		t.Fatalf("the page has no grey buttons: %d", page.status)
	}
	for _, path := range []string{"/act/override", "/act/remove", "/act/reset"} {
		v := url.Values{"mark": {m[1]}, "orule": {"login"}, "ouser": {"ada"}, "kind": {"deny"}, "why": {"x"},
			"path": {"/login"},
			"user": {"ada"}}
		if got := d.ask(t, http.MethodPost, path, v.Encode(), "Authorization", "Bearer viewer", "Content-Type",
			"application/x-www-form-urlencoded"); got.status < 400 {
			t.Errorf("%s: %d", path, got.status)
		}
	}
	if len(d.book.All()) != 0 {
		t.Error("there is an override")
	}
}

// TestScopes: the permission is for some rules, and an administrator with a tenant overrides and sees its own.
func TestScopes(t *testing.T) {
	d := open(t, staff(), true)
	set := func(who, body string) int {
		return d.ask(t, http.MethodPost, "/v1/overrides/set", body, "Authorization", "Bearer "+who, "Content-Type",
			"application/json").status
	}
	for _, c := range []struct {
		who, body string
		want      int
	}{
		{"login", `{"rule":"login","user":"ada","deny":true,"why":"x"}`, 200},
		{"login", `{"rule":"api","user":"ada","deny":true,"why":"x"}`, 403},
		{"bank", `{"rule":"api","user":"ada","deny":true,"why":"x"}`, 403},
		{"bank", `{"rule":"api","user":"ada","tenant":"shop","deny":true,"why":"x"}`, 403},
		{"bank", `{"rule":"api","user":"ada","tenant":"bank","deny":true,"why":"x"}`, 200},
	} {
		if got := set(c.who, c.body); got != c.want {
			t.Errorf("%s %s: %d, want %d", c.who, c.body, got, c.want)
		}
	}
	d.refuse(t, weir.Request{Path: "/login", User: "eve-of-shop", Tenant: "shop"})
	d.refuse(t, weir.Request{Path: "/login", User: "bob-of-bank", Tenant: "bank"})
	for _, path := range []string{"/v1/denials", "/refused.json", "/refused", "/v1/overrides",
		"/refused.json?tenant=shop", "/why.json?path=/login&user=eve-of-shop&tenant=shop"} {
		got := d.ask(t, http.MethodGet, path, "", "Authorization", "Bearer bank")
		if got.status != http.StatusOK || strings.Contains(got.body, "shop:eve") || strings.Contains(got.body,
			`"rule":"login","user":"ada"`) {
			t.Errorf("%s shows what is another tenant's: %d %.300s", path, got.status, got.body)
		}
	}
	if got := d.ask(t, http.MethodGet, "/v1/denials?tenant=shop", "", "Authorization", "Bearer bank"); got.status != 403 {
		t.Errorf("another tenant's denials: %d", got.status)
	}
	if got := d.ask(t, http.MethodGet, "/", "", "Authorization", "Bearer bank"); got.status != http.StatusSeeOther ||
		got.header.Get("Location") != "/refused" {
		t.Errorf("the first page of a tenant's administrator: %d", got.status)
	}
	if got := d.ask(t, http.MethodGet, "/refused", "", "Authorization", "Bearer bank"); strings.Contains(got.body,
		`href="/members"`) {
		t.Error("a tenant's administrator is offered pages that it may not see")
	}
	for _, path := range []string{"/v1/rules", "/v1/history?span=5m", "/now.json", "/members", "/members.json", "/rules",
		"/rules.json", "/stream?page=now", "/stream?page=members"} { // they have the rules of every tenant
		if got := d.ask(t, http.MethodGet, path, "", "Authorization", "Bearer bank"); got.status != 403 {
			t.Errorf("%s answers a tenant's administrator %d: %s", path, got.status, got.body)
		}
	}
}

// TestOtherSitesCannotAct: no page of another site makes a browser change something, or shows it in a frame.
func TestOtherSitesCannotAct(t *testing.T) {
	d := open(t, nil, false)
	page := d.ask(t, http.MethodGet, "/why?path=/login&user=ada", "")
	m := mark.FindStringSubmatch(page.body)
	if m == nil {
		t.Fatal("the page has no mark")
	}
	form := url.Values{"mark": {m[1]}, "orule": {"login"}, "ouser": {"ada"}, "kind": {"deny"}, "why": {"x"},
		"path": {"/login"},
		"user": {"ada"}}
	kind := []string{"Content-Type", "application/x-www-form-urlencoded"}
	for name, fields := range map[string][]string{
		"another origin": {"Origin", "https://evil.example"}, "another site": {"Sec-Fetch-Site", "cross-site"},
		"a link of another site": {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest",
			"document"},
		"another name": {"Host", "evil.example"}, "a browser that says nothing": {"User-Agent", "Mozilla/5.0"},
	} {
		if got := d.ask(t, http.MethodPost, "/act/override", form.Encode(), append(fields, kind...)...); got.status != 403 {
			t.Errorf("%s: %d", name, got.status)
		}
	}
	for name, bad := range map[string]string{"no mark": "", "another mark": strings.Repeat("0", 64)} {
		form := url.Values{"mark": {bad}, "orule": {"login"}, "ouser": {"ada"}, "kind": {"deny"}, "why": {"x"}}
		if got := d.ask(t, http.MethodPost, "/act/override", form.Encode(), kind...); got.status != 403 {
			t.Errorf("%s: %d", name, got.status)
		}
	}
	if len(d.book.All()) != 0 {
		t.Fatal("there is an override")
	}
	if got := d.ask(t, http.MethodPost, "/act/override", form.Encode(), kind...); got.status != http.StatusSeeOther ||
		len(d.book.Active(time.Now())) != 1 {
		t.Errorf("its own form is not taken: %d %s", got.status, got.body)
	}
	for name, fields := range map[string][]string{
		"a picture": {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"},
		"a frame":   {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"},
		"a script":  {"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"},
		"a name":    {"Host", "evil.example"},
	} {
		for _, path := range []string{"/", "/refused.json", "/stream?page=now"} {
			if got := d.ask(t, http.MethodGet, path, "", fields...); got.status != 403 {
				t.Errorf("%s of another site, %s: %d", name, path, got.status)
			}
		}
	}
	followed := []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}
	if got := d.ask(t, http.MethodGet, "/refused?user=ada", "", followed...); got.status != http.StatusOK {
		t.Errorf("a link that a colleague sent: %d", got.status)
	}
	csp := page.header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'",
		"form-action 'self'"} {
		if !strings.Contains(csp, want) || strings.Contains(csp, "unsafe") {
			t.Errorf("the policy %q lacks %s", csp, want)
		}
	}
}

// TestHostileNamesAreText: what came from requests is text on every page, and in each part that changes.
func TestHostileNamesAreText(t *testing.T) {
	d := open(t, nil, false)
	d.refuse(t, weir.Request{Path: "/login", User: hostile, IP: "192.0.2.1"})
	d.asked = func(q []byte) []console.Answered {
		if bytes.Contains(q, []byte(`"denials"`)) {
			text, _ := json.Marshal(denials.Found{Keys: []denials.Key{{Key: hostile, Rule: hostile, Limit: hostile,
				Tenant: hostile,
				Count:  5, Samples: []denials.Taken{{Time: time.Now(), Sample: denials.Sample{User: hostile, Path: hostile,
					Source: hostile}}}}}})
			return []console.Answered{{Member: "n2", Text: text}, {Member: "n3" + hostile, Why: hostile}}
		}
		return []console.Answered{{Member: "n2", Text: []byte(`{`)}}
	}
	q := url.QueryEscape(hostile)
	for _, path := range []string{"/", "/refused", "/refused?user=" + q, "/refused?rule=" + q, "/refused?since=" + q,
		"/why?path=/login&user=" + q, "/why?path=" + q + "&user=" + q + "&ip=" + q + "&attributes=" + q, "/why?rule=" + q,
		"/members",
		"/rules", "/?span=" + q, "/why?done=" + q + "&n=" + q, "/refused?" + q} {
		got := d.ask(t, http.MethodGet, path, "")
		for _, bad := range []string{"<script>alert", "<img src=x", "\u202e", "\u2066"} {
			text := got.body
			if bad[0] != '<' { // in fields and addresses it is as it was, elsewhere it is shown
				text = regexp.MustCompile(`(?s)"[^"]*"|<textarea.*?</textarea>`).ReplaceAllString(text, "")
			}
			if strings.Contains(text, bad) {
				t.Errorf("%.60s has %q", path, bad)
			}
		}
	}
}

// TestSignIn: a token is taken over TLS, and becomes a cookie that scripts and other sites do not get.
func TestSignIn(t *testing.T) {
	d := open(t, staff(), true)
	kind := []string{"Content-Type", "application/x-www-form-urlencoded"}
	for _, bad := range []string{"", "x", "client", strings.Repeat("x", 20<<10)} {
		got := d.ask(t, http.MethodPost, "/sign-in", url.Values{"token": {bad}}.Encode(), kind...)
		if got.status != http.StatusForbidden || got.header.Get("Set-Cookie") != "" {
			t.Errorf("token %.10q: %d, cookie %q", bad, got.status, got.header.Get("Set-Cookie"))
		}
	}
	got := d.ask(t, http.MethodPost, "/sign-in", url.Values{"token": {"operator"}}.Encode(), kind...)
	set := got.header.Get("Set-Cookie")
	for _, want := range []string{"__Host-weir=", "HttpOnly", "Secure", "SameSite=Strict", "Path=/"} {
		if got.status != http.StatusSeeOther || !strings.Contains(set, want) || strings.Contains(set, "operator") {
			t.Fatalf("status %d, cookie %q", got.status, set)
		}
	}
	cookie := []string{"Cookie", strings.Split(set, ";")[0]}
	page := d.ask(t, http.MethodGet, "/why?path=/login&user=ada", "", cookie...)
	if page.status != http.StatusOK || !strings.Contains(page.body, "operator") {
		t.Fatalf("signed in: %d", page.status)
	}
	m := mark.FindStringSubmatch(page.body)
	// Another's mark, or the cookie where there are no marks, does not do.
	if got := d.ask(t, http.MethodPost, "/v1/overrides/set", `{"rule":"login","user":"ada","deny":true,"why":"x"}`,
		append(cookie, "Content-Type", "application/json")...); got.status != http.StatusUnauthorized {
		t.Errorf("the cookie alone does for the API: %d", got.status)
	}
	if got := d.ask(t, http.MethodPost, "/sign-out", url.Values{"mark": {m[1]}}.Encode(), append(cookie,
		kind...)...); got.status !=
		http.StatusSeeOther {
		t.Errorf("sign out: %d", got.status)
	}
	if page := d.ask(t, http.MethodGet, "/", "", cookie...); page.status != http.StatusUnauthorized {
		t.Errorf("signed out: %d", page.status)
	}
	plain := open(t, staff(), false)
	got = plain.ask(t, http.MethodPost, "/sign-in", url.Values{"token": {"operator"}}.Encode(), kind...)
	if got.status != http.StatusForbidden || got.header.Get("Set-Cookie") != "" || !strings.Contains(got.body, "TLS") {
		t.Errorf("without TLS: %d, cookie %q", got.status, got.header.Get("Set-Cookie"))
	}
}

// TestOverridesAreSpread: what is set here is in force at once, told to others, in the audit, and what others tell is
// in force here.
func TestOverridesAreSpread(t *testing.T) {
	d := open(t, nil, false)
	kind := []string{"Content-Type", "application/json; charset=utf-8"}
	got := d.ask(t, http.MethodPost, "/v1/overrides/set",
		`{"rule":"api","user":"ada","limit":"1/minute","for":"1h","why":"too many"}`,
		kind...)
	if got.status != http.StatusOK || len(d.told) != 1 {
		t.Fatalf("%d %s, told %d", got.status, got.body, len(d.told))
	}
	ask := weir.Request{Path: "/api/x", User: "ada"}
	first, _ := d.node.Check(t.Context(), ask)
	second, err := d.node.Check(t.Context(), ask)
	if err != nil || !first.Allowed || second.Allowed || !second.Overridden || second.Rule != "api" {
		t.Errorf("it is not in force: %+v, %v", second, err)
	}
	if a := d.node.Answer(&ask, &second); !a.Overridden {
		t.Error("the answer does not say so")
	}
	if e, err := d.node.Explain(t.Context(), ask); err != nil || !e.Answer.Overridden {
		t.Errorf("the explanation does not say so: %v", err)
	}
	if told := d.audit.all(); len(told) != 1 || told[0].Action != "override" ||
		!strings.Contains(told[0].Subject, "ada") || !strings.Contains(told[0].Why, "too many") {
		t.Errorf("the audit has %+v", told)
	}
	other := open(t, nil, false)
	other.Overriding.Told("n1", d.told[0])
	other.Overriding.Told("n1", []byte("{"))
	other.Overriding.Told("n1", []byte(`{"kind":"overrides","entries":[{"rule":"api"}]}`))
	if len(other.book.Active(time.Now())) != 1 || len(other.told) != 1 {
		t.Errorf("the other has %+v, and told %d on", other.book.All(), len(other.told))
	}
	if other.Overriding.Told("n2", d.told[0]); len(other.told) != 1 {
		t.Error("what is not news is told on")
	}
	got = d.ask(t, http.MethodPost, "/v1/overrides/remove", `{"rule":"api","user":"ada"}`, kind...)
	other.Overriding.Told("n1", d.told[1])
	if got.status != http.StatusOK || len(other.book.Active(time.Now())) != 0 {
		t.Errorf("removed: %d, the other has %+v", got.status, other.book.All())
	}
	for name, body := range map[string]string{
		"no reason": `{"rule":"api","user":"ada","deny":true}`, "no kind": `{"rule":"api","user":"ada","why":"x"}`,
		"two kinds": `{"rule":"api","user":"ada","deny":true,"unlimited":true,"why":"x"}`,
		"no rule":   `{"rule":"x","user":"ada","deny":true,"why":"x"}`,
		"for ever":  `{"rule":"api","user":"ada","deny":true,"why":"x","for":"9999h"}`,
		"a limit":   `{"rule":"api","user":"ada","limit":"x","why":"x"}`,
		"unknown":   `{"rule":"api","user":"ada","deny":true,"why":"x","z":1}`,
		"two":       `{"rule":"api","user":"ada","deny":true,"why":"x"}{}`,
		"long": `{"rule":"api","user":"` + strings.Repeat("x",
			20<<10) + `"}`,
	} {
		if got := d.ask(t, http.MethodPost, "/v1/overrides/set", body, kind...); got.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	if got := d.ask(t, http.MethodPost, "/v1/overrides/set", `{"rule":"api","user":"ada","deny":true,"why":"x"}`,
		"Content-Type",
		"text/plain"); got.status != http.StatusBadRequest {
		t.Errorf("a form that a page can send: %d", got.status)
	}
}

// TestMissingMembersAreNamed: what a member alone knew is not there, and is said to be missing.
func TestMissingMembersAreNamed(t *testing.T) {
	d := open(t, nil, false)
	d.refuse(t, weir.Request{Path: "/login", User: "ada"})
	other := open(t, nil, false)
	other.refuse(t, weir.Request{Path: "/login", User: "ada"})
	d.asked = func(q []byte) []console.Answered {
		return []console.Answered{{Member: "n2", Text: other.Answer(q)}, {Member: "n3", Why: "it is dead"},
			{Member: "n4", Text: []byte("[]")}}
	}
	got := d.ask(t, http.MethodGet, "/v1/denials?user=ada", "")
	var out console.Denied
	if err := json.Unmarshal([]byte(got.body), &out); err != nil {
		t.Fatal(err, got.body)
	}
	if len(out.Keys) != 1 || out.Keys[0].Count != 2 || len(out.Members) != 2 || len(out.Missing) != 2 {
		t.Errorf("gathered: %s", got.body)
	}
	if page := d.ask(t, http.MethodGet, "/refused?user=ada", ""); !strings.Contains(page.body, "n3 (it is dead)") {
		t.Error("the page does not name who is missing")
	}
}

// TestStreamsAreBounded: watchers are counted, and beyond the bound refused; each gets what there is.
func TestStreamsAreBounded(t *testing.T) {
	d := open(t, staff(), true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	refused, opened := 0, 0
	for i := range 80 {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprint(d.url, "/stream?page=members&x=", i), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer watcher")
		res, err := d.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		switch res.StatusCode {
		case http.StatusOK:
			opened++
			if i == 0 {
				buf := make([]byte, 4096)
				n, err := io.ReadAtLeast(res.Body, buf, 20)
				if err != nil || !strings.Contains(string(buf[:n]), "data: ") {
					t.Errorf("the stream begins with %q, %v", buf[:n], err)
				}
			}
		case http.StatusTooManyRequests:
			refused++
		default:
			t.Fatalf("status %d", res.StatusCode)
		}
	}
	if opened != 16 || refused != 64 {
		t.Errorf("%d streams are open, %d refused", opened, refused)
	}
	// Another sees pages of its own still, up to its own bound.
	for i := range 17 {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprint(d.url, "/stream?page=refused&user=", i), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer operator")
		res, err := d.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		if (res.StatusCode == http.StatusOK) != (i < 16) {
			t.Errorf("page %d of another: %d", i, res.StatusCode)
		}
	}
	cancel()
	for end := time.Now().Add(time.Minute); ; { // they are given back
		if d.Watchers() == 0 {
			break
		} else if time.Now().After(end) {
			t.Fatal(errors.New("the places of watchers are not given back"))
		}
	}
}

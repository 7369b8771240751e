package console

import (
	"bytes"
	"context"
	"crypto/hmac"
	"embed"
	"errors"
	"fmt"
	"hash/fnv"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/transport"
)

//go:embed web
var web embed.FS

type pageOf struct {
	name, path, title, word string
	sections                []string // that change while one looks
	command                 string   // that answers the same in a terminal
	params                  []string // of its address
	all                     bool     // it has what is of all tenants
}

// pages returns those that there are, in their order.
func pages() []pageOf {
	return []pageOf{
		{"now", "/", "Is anything wrong?", "Now", []string{"numbers", "chart", "byrule"}, "weir top", []string{"span"}, true},
		{"refused", "/refused", "Who is being refused?", "Refused", []string{"refusals"}, "weir denials",
			[]string{"user", "rule", "tenant", "since", "until"}, false},
		{"why", "/why", "Why may someone not?", "Why", []string{"answer"}, "weir check --explain",
			[]string{"path", "method", "user", "ip", "group", "rule", "tenant", "attributes"}, false},
		{"rules", "/rules", "Which rules are in force?", "Rules", []string{"versions"}, "weir rules", nil, true},
		{"members", "/members", "Who is in the cluster?", "Members", []string{"ringbox", "table", "matrix", "traffic"},
			"weir members", nil, true},
	}
}

// maxParam bounds a parameter of a page.
const maxParam = 8 << 10

// asked returns the parameters of a request that the page knows, each once and of a bounded length.
func (p *pageOf) asked(r *http.Request) (url.Values, error) {
	out, all := url.Values{}, r.URL.Query()
	for _, name := range p.params {
		switch values := all[name]; {
		case len(values) > 1:
			return nil, invalid("parameter %s is given %d times", name, len(values))
		case len(values) == 1 && len(values[0]) > maxParam:
			return nil, invalid("parameter %s has %d bytes: at most %d are possible", name, len(values[0]), maxParam)
		case len(values) == 1 && values[0] != "":
			out.Set(name, values[0])
		}
	}
	return out, nil
}

func pageNamed(name string) pageOf {
	for _, p := range pages() {
		if p.name == name {
			return p
		}
	}
	return pageOf{name: name, path: signInPath, title: "Who are you?", word: "Sign in"}
}

type shown struct {
	*look
	Page    pageView
	Pages   []pageView
	Command string
	Mark    string
	Name    string
	Session bool
	TLS     bool
	Problem string
	Flash   string
	Query   string
	Version string
	// MayReset and MayOverride are why the caller may not; empty if it may.
	MayReset, MayOverride string
}

type pageView struct {
	Name, Path, Title, Word string
	Here                    bool
}

// JSON is the address of the page's data.
func (s *shown) JSON() string {
	to := "/" + s.Page.Name + ".json"
	if s.Query != "" {
		to += "?" + s.Query
	}
	return to
}

// version names the files of the page, so that a browser asks for them again when they have changed.
func version() string {
	h := fnv.New64a()
	for _, name := range []string{"web/console.css", "web/console.js"} {
		data, _ := web.ReadFile(name)
		_, _ = h.Write(data)
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

func templates() *template.Template {
	return template.Must(template.New("console").Funcs(template.FuncMap{
		"group": func(v any) string {
			switch n := v.(type) {
			case int:
				return group(uint64(max(0, n)))
			case uint64:
				return group(n)
			}
			return fmt.Sprint(v)
		},
		"short": short, "percent": percent, "class": stateClass, "plain": plain, "missing": missingText,
		"clock": func(t time.Time) string { return t.UTC().Format("15:04:05") },
		"iso":   func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"day":   func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
		"until": func(t, now time.Time) string { return long(t.Sub(now)) },
		"join":  strings.Join, "query": newQuery,
	}).ParseFS(web, "web/*.html"))
}

// newQuery encodes pairs of names and values, without those that are empty.
func newQuery(pairs ...string) string {
	v := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	return v.Encode()
}

// plain shows a text that came from a request: characters that hide, or change the direction of what stands beside
// them, are written as numbers.
func plain(s string) string {
	const most = 300
	var b strings.Builder
	for i, r := range s {
		if i > most {
			b.WriteString("…")
			break
		}
		switch {
		case r < ' ' || r == 0x7f, r >= 0x80 && r < 0xa0, r >= 0x200b && r <= 0x200f, r >= 0x2028 && r <= 0x202e,
			r >= 0x2060 && r <= 0x206f, r == 0xfeff, r == 0x61c, r == 0xad, r >= 0xe0000 && r <= 0xe0fff, r == 0xfffd:
			fmt.Fprintf(&b, "\\u{%x}", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// security sets the fields of every answer of a page: nothing of another origin, nothing inline, no frame.
func security(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "+
		"img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// site is the console's pages, for people who look with a browser. It is safe for concurrent use.
type site struct {
	console   *Console
	comparing sync.Mutex // held while a file is compared
	sessions  *sessions
	feeds     feeds
	templates *template.Template
	version   string // of the style sheet and the script
}

func (s *site) routes(to map[string]transport.AdminRoute) {
	for _, p := range pages() {
		to[p.path] = transport.AdminRoute{Page: true, Action: "console", Serve: s.servePage(p, false)}
		to["/"+p.name+".json"] = transport.AdminRoute{Page: true, Action: "console", Serve: s.servePage(p, true)}
	}
	to["/stream"] = transport.AdminRoute{Page: true, Action: "console", Serve: s.serveStream}
	to["/console.css"] = transport.AdminRoute{Page: true, Action: "console", Serve: s.serveFile("console.css",
		"text/css; charset=utf-8")}
	to["/favicon.svg"] = transport.AdminRoute{Page: true, Action: "console",
		Serve: s.serveFile("favicon.svg", "image/svg+xml")}
	to["/console.js"] = transport.AdminRoute{Page: true, Action: "console", Serve: s.serveFile("console.js",
		"text/javascript; charset=utf-8")}
	to[signInPath] = transport.AdminRoute{Page: true, Post: true, Action: "sign in", Serve: s.serveSignIn}
	to["/sign-out"] = transport.AdminRoute{Page: true, Post: true, Action: "sign out", Serve: s.serveSignOut}
	for path, serve := range map[string]func(http.ResponseWriter, *http.Request, *transport.AdminCaller){
		"/act/reset": s.actReset, "/act/override": s.actOverride, "/act/remove": s.actRemove,
	} {
		to[path] = transport.AdminRoute{Page: true, Post: true, Changes: true, Action: strings.TrimPrefix(path, "/act/"),
			Serve: s.act(serve)}
	}
	to["/rules/compare"] = transport.AdminRoute{Page: true, Post: true, Action: "compare", Serve: s.serveCompare}
}

// serveFile serves the style sheet and the script, which are no secret.
func (s *site) serveFile(name, kind string) func(http.ResponseWriter, *http.Request, transport.AdminCaller) {
	data, _ := web.ReadFile("web/" + name)
	return func(w http.ResponseWriter, r *http.Request, _ transport.AdminCaller) {
		security(w.Header())
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Cache-Control", "max-age=31536000, immutable")
		_, _ = w.Write(data)
	}
}

func (s *site) fill(ctx context.Context, p pageOf, q url.Values, by *transport.AdminCaller) (*look, error) {
	l := &look{At: s.console.config.Now().UTC(), Frame: s.console.frame(by.Tenant())}
	var err error
	switch p.name {
	case "now":
		l.Now, err = s.console.lookNow(ctx, q)
	case "refused":
		l.Refused, err = s.console.lookRefused(ctx, q, by.Tenant())
	case "why":
		l.Why, err = s.console.lookWhy(ctx, q, by)
	case "rules":
		l.Rules, err = s.console.lookRules(ctx)
	case "members":
		l.Members, err = s.console.lookMembers(ctx)
	}
	return l, err
}

// servePage serves a page, or the same as JSON.
func (s *site) servePage(p pageOf, asJSON bool) func(http.ResponseWriter, *http.Request, transport.AdminCaller) {
	return func(w http.ResponseWriter, r *http.Request, by transport.AdminCaller) {
		if asJSON {
			s.serveJSON(w, r, &by, p)
			return
		}
		if by.Err != nil {
			s.page(w, r, &by, "sign-in", statusOf(by.Err), by.Err.Error())
			return
		}
		if err := p.mayLook(&by); err != nil {
			if p.path == "/" { // the first page that a tenant's administrator has
				seeOther(w, "/refused")
				return
			}
			s.page(w, r, &by, "sign-in", http.StatusForbidden, err.Error())
			return
		}
		q, err := p.asked(r)
		var l *look
		if err == nil {
			l, err = s.fill(r.Context(), p, q, &by)
		}
		x := s.shownOf(r, &by, p, l)
		x.Query = q.Encode()
		if err != nil {
			x.Problem, x.look = err.Error(), &look{At: s.console.config.Now().UTC(), Frame: s.console.frame(by.Tenant())}
			s.write(w, http.StatusBadRequest, "problem", x)
			return
		}
		s.write(w, http.StatusOK, p.name, x)
	}
}

// mayLook returns why a caller may not see a page, nil if it may: what is of all tenants is for administrators of all.
func (p *pageOf) mayLook(by *transport.AdminCaller) error {
	if p.all {
		return by.MayAll()
	}
	return nil
}

func (s *site) serveJSON(w http.ResponseWriter, r *http.Request, by *transport.AdminCaller, p pageOf) {
	err := by.Err
	if err == nil {
		err = p.mayLook(by)
	}
	var q url.Values
	if err == nil {
		q, err = p.asked(r)
	}
	var l *look
	if err == nil {
		l, err = s.fill(r.Context(), p, q, by)
	}
	if err != nil {
		by.Fail(err)
		return
	}
	security(w.Header())
	writeJSON(w, l)
}

func (s *site) shownOf(r *http.Request, by *transport.AdminCaller, p pageOf, l *look) *shown {
	out := &shown{look: l, Command: p.command, Mark: s.mark(r, by), Name: by.Name(), Session: cookie(r) != "",
		TLS: r.TLS != nil, Version: s.version, Flash: s.flash(r, by)}
	for _, x := range pages() {
		if x.mayLook(by) == nil {
			out.Pages = append(out.Pages, pageView{x.name, x.path, x.title, x.word, x.name == p.name})
		}
	}
	out.Page = pageView{p.name, p.path, p.title, p.word, true}
	if l != nil && l.Why != nil && l.Why.Answer != nil {
		out.MayReset, out.MayOverride = whyNot(by.May(transport.ActionReset, l.Why.Answer.Rule)),
			whyNot(by.May(transport.ActionOverride, l.Why.Answer.Rule))
	}
	return out
}

func whyNot(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// said returns the mark of an address that says what was done: no link of someone else says so.
func (s *site) said(r *http.Request, by *transport.AdminCaller, done, n string) string {
	return s.sessions.signed("done", cookie(r), by.Name(), done, n)
}

// flash says what was done, by a word and a number in the address.
func (s *site) flash(r *http.Request, by *transport.AdminCaller) string {
	get := r.URL.Query().Get
	done, n := get("done"), get("n")
	if !hmac.Equal([]byte(get("said")), []byte(s.said(r, by, done, n))) {
		return ""
	}
	switch done {
	case "reset":
		if n == "0" {
			return "There was no counter to reset."
		}
		return "Reset: " + n + " counters deleted."
	case "set":
		if s.console.config.Tell == nil {
			return "The override is " + onlyHere + "."
		}
		return "The override is in force on all members in reach."
	case "removed":
		return "The override has ended."
	}
	return ""
}

// page shows the page for signing in, or one that says what is wrong.
func (s *site) page(w http.ResponseWriter, r *http.Request, by *transport.AdminCaller, name string, status int,
	problem string) {
	c := &s.console.config
	x := s.shownOf(r, by, pageNamed(name), &look{At: c.Now().UTC(), Frame: frame{Cluster: c.Cluster}})
	x.Problem = problem
	s.write(w, status, name, x)
}

func (s *site) write(w http.ResponseWriter, status int, name string, x *shown) {
	var b bytes.Buffer
	if err := s.templates.ExecuteTemplate(&b, name, x); err != nil {
		s.console.config.Log.Error("a page cannot be made", "page", name, "error", err)
		http.Error(w, "the page cannot be made: the log says why", http.StatusInternalServerError)
		return
	}
	security(w.Header())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.Copy(w, &b)
}

// statusOf returns the status for one who may not see a page.
func statusOf(err error) int {
	if errors.Is(err, frontend.ErrUnauthenticated) {
		return http.StatusUnauthorized
	}
	return http.StatusForbidden
}

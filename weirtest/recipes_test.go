package weirtest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/middleware/httplimit"
	"github.com/weirlimit/weir/weirtest"
)

// recipe returns the file of a recipe of docs/rules.md.
func recipe(t *testing.T, title string) string {
	t.Helper()
	page, err := os.ReadFile("../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "\n### "+title+"\n")
	section, _, _ := strings.Cut(rest, "\n### ")
	_, file, ok2 := strings.Cut(section, "```yaml\n")
	file, _, ok3 := strings.Cut(file, "```")
	if _, link, linked := strings.Cut(section, "](../examples/"); !ok2 && linked { // it stands there
		name, _, _ := strings.Cut(link, ")")
		text, err := os.ReadFile("../examples/" + name)
		file, ok2, ok3 = string(text), err == nil, true
	}
	if !ok || !ok2 || !ok3 {
		t.Fatalf("the page has no recipe %q", title)
	}
	return file
}

// kitchen is a node with the file of a recipe.
type kitchen struct {
	*weirtest.Node
	t *testing.T
}

func cook(t *testing.T, title string) kitchen {
	t.Helper()
	return kitchen{weirtest.New(t, recipe(t, title)), t}
}

// admits returns how many of three such requests are admitted.
func (k kitchen) admits(r weir.Request) (admitted int) {
	k.t.Helper()
	for range 3 {
		d, err := k.Check(k.t.Context(), r)
		if err != nil {
			k.t.Fatal(err)
		}
		if d.Allowed {
			admitted++
		}
	}
	return admitted
}

// expect compares numbers of admitted requests.
func (k kitchen) expect(what string, got, want int) {
	k.t.Helper()
	if got != want {
		k.t.Errorf("%s: %d admitted, want %d", what, got, want)
	}
}

func with(name, value string) map[string]string { return map[string]string{name: value} }

// The recipe holds behind the middleware, too, which passes addresses in its own form.
func TestRecipeInternalBehindHTTP(t *testing.T) {
	k := cook(t, "Internal networks are free")
	limited, err := httplimit.New(k.Node)
	if err != nil {
		t.Fatal(err)
	}
	handler := limited(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for remote, want := range map[string]int{
		"[::1]:4711": 100, "127.0.0.1:4711": 100, "[fd12::7]:1": 100, "172.20.0.9:1": 100, "[::ffff:10.1.1.1]:1": 100,
		"[2001:db8::7]:1": 60, "[::2]:1": 60, "192.0.2.1:1": 60,
	} {
		admitted := 0
		for range 100 {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr = remote
			w := httptest.NewRecorder()
			if handler.ServeHTTP(w, r); w.Code == http.StatusOK {
				admitted++
			}
		}
		k.expect(remote, admitted, want)
	}
}

// Attempts that succeed are canceled and leave nothing; those that fail count by address and by name.
func TestRecipeOnlyFailuresCount(t *testing.T) {
	k := cook(t, "Login, only failures count")
	attempt := func(id, ip, user string, failed bool) bool {
		t.Helper()
		r := weir.Request{Path: "/login", Method: "POST", IP: ip, User: user, ID: id, Hold: 20 * time.Second}
		d, err := k.Check(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if !d.Allowed {
			return false
		}
		used := int64(0)
		if failed {
			used = 1
		}
		if _, err := k.Settle(t.Context(), r, used); err != nil {
			t.Fatal(err)
		}
		return true
	}
	for i := range 30 {
		if !attempt(fmt.Sprint("good", i), "192.0.2.1", "ada", false) {
			t.Fatalf("login %d was denied, though none failed", i)
		}
	}
	failures := 0
	for i := range 9 {
		if attempt(fmt.Sprint("bad", i), "192.0.2.1", fmt.Sprint("user", i), true) {
			failures++
		}
	}
	k.expect("failures of an address", failures, 5)
	failures = 0
	for i := range 30 {
		if attempt(fmt.Sprint("name", i), fmt.Sprint("198.51.100.", i), []string{"eve", "Eve "}[i%2], true) {
			failures++
		}
	}
	k.expect("failures of a name", failures, 20)
}

// Two counters of one answer are settled each with its own number.
func TestRecipeTokensAndMoney(t *testing.T) {
	k := cook(t, "Tokens and money of a language model")
	r := weir.Request{Path: "/chat", User: "ada", ID: "answer-7", Hold: time.Minute,
		Attributes: map[string]string{"tokens": "663", "cents": "11"}}
	if d, err := k.Check(t.Context(), r); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	used := map[string]int64{"tokens": 412, "cents": 7}
	if a, err := k.Settle(t.Context(), r, 0, weir.Actual(used)); err != nil || a.State != weir.AmendDone {
		t.Fatalf("%+v, %v", a, err)
	}
	d, err := k.Peek(t.Context(), weir.Request{Path: "/chat", User: "ada"})
	if err != nil || d.Len() != 2 || d.Limit(0).Remaining != 40000-412 || d.Limit(1).Remaining != 100000-7 {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestRecipeOwnZone(t *testing.T) {
	var heard []string
	u := &weir.Observer{Unzoned: func(rule string, missing bool) { heard = append(heard, fmt.Sprint(rule, " ", missing)) }}
	k := kitchen{weirtest.Open(t, weir.Config{Rules: []byte(recipe(t, "A partner's own time zone")), Observer: u}), t}
	of := func(partner, zone string) weir.Request {
		r := weir.Request{Path: "/x", Attributes: with("partner", partner), Cost: weir.Units(5000)}
		if zone != "" {
			r.Attributes["tz"] = zone
		}
		return r
	}
	for _, r := range []weir.Request{of("t", "Asia/Tokyo"), of("b", "Europe/Berlin"), of("n", ""), of("x", "Mars/Base")} {
		k.expect("a day", k.admits(r), 2)
	}
	if want := "[n true n true n true x false x false x false]"; fmt.Sprint(
		heard) != strings.ReplaceAll(strings.ReplaceAll(want, "n ", "partners "), "x ", "partners ") {
		t.Errorf("observed %v", heard)
	}
	k.Advance(3 * time.Hour) // midnight in Tokyo
	k.expect("Tokyo", k.admits(of("t", "Asia/Tokyo")), 2)
	k.expect("Berlin", k.admits(of("b", "Europe/Berlin")), 0)
	k.expect("moved to Berlin", k.admits(of("t", "Europe/Berlin")), 0)
	k.Advance(8 * time.Hour)
	for _, r := range []weir.Request{of("b", "Europe/Berlin"), of("n", ""), of("x", "Mars/Base")} {
		k.expect("a day of Berlin", k.admits(r), 2)
	}
}

// The number of a plan is in the answer, and operators hear of requests that have none.
func TestPlans(t *testing.T) {
	var heard []string
	u := &weir.Observer{
		Unlisted: func(rule string, missing bool) { heard = append(heard, fmt.Sprint(rule, " ", missing)) },
		Unzoned:  func(rule string, _ bool) { t.Errorf("rule %s has no zone", rule) },
	}
	k := kitchen{weirtest.Open(t, weir.Config{Observer: u, Rules: []byte(`rules:
- {name: api, key: [user], limits: [{limit: {by: "attr:plan", of: {pro: 3/minute}, else: 1/minute}}]}
`)}), t}
	for plan, want := range map[string]uint64{"pro": 3, "": 1, "gold": 1} {
		d, err := k.Peek(t.Context(), weir.Request{Path: "/", User: "ada", Attributes: with("plan", plan)})
		if err != nil || d.Limit(0).Limit.Limit() != want {
			t.Errorf("plan %q: %+v, %v", plan, d, err)
		}
	}
	if slices.Sort(heard); !slices.Equal(heard, []string{"api false", "api true"}) {
		t.Errorf("observed %v", heard)
	}
}

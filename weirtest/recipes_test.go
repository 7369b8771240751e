package weirtest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
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
	_, rest, ok2 := strings.Cut(rest, "```yaml\n")
	file, _, ok3 := strings.Cut(rest, "```")
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

// admits returns how many of n such requests are admitted.
func (k kitchen) admits(n int, r weir.Request) (admitted int) {
	k.t.Helper()
	for range n {
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

func TestRecipePerKey(t *testing.T) {
	k := cook(t, "Per API key, with bursts")
	a, b := weir.Request{IP: "192.0.2.1", Attributes: with("api_key", "a")}, weir.Request{IP: "192.0.2.1", Attributes: with("api_key", "b")}
	k.expect("a burst", k.admits(50, a), 20)
	k.expect("another key", k.admits(50, b), 20)
	k.expect("no key", k.admits(50, weir.Request{IP: "192.0.2.1"}), 10)
	total := 0
	for range 60 {
		k.Advance(time.Second)
		total += k.admits(5, a)
	}
	k.expect("a minute", total, 100)
}

func TestRecipeLogin(t *testing.T) {
	k := cook(t, "Login by address and by name")
	try := func(ip, user string) weir.Request {
		return weir.Request{Path: "/login", Method: "POST", IP: ip, User: user}
	}
	k.expect("ten attempts of an address", k.admits(10, try("192.0.2.1", "")), 10)
	for i := range 10 {
		k.expect("a name from many addresses", k.admits(1, try(fmt.Sprint("198.51.100.", i), "ada")), 1)
	}
	k.expect("the address, another name", k.admits(1, try("192.0.2.1", "bob")), 0)
	k.expect("the name, another address, with a slash", k.admits(1, weir.Request{Path: "/login/", Method: "POST", IP: "203.0.113.5", User: "ada"}), 0)
	k.expect("looking at the form", k.admits(20, weir.Request{Path: "/login", Method: "GET", IP: "192.0.2.1"}), 20)
	k.Advance(14 * time.Minute)
	k.expect("after 14 minutes", k.admits(1, try("192.0.2.1", "")), 0)
	k.Advance(time.Minute)
	k.expect("after 15 minutes", k.admits(1, try("192.0.2.1", "")), 1)
}

func TestRecipeUnits(t *testing.T) {
	k := cook(t, "Units per customer, with costs by endpoint")
	r := func(method, path string) weir.Request {
		return weir.Request{Method: method, Path: path, Attributes: with("customer", "c")}
	}
	k.expect("exports", k.admits(19_998, r("POST", "/export/all")), 19_998) // 999,900
	k.expect("writes", k.admits(19, r("PUT", "/towns/1")), 19)              // 999,995
	k.expect("reads", k.admits(10, r("GET", "/towns/1")), 5)
	k.expect("another customer", k.admits(10, weir.Request{Attributes: with("customer", "d")}), 10)
	k.Advance(30*24*time.Hour - time.Second)
	k.expect("within 30 days", k.admits(1, r("GET", "/towns/1")), 0)
	k.Advance(time.Second)
	k.expect("after 30 days", k.admits(1, r("GET", "/towns/1")), 1)
}

func TestRecipeInternal(t *testing.T) {
	k := cook(t, "Internal networks are free")
	for _, ip := range []string{"10.1.2.3", "192.168.7.7", "172.16.0.1", "172.31.255.255", "fd12::/64", "fd12::1", "127.0.0.1", "127.0.1.1", "::1", "::ffff:10.0.0.1"} {
		k.expect(ip, k.admits(100, weir.Request{IP: ip}), 100)
	}
	for _, ip := range []string{"11.1.2.3", "172.32.0.1", "2001:db8::/64", ""} {
		k.expect(ip, k.admits(100, weir.Request{IP: ip}), 60)
	}
}

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

func TestRecipeShadow(t *testing.T) {
	k := cook(t, "A new limit in the shadow of the old one")
	k.expect("the rule in force decides", k.admits(100, weir.Request{User: "ada"}), 60)
}

func TestRecipeTiers(t *testing.T) {
	k := cook(t, "Tiers by group")
	k.expect("staff", k.admits(200, weir.Request{User: "a", Group: "staff"}), 200)
	k.expect("gold", k.admits(200, weir.Request{User: "a", Group: "gold"}), 100)
	k.expect("everyone", k.admits(200, weir.Request{User: "a"}), 5)
}

func TestRecipeTenants(t *testing.T) {
	k := cook(t, "Per tenant and per user at once")
	r := func(tenant, user string) weir.Request {
		return weir.Request{User: user, Attributes: with("tenant", tenant)}
	}
	total := 0
	for i := range 12 {
		total += k.admits(150, r("t", fmt.Sprint("u", i)))
	}
	k.expect("a tenant's users", total, 1000)
	k.expect("a user of another tenant, of the same name", k.admits(150, r("v", "u0")), 100)
}

func TestRecipeCeiling(t *testing.T) {
	k := cook(t, "A ceiling over everything")
	total := 0
	for i := range 600 {
		total += k.admits(11, weir.Request{User: fmt.Sprint("u", i)})
	}
	k.expect("all users in a second", total, 5000)
}

func TestRecipeTokens(t *testing.T) {
	k := cook(t, "Tokens per minute and per 30 days")
	r := func(user, tokens string) weir.Request {
		return weir.Request{Path: "/v1/complete", User: user, Attributes: with("tokens", tokens)}
	}
	k.expect("1000 each", k.admits(100, r("a", "1000")), 40)
	k.expect("no number", k.admits(100, r("b", "")), 80)
	k.expect("negative", k.admits(100, r("c", "-5")), 5)
	total := 0
	for range 200 {
		total += k.admits(5, r("d", "8000"))
		k.Advance(2 * time.Minute)
	}
	k.expect("30 days", total, 625)
}

// unzoned notes what a ZoneObserver hears.
type unzoned struct {
	weir.Observer
	heard []string
}

func (u *unzoned) Checked(int, string, limiter.Source, bool, bool) {}
func (u *unzoned) RulesSet(uint64, error)                          {}
func (u *unzoned) Unzoned(rule string, missing bool) {
	u.heard = append(u.heard, fmt.Sprint(rule, " ", missing))
}

func TestRecipeOwnZone(t *testing.T) {
	u := &unzoned{}
	k := kitchen{weirtest.Open(t, weir.Config{Rules: []byte(recipe(t, "A partner's own time zone")), Observer: u}), t}
	of := func(partner, zone string) weir.Request {
		r := weir.Request{Path: "/x", Attributes: with("partner", partner), Cost: weir.Units(5000)}
		if zone != "" {
			r.Attributes["tz"] = zone
		}
		return r
	}
	for _, r := range []weir.Request{of("t", "Asia/Tokyo"), of("b", "Europe/Berlin"), of("n", ""), of("x", "Mars/Base")} {
		k.expect("a day", k.admits(3, r), 2)
	}
	if want := "[n true n true n true x false x false x false]"; fmt.Sprint(u.heard) != strings.ReplaceAll(strings.ReplaceAll(want, "n ", "partners "), "x ", "partners ") {
		t.Errorf("observed %v", u.heard)
	}
	k.Advance(3 * time.Hour) // midnight in Tokyo
	k.expect("Tokyo", k.admits(3, of("t", "Asia/Tokyo")), 2)
	k.expect("Berlin", k.admits(3, of("b", "Europe/Berlin")), 0)
	k.expect("moved to Berlin", k.admits(3, of("t", "Europe/Berlin")), 0)
	k.Advance(8 * time.Hour)
	for _, r := range []weir.Request{of("b", "Europe/Berlin"), of("n", ""), of("x", "Mars/Base")} {
		k.expect("a day of Berlin", k.admits(3, r), 2)
	}
}

package cluster_test

import (
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/rules"
)

// asking is a step of a story: some requests of one kind, and how many of them are admitted.
type asking struct {
	after   time.Duration                // the clock moves by this before the first request
	every   time.Duration                // and by this before each
	n, want int                          // how many requests there are, and how many are admitted
	r       weir.Request                 // what is asked
	vary    func(i int, r *weir.Request) // changes request i; nil: they are alike
	by      string                       // the limit that denies the last one; empty: it is admitted
	wait    time.Duration                // which tells it to wait so long; 0: any wait
	shadow  int                          // so many are admitted that a shadow rule would have denied
}

// story is a rules file, and what becomes of requests under it.
type story struct {
	file  string
	begin time.Time // the zero time: 5 January of a year that is no leap year, at 12:00 UTC
	steps []asking
}

// tell asks what a story asks.
func (w *seedWorld) tell(t *testing.T, steps []asking) {
	t.Helper()
	for i, s := range steps {
		w.at.forward(s.after)
		admitted, shadow := 0, 0
		var last *weir.Decision
		for j := range s.n {
			w.at.forward(s.every)
			r := s.r
			if s.vary != nil {
				s.vary(j, &r)
			}
			d := check(t, w.node(), r)
			if d.Source.ByPolicy() || d.Source == limiter.SourceShare {
				t.Fatalf("step %d, request %d: %v decided", i+1, j+1, d.Source)
			}
			if last = d; d.Allowed {
				admitted++
				if d.ShadowDenied {
					shadow++
				}
			}
		}
		if admitted != s.want || shadow != s.shadow {
			t.Errorf("step %d, %+v: %d of %d were admitted, %d against a shadow rule; want %d and %d", i+1, s.r, admitted, s.n,
				shadow, s.want, s.shadow)
		}
		by := ""
		if !last.Allowed {
			by = last.BlockedBy().FullName()
		}
		if by != s.by || s.wait != 0 && last.RetryAfter != s.wait {
			t.Errorf("step %d, %+v: the last is denied by %q for %v; want %q and %v", i+1, s.r, by, last.RetryAfter, s.by,
				s.wait)
		}
	}
}

// tellAll tells stories in each mode: in memory, with three nodes that are asked in turn,
// and with Redis.
func tellAll(t *testing.T, stories map[string]story) {
	for mode, nodes := range seedModes("version: 1\nrules: [{name: none, unlimited: true}]\n") {
		t.Run(mode, func(t *testing.T) {
			w := &seedWorld{at: new(seedClock)}
			begin := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
			w.at.set(begin)
			w.nodes = nodes(t, w.at)
			for _, name := range slices.Sorted(maps.Keys(stories)) {
				t.Run(name, func(t *testing.T) {
					s := stories[name]
					begin = begin.AddDate(4, 0, 0) // nothing of another story is left
					if w.at.set(begin); !s.begin.IsZero() {
						w.at.set(s.begin)
					}
					for _, n := range w.nodes {
						if err := n.SetRules([]byte(s.file)); err != nil {
							t.Fatal(err)
						}
					}
					w.tell(t, s.steps)
				})
			}
		})
	}
}

// attributes returns a request with one attribute.
func attributes(name, value string) weir.Request {
	return weir.Request{Attributes: map[string]string{name: value}}
}

// ofCustomer returns a request of a customer.
func ofCustomer(method, path string, cost int64) weir.Request {
	r := attributes("customer", "acme")
	r.Method, r.Path = method, path
	if cost > 0 {
		r.Cost = weir.Units(cost)
	}
	return r
}

// login returns an attempt to log in.
func login(ip, user string) weir.Request {
	return weir.Request{Path: "/login", Method: "POST", IP: ip, User: user}
}

// wishes are what the files in examples are for.
func wishes() map[string][]asking {
	a, b := attributes("api_key", "a"), attributes("api_key", "b")
	a.IP, b.IP = "192.0.2.1", "192.0.2.1"
	member := func(org, team, user string) weir.Request {
		return weir.Request{Path: "/api/x", User: user, Attributes: map[string]string{"org": org, "team": team}}
	}
	each := func(users ...string) func(int, *weir.Request) { // in turn
		return func(i int, r *weir.Request) { r.User = users[i%len(users)] }
	}
	customer := func(user, plan string) weir.Request {
		r := weir.Request{Path: "/api/x", User: user}
		if plan != "" {
			r.Attributes = map[string]string{"plan": plan}
		}
		return r
	}
	team := func(team, user string) weir.Request {
		return weir.Request{Path: "/v1/x", User: user, Cost: weir.Units(100), Attributes: map[string]string{"team": team}}
	}
	job := func(group string, cost int64) weir.Request {
		return weir.Request{Path: "/v1/x", Group: group, Cost: weir.Units(cost),
			Attributes: map[string]string{"customer": "acme"}}
	}
	attempt := func(ip, user string) weir.Request {
		return weir.Request{Path: "/login", Method: "POST", IP: ip, User: user}
	}
	spent := func(tokens, cents string) weir.Request {
		return weir.Request{Path: "/chat", User: "ada", Attributes: map[string]string{"tokens": tokens, "cents": cents}}
	}
	delivery := func(user string) weir.Request {
		return weir.Request{Path: "/webhooks/7", User: user, Hold: 10 * time.Second}
	}
	return map[string][]asking{
		"budgets.yaml": {
			{n: 11, r: team("red", "ada"), want: 11},
			{n: 5, r: team("red", "ada"), want: 4, by: "teams/hour"},
			{n: 14, r: team("red", "bob"), want: 13, by: "own/hour"},
			{n: 11, r: team("blue", "eve"), want: 10, by: "own/hour"},
			{n: 2, r: weir.Request{Path: "/v1/x", Group: "operators", Cost: weir.Units(100)}, want: 2},
		},
		"priorities.yaml": {
			{n: 81, r: job("jobs", 10), want: 80, by: "tokens/hour"},
			{n: 21, r: job("", 10), want: 20, by: "tokens/hour"},
			{n: 1, r: job("jobs", 10), by: "tokens/hour"},
		},
		"org_team_user.yaml": {
			{n: 101, r: member("acme", "red", "ada"), want: 100, by: "user/hour"},
			{n: 300, r: member("acme", "red", ""), vary: each("b", "c", "d"), want: 300},
			{n: 1, r: member("acme", "red", "e"), by: "team/hour"},
			{n: 600, r: member("acme", "blue", ""), vary: func(i int, r *weir.Request) {
				r.User, r.Attributes = fmt.Sprint("u", i%8), member("acme", fmt.Sprint("team", i%2), "").Attributes
			}, want: 600},
			{n: 1, r: member("acme", "green", "f"), by: "org/hour"},
			{n: 1, r: member("globex", "green", "f"), want: 1},
		},
		"shop.yaml": {
			{n: 1001, r: customer("a", "pro"), want: 1000, by: "api/minute"},
			{n: 101, r: customer("b", "free"), want: 100, by: "api/minute"},
			{n: 11, r: customer("c", "gold"), want: 10, by: "api/minute"},
			{n: 11, r: customer("d", ""), want: 10, by: "api/minute"},
			{n: 11, r: login("192.0.2.9", "eve"), want: 10, by: "login/minute"},
		},
		"api_keys.yaml": {
			{n: 50, r: a, want: 20, by: "by_key/second", wait: time.Second},
			{n: 50, r: b, want: 20, by: "by_key/second"},
			{n: 50, r: weir.Request{IP: "192.0.2.1"}, want: 10, by: "without_key/minute", wait: time.Minute},
			{after: 999 * time.Millisecond, n: 1, r: a, by: "by_key/second", wait: time.Millisecond},
			{after: time.Millisecond, n: 50, r: a, want: 20, by: "by_key/second"},
			{after: time.Second, n: 50, r: a, want: 20, by: "by_key/second"},
			{after: time.Second, n: 50, r: a, want: 20, by: "by_key/second"},
			{after: time.Second, n: 50, r: a, want: 20, by: "by_key/minute", wait: 56 * time.Second},
			{after: 56*time.Second - time.Microsecond, n: 1, r: a, by: "by_key/minute", wait: time.Microsecond},
			{after: time.Microsecond, n: 50, r: a, want: 20, by: "by_key/second", wait: time.Second},
			{every: 500 * time.Millisecond, n: 240, r: b, want: 200, by: "by_key/minute", wait: 500 * time.Millisecond},
		},
		"logins.yaml": {
			{n: 10, r: login("192.0.2.1", ""), want: 10},
			{n: 10, r: login("", "ada"), vary: func(i int, r *weir.Request) { r.IP = fmt.Sprint("198.51.100.", i) }, want: 10},
			{n: 1, r: login("203.0.113.5", "ada"), by: "login/5m", wait: 15 * time.Minute},
			{n: 1, r: login("192.0.2.1", "bob"), by: "login/5m", wait: 15 * time.Minute},
			{n: 10, r: login("203.0.113.5", "bob"), want: 10}, // the denials cost them nothing
			{n: 30, r: weir.Request{Path: "/login", Method: "GET", IP: "192.0.2.1"}, want: 30},
			{after: 15*time.Minute - time.Microsecond, n: 2, r: login("192.0.2.1", ""), by: "login/5m", wait: time.Microsecond},
			{n: 1, r: login("203.0.113.7", "ada"), by: "login/5m", wait: time.Microsecond},
			{after: time.Microsecond, n: 10, r: login("192.0.2.1", "ada"), want: 10},
		},
		"units.yaml": {
			{n: 1, r: ofCustomer("POST", "/export/all", 0), want: 1},                    // 50
			{n: 11, r: ofCustomer("GET", "/search", 0), want: 10, by: "search/second"},  // 100
			{n: 10, r: ofCustomer("PUT", "/towns/1", 0), want: 10},                      // 120
			{n: 10, r: ofCustomer("GET", "/towns/1", 0), want: 10},                      // 130
			{n: 1, r: ofCustomer("GET", "/towns/1", 999_800), want: 1},                  // 999,930
			{n: 2, r: ofCustomer("POST", "/export/all", 0), want: 1, by: "units/month"}, // 999,980
			{after: 2 * time.Second, n: 4, r: ofCustomer("GET", "/search", 0), want: 4}, // 1,000,000
			{n: 1, r: ofCustomer("GET", "/towns/1", 0), by: "units/month"},
			{n: 1, r: ofCustomer("GET", "/search", 0), by: "units/month"},
			{n: 10, r: attributes("customer", "other"), want: 10},
			{n: 10, r: weir.Request{Path: "/towns"}, want: 10}, // no customer, no rule
			// The month of Berlin ends at 23:00 on 31 January.
			{after: 26*24*time.Hour + 11*time.Hour - 2*time.Second - time.Microsecond, n: 1, r: ofCustomer("GET", "/towns/1", 0),
				by: "units/month", wait: time.Microsecond},
			{after: time.Microsecond, n: 21, r: ofCustomer("POST", "/export/all", 0), want: 20, by: "export/hour"},
			{n: 2, r: ofCustomer("GET", "/towns/1", 999_000), want: 1, by: "units/month", wait: 28 * 24 * time.Hour},
		},
		"internal.yaml": {
			{n: 1000, vary: func(i int, r *weir.Request) {
				r.IP = []string{
					"10.1.2.3", "192.168.7.7", "172.16.0.1", "172.31.255.255", "fd12::/64", "fd12::1", "127.0.0.1", "127.0.1.1", "::1",
					"::ffff:10.0.0.1",
				}[i%10]
			}, want: 1000},
			{n: 61, r: weir.Request{IP: "11.1.2.3"}, want: 60, by: "others/minute"},
			{n: 61, r: weir.Request{IP: "172.32.0.1"}, want: 60, by: "others/minute"},
			{n: 61, r: weir.Request{IP: "2001:db8::/64"}, want: 60, by: "others/minute"},
			{n: 61, want: 60, by: "others/minute"}, // all without an address share one counter
			{n: 1, r: weir.Request{IP: "10.1.2.3"}, want: 1},
		},
		"failed_logins.yaml": {
			{n: 6, r: attempt("192.0.2.1", "ada"), want: 5, by: "login_address/minute"},
			{n: 16, r: attempt("", " ADA"), vary: func(i int, r *weir.Request) {
				r.IP = fmt.Sprint("192.0.2.", 2+i)
			}, want: 15, by: "login_name/hour"},
			{n: 1, r: attempt("192.0.2.99", "bob"), want: 1},
		},
		"language_model.yaml": {
			{n: 2, r: spent("39999", "1"), want: 1, by: "tokens/minute"},
			{after: time.Minute, n: 2, r: spent("1", "99998"), want: 1, by: "money/month"},
			{n: 61, r: weir.Request{User: "ada"}, want: 60, by: "others/minute"},
		},
		"webhooks.yaml": {
			{n: 6, r: delivery("ada"), vary: func(i int, r *weir.Request) { r.ID = fmt.Sprint("a", i) }, want: 5,
				by: "customer/concurrency"},
			{n: 46, r: delivery(""), vary: func(i int, r *weir.Request) {
				r.User, r.ID = fmt.Sprint("u", i), fmt.Sprint("b", i)
			}, want: 45, by: "all/concurrency"},
			{after: time.Minute, n: 1, r: delivery("ada"), vary: func(_ int, r *weir.Request) { r.ID = "late" }, want: 1},
			{n: 101, r: weir.Request{User: "ada"}, want: 100, by: "others/minute"},
		},
		"one_user.yaml": {
			{n: 200, r: weir.Request{User: "oncall"}, want: 200},
			{n: 2, r: weir.Request{User: "eve"}, want: 1, by: "slow/minute", wait: 10 * time.Second},
			{n: 61, r: weir.Request{User: "ada"}, want: 60, by: "everyone/minute"},
		},
		"shadow.yaml": {
			{n: 30, r: weir.Request{User: "ada"}, want: 30},
			{n: 30, r: weir.Request{User: "ada"}, want: 30, shadow: 30},
			{n: 1, r: weir.Request{User: "ada"}, by: "in_force/minute"},
			{n: 30, r: weir.Request{User: "bob"}, want: 30},
			{after: 2 * time.Minute, n: 31, r: weir.Request{User: "ada"}, want: 31, shadow: 1},
		},
	}
}

// The files in examples do what they say, whoever decides, and have no warnings.
func TestExamples(t *testing.T) {
	stories := map[string]story{}
	files, err := os.ReadDir("../examples")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if path.Ext(f.Name()) != ".yaml" || f.Name() == "towns.yaml" { // which goes with a log, see cmd/weir
			continue
		}
		text, err := os.ReadFile(path.Join("../examples", f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		set, err := rules.Parse(f.Name(), text, rules.Options{Strict: true})
		if err != nil || len(set.Warnings()) > 0 {
			t.Errorf("%s: %v, %+v", f.Name(), err, set.Warnings())
		}
		if stories[f.Name()] = (story{file: string(text), steps: wishes()[f.Name()]}); stories[f.Name()].steps == nil {
			t.Errorf("no story shows what %s does", f.Name())
		}
	}
	if len(stories) != len(wishes()) {
		t.Errorf("%d files, %d stories", len(stories), len(wishes()))
	}
	tellAll(t, stories)
}

// recipes are what the recipes of docs/rules.md do, by their titles.
func recipes() map[string][]asking {
	a, b := attributes("api_key", "a"), attributes("api_key", "b")
	r := func(user, group string) weir.Request { return weir.Request{User: user, Group: group} }
	partner := func(name, zone string, cost int64) weir.Request {
		r := attributes("partner", name)
		r.Attributes["tz"], r.Cost = zone, weir.Units(cost)
		return r
	}
	const day = 24 * time.Hour
	return map[string][]asking{
		"Per API key, with bursts": {
			{n: 50, r: a, want: 20, by: "by_key/minute", wait: 600 * time.Millisecond},
			{n: 50, r: b, want: 20, by: "by_key/minute"},
			{n: 50, r: weir.Request{IP: "192.0.2.1"}, want: 10, by: "without_key/minute"},
			{every: 200 * time.Millisecond, n: 300, r: a, want: 100},
		},
		"Login by address and by name":                   wishes()["logins.yaml"],
		"Monthly units per customer, over several rules": wishes()["units.yaml"],
		"Internal networks are free":                     wishes()["internal.yaml"],
		"Organization, team and user":                    wishes()["org_team_user.yaml"],
		"A budget, then a pool":                          wishes()["budgets.yaml"],
		"People before jobs":                             wishes()["priorities.yaml"],
		"A new limit in the shadow of the old one":       wishes()["shadow.yaml"],
		"Tiers by group": {
			{n: 200, r: r("a", "staff"), want: 200},
			{n: 101, r: r("a", "gold"), want: 100, by: "gold/second"},
			{n: 6, r: r("a", ""), want: 5, by: "everyone/second"},
		},
		"A ceiling over everything": {
			{n: 500, vary: func(i int, r *weir.Request) { r.User, r.Cost = fmt.Sprint("u", i), weir.Units(10) }, want: 500},
			{n: 1, r: r("new", ""), by: "ceiling/second"},
			{after: 2 * time.Second, n: 11, r: r("new", ""), want: 10, by: "user/second"},
		},
		"Login, only failures count":                      wishes()["failed_logins.yaml"],
		"Tokens and money of a language model":            wishes()["language_model.yaml"],
		"Webhooks under way, of each customer and of all": wishes()["webhooks.yaml"],
		"One user blocked, free or slow":                  wishes()["one_user.yaml"],
		"A partner's own time zone": {
			{n: 2, r: partner("t", "Asia/Tokyo", 5000), want: 2},
			{n: 1, r: partner("t", "Asia/Tokyo", 1), by: "partners/day", wait: 3 * time.Hour},
			{n: 3, r: partner("b", "Europe/Berlin", 5000), want: 2, by: "partners/day", wait: 11 * time.Hour},
			{n: 3, r: partner("x", "Mars/Base", 5000), want: 2, by: "partners/day", wait: 11 * time.Hour},
			{after: 3 * time.Hour, n: 3, r: partner("t", "Asia/Tokyo", 5000), want: 2, by: "partners/day", wait: day},
			{n: 1, r: partner("t", "Europe/Berlin", 1), by: "partners/day"},
			{n: 1, r: partner("b", "Europe/Berlin", 1), by: "partners/day", wait: 8 * time.Hour},
			{after: 8 * time.Hour, n: 3, r: partner("b", "Europe/Berlin", 5000), want: 2, by: "partners/day", wait: day},
			{n: 3, r: partner("x", "", 5000), want: 2, by: "partners/day"},
		},
	}
}

// Each recipe of docs/rules.md does what the page says, whoever decides.
func TestRecipes(t *testing.T) {
	page, err := os.ReadFile("../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "\n## Recipes\n")
	text, _, _ = strings.Cut(text, "\n## ")
	stories := map[string]story{}
	for _, section := range strings.Split(text, "\n### ")[1:] {
		title, rest, _ := strings.Cut(section, "\n")
		_, rest, _ = strings.Cut(rest, "```yaml\n")
		file, _, found := strings.Cut(rest, "```")
		if _, link, ok := strings.Cut(section, "](../examples/"); !found && ok { // it stands there
			name, _, _ := strings.Cut(link, ")")
			text, err := os.ReadFile(path.Join("../examples", name))
			file, found = string(text), err == nil
		}
		if stories[title] = (story{file: file, steps: recipes()[title]}); !found || stories[title].steps == nil {
			t.Errorf("recipe %q has no file, or no story", title)
		}
	}
	if len(stories) != len(recipes()) {
		t.Errorf("%d recipes, %d stories", len(stories), len(recipes()))
	}
	tellAll(t, stories)
}

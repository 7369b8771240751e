package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/middleware/httplimit"
	"github.com/weirlimit/weir/middleware/identity"
	"github.com/weirlimit/weir/redisstore"
)

// seedModes returns the modes in which the rows below are shown: a node in memory, a
// cluster of three, each of which is asked in turn, and a node with a real Redis.
func seedModes(rules string) map[string]func(*testing.T, *seedClock) []*weir.Node {
	return map[string]func(*testing.T, *seedClock) []*weir.Node{
		"memory": func(t *testing.T, c *seedClock) []*weir.Node {
			return []*weir.Node{open(t, weir.Config{Rules: []byte(rules), Now: c.now})}
		},
		"cluster": func(t *testing.T, c *seedClock) []*weir.Node {
			return threeAt(t, rules, c.now)
		},
		"redis": func(t *testing.T, c *seedClock) []*weir.Node {
			store, err := redisstore.Open(t.Context(), redisstore.Config{Addrs: []string{redistest.Start(t).Socket},
				Timeout: 30 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			return []*weir.Node{open(t, weir.Config{Rules: []byte(rules), Now: c.now, Backend: store})}
		},
	}
}

const seedRules = `
version: 1
defaults: {algorithm: fixed_window}
rules:
  - {name: none, match: {path: "^/none"}, keys: [[ip], [user]], limits: [2/second, 5/minute]}
  - {name: room, match: {path: "^/room"}, keys: [[ip], [user]], count_rejected: room, limits: [2/second, 5/minute]}
  - {name: login, match: {path: "^/login"}, keys: [[ip], [user]], limits: [3/minute]}
  - {name: block, match: {path: "^/block"}, keys: [[ip], [user]], limits: [{limit: 2, window: minute, block: 10m}]}
  - {name: pros, match: {path: "^/who", group: pro}, key: [user], limits: [3/minute]}
  - {name: who, match: {path: "^/who"}, key: [user], limits: [2/minute]}
  - {name: token, match: {path: "^/token"}, key: [user], limits: [{limit: 3, window: 1m, burst: 1, algorithm: token_bucket}]}
  - {name: leaky, match: {path: "^/leaky"}, key: [user], limits: [{limit: 3, window: 1m, burst: 1, algorithm: leaky_bucket}]}
  - {name: gcra, match: {path: "^/gcra"}, key: [user], limits: [{limit: 3, window: 1m, burst: 1, algorithm: gcra}]}
  - {name: meter, match: {path: "^/meter"}, key: [user], limits: [{limit: 3, window: 1m, burst: 3, algorithm: leaky_bucket, drip: interval}]}
  - {name: cell, match: {path: "^/cell"}, key: [user], limits: [{limit: 30, window: 1m, burst: 16, algorithm: gcra}]}
  - {name: shown, match: {path: "^/shown"}, key: [user], limits: [2/minute, 100/hour]}
`

// seedClock is a clock that tests move, and that all nodes of a cluster go by.
type seedClock struct{ unix atomic.Int64 }

func (c *seedClock) now() time.Time          { return time.UnixMicro(c.unix.Load()).UTC() }
func (c *seedClock) set(at time.Time)        { c.unix.Store(at.UnixMicro()) }
func (c *seedClock) forward(d time.Duration) { c.unix.Add(d.Microseconds()) }

// seedWorld is one mode.
type seedWorld struct {
	nodes []*weir.Node
	at    *seedClock
	next  int
}

// node returns the node to ask next.
func (w *seedWorld) node() *weir.Node {
	w.next++
	return w.nodes[w.next%len(w.nodes)]
}

// ask asks for one unit.
func (w *seedWorld) ask(t *testing.T, path, ip, user string) *weir.Decision {
	t.Helper()
	d := check(t, w.node(), weir.Request{Path: path, IP: ip, User: user})
	if d.Source >= limiter.SourceFallbackOpen && d.Source <= limiter.SourceFallbackClosed {
		t.Fatalf("a policy answered: %v", d.Source)
	}
	return d
}

// TestSeedsInEveryMode shows rows of the list of behaviours in each mode.
func TestSeedsInEveryMode(t *testing.T) {
	for name, nodes := range seedModes(seedRules) {
		t.Run(name, func(t *testing.T) {
			w := &seedWorld{at: new(seedClock)}
			w.at.set(time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC))
			w.nodes = nodes(t, w.at)
			for _, row := range []struct {
				id  string
				run func(*testing.T, *seedWorld)
			}{
				{"A9", deniedCostsNothing}, {"A9room", deniedCostsWhatHasRoom}, {"B1", severalIdentifiers},
				{"A12block", blockAfterExcess}, {"A12handlers", handlersOfDenialsAndErrors}, {"A12who", userAndGroup},
				{"B5", limitsOfTheRequest}, {"D7", buckets}, {"D7cell", asRedisCell}, {"E8", statusAndFields},
			} {
				t.Run(row.id, func(t *testing.T) {
					w.at.set(w.at.now().Truncate(time.Hour).Add(time.Hour))
					row.run(t, w)
				})
			}
		})
	}
}

// A9 (memory, cluster, redis): a denied request costs nothing, in any window, of any
// key: neither the minute of the user who has used up his second, nor anything of the
// address, which other owners than the user's may count.
func deniedCostsNothing(t *testing.T, w *seedWorld) {
	for i := range 20 {
		user, ip := fmt.Sprint("a9-", i), fmt.Sprint("10.9.0.", i)
		for range 2 {
			w.ask(t, "/none", "11"+ip[2:], user)
		}
		for range 3 {
			d := w.ask(t, "/none", ip, user)
			if d.Allowed || d.BlockedBy().FullName() != "none/second" {
				t.Fatalf("user %s: %+v", user, d)
			}
			if got := [4]uint64{d.Limit(0).Remaining, d.Limit(1).Remaining, d.Limit(2).Remaining,
				d.Limit(3).Remaining}; got != [4]uint64{2, 5, 0, 3} {
				t.Errorf("left after a denial: address %d/s %d/min, user %d/s %d/min; want 2, 5, 0, 3", got[0], got[1], got[2],
					got[3])
			}
		}
		for range 2 {
			if d := w.ask(t, "/none", ip, fmt.Sprint("another", i)); !d.Allowed {
				t.Errorf("another user at address %s is denied by %s", ip, d.BlockedBy().FullName())
			}
		}
	}
}

// A9 (memory, cluster, redis): by count_rejected: room a denied request is charged to
// the windows that had room, also to those of another owner, and the wait is that after
// it.
func deniedCostsWhatHasRoom(t *testing.T, w *seedWorld) {
	for i := range 20 {
		user, ip := fmt.Sprint("a9r-", i), fmt.Sprint("10.10.0.", i)
		for range 2 {
			w.ask(t, "/room", "11"+ip[2:], user)
		}
		for j, want := range [][4]uint64{{1, 4, 0, 2}, {0, 3, 0, 1}, {0, 2, 0, 0}} {
			d := w.ask(t, "/room", ip, user)
			got := [4]uint64{d.Limit(0).Remaining, d.Limit(1).Remaining, d.Limit(2).Remaining, d.Limit(3).Remaining}
			if d.Allowed || got != want {
				t.Errorf("denial %d leaves %v, want %v", j+1, got, want)
			}
			wait := time.Second
			if j == 2 {
				wait = time.Minute // the user's minute is used up by denials
			}
			if d.RetryAfter != wait {
				t.Errorf("denial %d tells to wait %v, want %v", j+1, d.RetryAfter, wait)
			}
		}
	}
}

// B1 (memory, cluster, redis): several identifiers at once. The address counts always,
// the user when there is one, and both must pass.
func severalIdentifiers(t *testing.T, w *seedWorld) {
	for i := range 20 {
		ip, user := fmt.Sprint("10.1.0.", i), fmt.Sprint("b1-", i)
		for j, c := range []struct {
			ip, user string
			allowed  bool
			limits   int
		}{
			{ip, user, true, 2}, {ip, user, true, 2}, {"11" + ip[2:], user, true, 2},
			{ip, user, false, 2},         // the user has none left
			{ip, user + "else", true, 2}, // the address has one, which the denial left
			{ip, user + "more", false, 2},
			{ip, "", false, 1}, {"11" + ip[2:], "", true, 1}, {"11" + ip[2:], "", true, 1}, {"11" + ip[2:], "", false, 1},
		} {
			if d := w.ask(t, "/login", c.ip, c.user); d.Allowed != c.allowed || d.Len() != c.limits {
				t.Errorf("check %d, %s of %q: allowed %t by %d limits, want %t by %d", j+1, c.ip, c.user, d.Allowed, d.Len(),
					c.allowed, c.limits)
			}
		}
	}
}

// A12 (memory, cluster, redis): a key is blocked for so long after an excess, and no
// other key of the check with it.
func blockAfterExcess(t *testing.T, w *seedWorld) {
	began := w.at.now()
	for i := range 20 {
		w.at.set(began.Add(time.Duration(i) * time.Hour))
		user, ip := fmt.Sprint("a12-", i), fmt.Sprint("10.12.0.", i)
		for range 2 {
			w.ask(t, "/block", "11"+ip[2:], user)
		}
		w.ask(t, "/block", ip, "first"+user)
		if d := w.ask(t, "/block", ip, user); d.Allowed || d.RetryAfter != 10*time.Minute || !d.BlockedBy().Blocked {
			t.Fatalf("the excess: %+v", d)
		}
		if d := w.ask(t, "/block", ip, "second"+user); !d.Allowed {
			t.Errorf("the address had one left, and is denied for %v", d.RetryAfter)
		}
		w.at.forward(10*time.Minute - time.Microsecond)
		if d := w.ask(t, "/block", "10.12.1.1", user); d.Allowed || d.RetryAfter != time.Microsecond {
			t.Errorf("before the end of the block: %+v", d)
		}
		w.at.forward(time.Microsecond)
		if d := w.ask(t, "/block", fmt.Sprint("10.12.2.", i), user); !d.Allowed {
			t.Errorf("after the block: denied by %s", d.BlockedBy().FullName())
		}
	}
}

// handler is what is limited by the nodes in turn.
func (w *seedWorld) handler(t *testing.T, opts ...httplimit.Option) http.Handler {
	t.Helper()
	var all []http.Handler
	for _, n := range w.nodes {
		l, err := httplimit.NewLimiter(n, opts...)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "ok")
		})))
	}
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.next++
		all[w.next%len(all)].ServeHTTP(rw, r)
	})
}

// get asks a handler for a path.
func get(h http.Handler, path string, edit func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	r.RemoteAddr = "203.0.113.9:4711"
	if edit != nil {
		edit(r)
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}

// A12 (memory, cluster, redis): the handlers of denials, and of what could not be
// decided.
func handlersOfDenialsAndErrors(t *testing.T, w *seedWorld) {
	h := w.handler(t, httplimit.OnDenied(func(rw http.ResponseWriter, _ *http.Request, d *limiter.Decision) {
		rw.WriteHeader(http.StatusTeapot)
		fmt.Fprint(rw, d.BlockedBy().FullName(), " for ", d.RetryAfter)
	}), httplimit.OnError(func(rw http.ResponseWriter, _ *http.Request, err error) bool {
		http.Error(rw, err.Error(), http.StatusBadGateway)
		return false
	}), httplimit.User(httplimit.FromHeader("X-User")))
	as := func(user string) func(*http.Request) { return func(r *http.Request) { r.Header.Set("X-User", user) } }
	for i := range 3 {
		rec := get(h, "/block", as("handled"))
		if want := []int{200, 200, http.StatusTeapot}[i]; rec.Code != want {
			t.Errorf("request %d: %d, want %d", i+1, rec.Code, want)
		} else if i == 2 && rec.Body.String() != "block/minute for 10m0s" {
			t.Errorf("the handler of denials was told %s", rec.Body)
		}
	}
	rec := get(h, "/block", as(strings.Repeat("x", limiter.MaxFieldBytes+1)))
	if rec.Code != http.StatusBadGateway || !strings.Contains(rec.Body.String(), "8192") {
		t.Errorf("what cannot be decided: %d %s", rec.Code, rec.Body)
	}
}

// A12 (memory, cluster, redis): user and group come from a function, a header, a
// session or a claim of a token.
func userAndGroup(t *testing.T, w *seedWorld) {
	key := bytes.Repeat([]byte{7}, identity.MinKeyBytes)
	sessions, err := identity.NewSessions(identity.SessionConfig{Name: "session", Keys: [][]byte{key}, Now: w.at.now})
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := identity.NewTokens(identity.TokenConfig{Algorithms: []string{"HS256"}, Key: key, Now: w.at.now})
	if err != nil {
		t.Fatal(err)
	}
	end := w.at.now().Add(time.Hour)
	for name, c := range map[string]struct {
		opts []httplimit.Option
		as   func(user, group string) func(*http.Request)
	}{
		"function": {
			[]httplimit.Option{
				httplimit.User(func(r *http.Request) string { return r.URL.Query().Get("user") }),
				httplimit.Group(func(r *http.Request) string { return r.URL.Query().Get("group") }),
			},
			func(user, group string) func(*http.Request) {
				return func(r *http.Request) { r.URL.RawQuery = "user=" + user + "&group=" + group }
			},
		},
		"header": {
			[]httplimit.Option{httplimit.User(httplimit.FromHeader("X-User")), httplimit.Group(httplimit.FromHeader("X-Group"))},
			func(user, group string) func(*http.Request) {
				return func(r *http.Request) { r.Header.Set("X-User", user); r.Header.Set("X-Group", group) }
			},
		},
		"session": {
			[]httplimit.Option{httplimit.Session("session", sessions)},
			func(user, group string) func(*http.Request) {
				value, err := sessions.Seal(identity.Session{User: user, Group: group, Expires: end})
				if err != nil {
					t.Fatal(err)
				}
				return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "session", Value: value}) }
			},
		},
		"claim": {
			[]httplimit.Option{httplimit.Token(tokens, "sub", "plan")},
			func(user, group string) func(*http.Request) {
				token, err := jwt.NewWithClaims(jwt.SigningMethodHS256,
					jwt.MapClaims{"sub": user, "plan": group, "exp": end.Unix()}).SignedString(key)
				if err != nil {
					t.Fatal(err)
				}
				return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
			},
		},
	} {
		h := w.handler(t, c.opts...)
		for _, who := range []struct {
			user, group string
			passes      int
		}{{"ada", "", 2}, {"bob", "", 2}, {"eve", "pro", 3}} {
			passed := 0
			for range 5 {
				if rec := get(h, "/who", c.as(name+who.user, who.group)); rec.Code == http.StatusOK {
					passed++
				}
			}
			if passed != who.passes {
				t.Errorf("%s: %d of 5 requests of %s in group %q passed, want %d", name, passed, who.user, who.group, who.passes)
			}
		}
	}
}

// B5 (memory, cluster, redis): limits may come with the request. They are counted under
// a key of their own, and a changed one keeps what was consumed.
func limitsOfTheRequest(t *testing.T, w *seedWorld) {
	limit := func(n int64) *weir.Limit {
		l := limitertest.Limit(t, weir.Spec{Limit: n, Window: time.Hour, Algorithm: limiter.FixedWindow})
		return l
	}
	two, three := limit(2), limit(3)
	got := ""
	for _, l := range []*weir.Limit{two, two, two, three, three} {
		d := check(t, w.node(), weir.Request{Path: "/none", User: "ada", Limits: []*weir.Limit{l}})
		got += fmt.Sprint(d.Allowed, " ", d.Limit(0).Remaining, " ", d.Rule, "; ")
	}
	if want := "true 1 request; true 0 request; false 0 request; true 0 request; false 0 request; "; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if d := w.ask(t, "/none", "10.5.0.1", "ada"); d.Limit(0).Remaining != 1 || d.Len() != 4 {
		t.Errorf("the rule's own counters: %+v", d)
	}
	if _, err := w.node().Check(context.Background(), weir.Request{Path: "/x",
		Limits: []*weir.Limit{two, three}}); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("two limits of one name: %v", err)
	}
}

// D7 (memory, cluster, redis): token bucket, leaky bucket and GCRA decide the worked
// example alike, and the leaky bucket as a meter leaks at the multiples of a drip.
func buckets(t *testing.T, w *seedWorld) {
	began := w.at.now()
	at := []int{5, 15, 61, 70, 100, 110, 140}
	for name, want := range map[string]string{
		"token": "A R A R A R A", "leaky": "A R A R A R A", "gcra": "A R A R A R A", "meter": "A A A A A A A",
	} {
		var got []string
		for _, s := range at {
			w.at.set(began.Add(time.Duration(s) * time.Second))
			d := w.ask(t, "/"+name, "", "ada")
			if got = append(got, "A"); !d.Allowed {
				got[len(got)-1] = "R"
			}
			if want := map[int]time.Duration{15: 10 * time.Second, 70: 11 * time.Second,
				110: 10 * time.Second}[s]; d.RetryAfter != want && name != "meter" {
				t.Errorf("%s at %d s: wait %v, want %v", name, s, d.RetryAfter, want)
			}
		}
		if g := strings.Join(got, " "); g != want {
			t.Errorf("%s: %s, want %s", name, g, want)
		}
	}
}

// D7 (memory, cluster, redis): GCRA says what CL.THROTTLE of redis-cell says: limited,
// limit, remaining, retry after, reset after.
func asRedisCell(t *testing.T, w *seedWorld) {
	throttle := func(cost int64) string {
		d := check(t, w.node(), weir.Request{Path: "/cell", User: "ada", Cost: weir.Units(cost)})
		l := d.Limit(0)
		return fmt.Sprint(!d.Allowed, " ", l.Limit.Capacity(), " ", l.Remaining, " ", d.RetryAfter, " ", l.ResetAfter)
	}
	for i, c := range []struct {
		cost int64
		want string
	}{{1, "false 16 15 0s 2s"}, {14, "false 16 1 0s 30s"}, {2, "true 16 1 2s 30s"}, {1, "false 16 0 0s 32s"},
		{1, "true 16 0 2s 32s"}} {
		if got := throttle(c.cost); got != c.want {
			t.Errorf("answer %d: %s, want %s", i+1, got, c.want)
		}
	}
}

// E8 (memory, cluster, redis): status 429, and fields on every response that tell the
// limit and what remains, also in the spelling with three dashes.
func statusAndFields(t *testing.T, w *seedWorld) {
	h := w.handler(t, httplimit.Headers(httplimit.XRateDashLimit, httplimit.IETF),
		httplimit.User(httplimit.FromHeader("X-User")))
	for i, want := range []string{
		`200 X-Rate-Limit-Limit=2 X-Rate-Limit-Remaining=1 RateLimit="shown/minute";r=1;t=60, "shown/hour";r=99;t=3600 ` +
			`Retry-After=`,
		`200 X-Rate-Limit-Limit=2 X-Rate-Limit-Remaining=0 RateLimit="shown/minute";r=0;t=60, "shown/hour";r=98;t=3600 ` +
			`Retry-After=`,
		`429 X-Rate-Limit-Limit=2 X-Rate-Limit-Remaining=0 RateLimit="shown/minute";r=0;t=60, "shown/hour";r=98;t=3600 ` +
			`Retry-After=60`,
	} {
		rec := get(h, "/shown", func(r *http.Request) { r.Header.Set("X-User", "e8") })
		got := fmt.Sprint(rec.Code)
		for _, name := range []string{"X-Rate-Limit-Limit", "X-Rate-Limit-Remaining", "RateLimit", "Retry-After"} {
			got += " " + name + "=" + rec.Header().Get(name)
		}
		if got != want {
			t.Errorf("response %d:\n%s\nwant\n%s", i+1, got, want)
		}
	}
}

package sim

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/limiter/table"
)

// unlike is a walk with rules of which several count a request, each by a cost of its own.
type unlike struct {
	*walk
	limits []string // of the first rules, which others keep
}

// yaml makes rules of random costs. They have the limits of those before: a counter that only some checks look at is
// converted later by one table than by several owners.
func (w *unlike) yaml() string {
	made := 0
	limit := func(name string) string {
		if made++; made > len(w.limits) {
			w.limits = append(w.limits, fmt.Sprintf("{name: %s, limit: %d, %s}", name, 5+w.c.Pick(30),
				of(w.c, "window: 10s, algorithm: fixed_window", "window: 1m, algorithm: sliding_counter",
					"window: 1m, algorithm: sliding_log", "window: 10s, algorithm: sliding_window",
					"window: 1m, algorithm: token_bucket", "window: 1h, algorithm: leaky_bucket",
					"window: 10s, algorithm: gcra", "window: 1m, algorithm: fixed_window, align: first_hit",
					"calendar: minute, zone: Europe/Berlin", "calendar: day, zone: America/New_York",
					"window: 1m, algorithm: leaky_bucket, drip: interval")))
		}
		return w.limits[made-1]
	}
	cost := func() string {
		return "cost: " + of(w.c, "1", "2", `{from: "attr:tokens"}`, `{from: "attr:tokens", min: 0}`,
			`{from: "attr:cents", min: 0}`, `[{path: ^/a, from: "attr:tokens", min: 0}, {from: "attr:cents"}]`,
			`[{attributes: {big: }, from: "attr:tokens", max: 5}, {cost: 1}]`)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\nquotas:\n  - {name: pool, key: [rule], limits: [%s]}\n", limit("m"))
	fmt.Fprintf(&b, "  - {name: own, keys: [[user], [ip]], limits: [%s, %s]}\nrules:\n", limit("m"), limit("n"))
	rule := func(name, rest string) {
		fmt.Fprintf(&b, "  - {name: %s, match: {path: ^/%s}, %s, on_expiry: %s, id_ttl: %s}\n", name, name[:1], rest,
			of(w.c, "keep", "release"), of(w.c, "2s", "1m"))
	}
	rule("a1", "key: [ip], continue: true, limits: ["+limit("a")+"], "+cost())
	rule("a2", "key: [user], continue: true, limits: ["+limit("a")+", "+limit("b")+"], "+cost())
	rule("a3", "keys: [[ip], [user]], limits: ["+limit("a")+"], "+cost()+", quotas: [{name: pool, "+cost()+"}]")
	rule("b1", "key: [ip], continue: true, shadow: true, limits: ["+limit("a")+"], "+cost())
	rule("b2", "key: [user], continue: true, limits: [{name: slots, limit: 6, algorithm: concurrency}], hold: 9s")
	rule("b3", "key: [rule], limits: ["+limit("a")+"], "+cost()+", quotas: [{name: own, "+cost()+"}, {name: pool, "+
		cost()+"}]")
	rule("c1", "key: [user], shadow: true, continue: true, limits: ["+limit("a")+"]")
	rule("c2", "keys: [[ip], [user], [group]], limits: ["+limit("a")+"]")
	rule("d1", "key: [ip], continue: true, limits: [{name: z, limit: 9, calendar: day, zone: {from: 'attr:tz', "+
		"default: Asia/Tokyo}}]")
	rule("d2", "key: [user], limits: ["+limit("a")+"], "+cost())
	return strings.ReplaceAll(b.String(), "name: ", fmt.Sprintf("name: u%d", w.seed))
}

// request returns a random request.
func (w *unlike) request() limiter.Request {
	r := limiter.Request{Path: of(w.c, "/a", "/b", "/c", "/d"), Method: "GET", User: of(w.c, "ada", "bob"),
		IP: of(w.c, "10.0.0.1", "10.0.0.2", "10.0.0.3"), Group: of(w.c, "", "", "g"), Attributes: map[string]string{}}
	for _, name := range []string{"tokens", "cents"} {
		if w.c.Pick(5) > 0 {
			r.Attributes[name] = fmt.Sprint(w.c.Pick(7))
		}
	}
	if w.c.Pick(2) == 0 {
		r.Attributes["big"] = "1"
	}
	if w.c.Pick(2) == 0 {
		r.Attributes["tz"] = of(w.c, "Europe/Berlin", "America/New_York", "Pacific/Auckland")
	}
	if w.c.Pick(4) == 0 {
		r.Cost = limiter.Units(int64(w.c.Pick(5)))
	}
	return r
}

// resolves reports whether an amendment is one that owners are asked about.
func (w *unlike) resolves(r limiter.Request, a limiter.Settling) bool {
	return limitertest.Settled(&r, &a, func() error { _, err := w.set.Resolve(&r, new(arith.Charge)); return err },
		w.set.Lacking) == nil
}

// amend has both settle or extend what an earlier request reserved, if any: by one number, or one for each attribute.
func (w *unlike) amend() string {
	r, ok := w.again()
	if !ok {
		return ""
	}
	if w.c.Pick(3) > 0 {
		r = w.ids[len(w.ids)-1]
	}
	r.Attributes = maps.Clone(r.Attributes)
	maps.DeleteFunc(r.Attributes, func(string, string) bool { return w.c.Pick(10) == 0 })
	if w.c.Pick(12) == 0 {
		r.User = ""
	}
	a := limiter.Settling{Amend: limiter.Amend{IgnoreUnknown: w.c.Pick(2) == 0}}
	switch w.c.Pick(4) {
	case 0:
		if r.Path == "/b" || r.Path == "/c" { // each owner raises its own part of a rule in shadow
			return ""
		}
		a.Amend, r.Hold = limiter.Amend{Extend: true}, time.Duration(1+w.c.Pick(20))*time.Second
		if w.c.Pick(2) == 0 {
			r.Attributes["tokens"] = fmt.Sprint(w.c.Pick(9))
		}
	case 1:
		r.Cost, r.Hold = limiter.Units(int64(w.c.Pick(7))), 0
	default:
		r.Cost, r.Hold, a.Named = limiter.Cost{}, 0, true
		for _, names := range [][]string{{"tokens", "cents"}, {"tokens"}, {"cents"}} {
			a.Actual = map[string]int64{}
			for _, name := range names {
				a.Actual[name] = int64(w.c.Pick(9))
			}
			if w.resolves(r, a) {
				break
			}
		}
	}
	got, err := w.Amend(context.Background(), r, a)
	c := new(arith.Charge)
	failed := limitertest.Settled(&r, &a, func() error { _, err := w.set.Resolve(&r, c); return err }, w.set.Lacking)
	var want limiter.Amended
	if failed == nil && c.ID != nil {
		want, _ = w.table.Amend(w.clock, c, a.Amend)
	}
	w.log("amend %s, extend %t, ignore %t, actual %v: %+v", spelled(&r), a.Extend, a.IgnoreUnknown, a.Actual, want)
	w.did[fmt.Sprint(want.State, ", extended ", a.Extend, ", named ", a.Named)]++
	if got.Known, want.Known = 0, 0; got != want || (err != nil) != (failed != nil) {
		return fmt.Sprintf("amended, by the cluster\n  %+v %v, by the table\n  %+v %v", got, err, want, failed)
	}
	return ""
}

// check has both decide a request. If one is denied whose id is known for some of its keys, a table shows the limits
// of the others only.
func (w *unlike) check(r limiter.Request, peek bool) string {
	part := w.inPart(&r)
	differs := w.walk.check(r, peek)
	if got, want, some := strings.Cut(differs, "by the table"); some && part &&
		strings.Count(got, " left ") != strings.Count(want, " left ") {
		return ""
	}
	return differs
}

func (w *unlike) repeats(old, r *limiter.Request) bool {
	if w.c.Pick(3) > 0 {
		return false
	}
	if w.c.Pick(3) == 0 {
		old.IP = r.IP // it is known for some keys
	}
	return true
}

func (w *unlike) holds() bool { return w.c.Pick(4) > 0 }

func (w *unlike) kinds() (often, rare, ofMembers []string) {
	return []string{"check", "check", "id", "id", "id", "look", "amend", "amend", "amend", "refund", "rare"},
		[]string{"reset", "rules"}, []string{"members", "members"}
}

// A cluster counts as one table does where several rules and quotas count a request by costs of their own, in shadow,
// by slots and by time zones: also when a number for each attribute settles them, and when the costs change.
func TestAWalkOfUnlikeCostsIsThatOfOneTable(t *testing.T) {
	worlds(t)
	did := walkOver(t, seeds(t, 60), 20, func(*World) {}, func(w *walk) course {
		w.moves = w.seed%4 == 1
		return &unlike{walk: w}
	})
	for _, kind := range []string{
		"done, extended false, named true", "done, extended false, named false", "charged, extended false, named true",
		"differs, extended false, named false", "lacks, extended false, named true", "done, extended true, named false",
	} {
		if did[kind] == 0 && seeds(t, 60) >= 60 {
			t.Errorf("none was %s", kind)
		}
	}
}

// hopeless has a rule in shadow that can never admit what some requests cost.
type hopeless struct{ *walk }

func (hopeless) yaml() string {
	return `version: 1
rules:
  - {name: tried, match: {path: ^/a}, key: [ip], continue: true, shadow: true, cost: {from: "attr:tokens"},
    limits: [{name: h, limit: 5, window: 1h, algorithm: leaky_bucket}]}
  - {name: each, match: {path: ^/a}, key: [user], limits: [{name: h, limit: 50, window: 1h, algorithm: leaky_bucket}]}
`
}

// The id of a check is remembered for a rule in shadow that can never admit it, whoever owns its key: a repetition at a
// lower cost is one, and a settlement tells what was estimated.
func TestAShadowThatNeverAdmitsRemembersIDs(t *testing.T) {
	worlds(t)
	s := newSubjectOf(t, "version: 1\nrules: []\n", func(*World) {}).(*subject)
	w := &walk{subject: s, table: table.New(table.Config{})}
	if err := w.reload(hopeless{w}); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		r := limiter.Request{Path: "/a", User: fmt.Sprint("u", i), IP: fmt.Sprint("10.0.0.", i), ID: fmt.Sprint("id", i),
			Hold: 9 * time.Second}
		for _, tokens := range []string{"6", "6", "1"} {
			r.Attributes = map[string]string{"tokens": tokens}
			if differs := w.check(r, false); differs != "" {
				t.Fatal(differs)
			}
		}
		r.Hold = 0
		a := limiter.Settling{Amend: limiter.Amend{Named: true}, Actual: map[string]int64{"tokens": 2}}
		got, err := w.Amend(t.Context(), r, a)
		c := new(arith.Charge)
		failed := limitertest.Settled(&r, &a, func() error { _, err := w.set.Resolve(&r, c); return err }, w.set.Lacking)
		want, _ := w.table.Amend(w.clock, c, a.Amend)
		if got.Known, want.Known = 0, 0; got != want || err != nil || failed != nil {
			t.Fatalf("settled, by the cluster\n%+v %v, by the table\n%+v %v", got, err, want, failed)
		}
	}
}

// A check whose cost a limit can never admit charges the other keys if its id is known for that limit's key, whoever
// owns them: an earlier check has charged that one.
func TestWhatIsKnownForbidsNothing(t *testing.T) {
	worlds(t)
	s := newSubjectOf(t, "version: 1\nrules: []\n", func(*World) {}).(*subject)
	w := &walk{subject: s, table: table.New(table.Config{})}
	if err := w.reload(possible{hopeless{w}}); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		r := limiter.Request{Path: "/a", IP: fmt.Sprint("10.0.0.", i), ID: fmt.Sprint("id", i)}
		for j, tokens := range []string{"1", "6", "6", "51"} {
			r.User, r.Attributes = fmt.Sprint("u", i, min(j, 2)), map[string]string{"tokens": tokens}
			if differs := w.check(r, false); differs != "" {
				t.Fatalf("check %d: %s", j, differs)
			}
		}
	}
}

// possible has the same rule in force.
type possible struct{ hopeless }

func (p possible) yaml() string { return strings.Replace(p.hopeless.yaml(), "shadow: true, ", "", 1) }

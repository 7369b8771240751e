package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/rules"
)

// walk asks a cluster and a table the same, one thing after the other.
type walk struct {
	*subject
	c        limitertest.Choices
	seed     uint64
	table    *table.Table
	story    []string
	receipts []walked
	ids      []limiter.Request
	reloaded bool
	did      map[string]int
	odd      string // rules with options
	moves    bool   // members come and go
	joined   int
}

// walked is a check that both admitted, and their receipts.
type walked struct {
	r           limiter.Request
	here, alone limiter.Receipt
}

// of picks one.
func of[T any](c limitertest.Choices, list ...T) T { return list[c.Pick(len(list))] }

// yaml makes rules of random limits: over several owners, in shadow, with quotas and parts of them, and with numbers of
// plans. No other walk has their names.
func (w *walk) yaml() string {
	limit := func(name string) string {
		return fmt.Sprintf("{name: %s, limit: %d, window: %s, algorithm: %s}", name, 4+w.c.Pick(8),
			of(w.c, "1s", "10s", "1m", "1h"), of(w.c, "fixed_window", "sliding_counter", "sliding_log", "sliding_window",
				"token_bucket", "leaky_bucket", "gcra", "fixed_window, align: first_hit"))
	}
	odd := func(name string) string {
		if w.c.Pick(4) == 0 {
			return fmt.Sprintf("{name: %s, limit: %d, algorithm: concurrency}", name, 4+w.c.Pick(8))
		}
		return fmt.Sprintf("{name: %s, limit: %d, window: %s, algorithm: %s%s}", name, 4+w.c.Pick(8),
			of(w.c, "1s", "10s", "1m", "1h"), of(w.c, "fixed_window", "sliding_counter", "sliding_log", "sliding_window",
				"token_bucket, burst: 3", "leaky_bucket, drip: interval", "leaky_bucket", "gcra, burst: 2",
				"fixed_window, align: first_hit"), of(w.c, "", "", ", block: 5s", ", block: 2m", ", count_rejected: all",
				", count_rejected: room", ", block: 20s, count_rejected: all"))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\nquotas:\n  - {name: pool, key: [user], limits: [%s]}\nrules:\n", limit("m"))
	rule := func(name, path, rest string) {
		fmt.Fprintf(&b, "  - {name: %s, match: {path: ^/%s}, %s}\n", name, path, rest)
	}
	rule("two", "two", "keys: [[ip], [user]], limits: ["+limit("a")+"]")
	rule("each", "each", "key: [ip], continue: true, limits: ["+limit("a")+", "+limit("b")+"]")
	rule("user", "each", "key: [user], limits: ["+limit("a")+"]")
	rule("tried", "tried", "shadow: true, continue: true, keys: [[ip], [user]], limits: ["+limit("a")+"]")
	rule("forced", "tried", "key: [user], limits: ["+limit("a")+"]")
	rule("plans", "plans", `keys: [[ip], [user]], limits: [{name: p, limit: {by: "attr:plan", of: {free: 6/10s, `+
		"pro: 60/10s}, else: 3/10s}, algorithm: "+of(w.c, "token_bucket", "gcra", "sliding_counter", "fixed_window")+"}]")
	if from := b.Len(); w.odd == "" { // several owners convert what they deny, so the others of a walk stay
		rule("odd", "odd", "keys: [[ip], [user]], hold: 15s, on_expiry: "+of(w.c, "keep", "release")+
			", limits: ["+odd("a")+", "+odd("b")+"]")
		rule("odd1", "one", "key: [ip], continue: true, limits: ["+odd("a")+"]")
		rule("odd2", "one", "key: [user], limits: ["+odd("a")+", "+odd("b")+"]")
		w.odd = b.String()[from:]
	} else {
		b.WriteString(w.odd)
	}
	rule("part", "part", "key: [ip], limits: ["+limit("a")+"], quotas: [{name: pool, up_to: 50%}]")
	rule("all", "all", "key: [ip], limits: ["+limit("a")+"], quotas: [{name: pool}]")
	return strings.ReplaceAll(b.String(), "name: ", fmt.Sprintf("name: s%d", w.seed))
}

func (w *walk) log(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf("+%d ", w.clock-limitertest.Start())+fmt.Sprintf(format, args...))
}

// spelled spells what a request asks.
func spelled(r *limiter.Request) string {
	return fmt.Sprintf("%s %s %s %v for %+v, id %q held for %v", r.Path, r.User, r.IP, r.Attributes, r.Cost, r.ID, r.Hold)
}

// request returns a random request.
func (w *walk) request() limiter.Request {
	r := limiter.Request{
		Path: of(w.c, "/two", "/each", "/tried", "/plans", "/part", "/all", "/odd", "/odd", "/one", "/one"),
		User: of(w.c, "ada", "bob"), IP: of(w.c, "10.0.0.1", "10.0.0.2", "10.0.0.3"),
		Cost: limiter.Units(int64(1 + w.c.Pick(4))),
	}
	if !w.moves && w.c.Pick(2) == 0 { // a new owner has asked nothing by the numbers of plans yet
		r.Attributes = map[string]string{"plan": of(w.c, "free", "pro")}
	}
	return r
}

// again returns an earlier request with an id. ok is false if there is none.
func (w *walk) again() (r limiter.Request, ok bool) {
	if len(w.ids) == 0 {
		return r, false
	}
	return of(w.c, w.ids...), true
}

// charge resolves a request.
func (w *walk) charge(r *limiter.Request) *arith.Charge {
	c := new(arith.Charge)
	if _, err := w.set.Resolve(r, c); err != nil {
		w.tb.Fatal(err)
	}
	return c
}

// inPart reports whether the id of a request is known for some of its keys only. A look asks all of them where they
// have one owner, and the others where they have several.
func (w *walk) inPart(r *limiter.Request) bool {
	c, known := w.charge(r), 0
	for i := range c.Len() {
		one := &arith.Charge{ID: c.ID}
		if one.Add(*c.Key(i)); w.table.Remembers(w.clock, one) {
			known++
		}
	}
	return known > 0 && known < c.Len()
}

// check has both decide a request, and returns how they differ.
func (w *walk) check(r limiter.Request, peek bool) string {
	if peek && w.inPart(&r) {
		return ""
	}
	var got, want limiter.Decision
	c := w.charge(&r)
	c.Peek = peek
	if m, err := w.set.Resolve(&r, new(arith.Charge)); err != nil || engine.Unheld(m, c) != nil {
		return "" // neither would decide it
	}
	failed := w.table.Decide(w.clock, c, &want)
	w.log("check %s, a look %t: %t, repeated %t", spelled(&r), peek, want.Allowed, want.Repeated)
	if err := w.ask(&r, &got, peek); (err != nil) != (failed != nil) {
		return fmt.Sprintf("the cluster says %v, the table %v", err, failed)
	}
	if failed != nil {
		return ""
	}
	a, b := fmt.Sprint(got.Repeated, " ", answered(&got)), fmt.Sprint(want.Repeated, " ", answered(&want))
	if a != b {
		return fmt.Sprintf("repeated, by the cluster %s\nby the table %s", a, b)
	}
	if got.Allowed && r.ID == "" && !peek {
		w.receipts = append(w.receipts, walked{r, got.Receipt, want.Receipt})
	}
	return ""
}

// amend has both settle or extend what an earlier request reserved, if any.
func (w *walk) amend() string {
	r, ok := w.again()
	if !ok {
		return ""
	}
	var a limiter.Settling
	a.IgnoreUnknown = w.c.Pick(2) == 0
	r.Cost = limiter.Units(int64(w.c.Pick(6)))
	// Each owner raises its own part of a rule in shadow, and counts alone what it rejects.
	if a.Extend = w.c.Pick(3) == 0 && !slices.Contains([]string{"/tried", "/odd", "/one"}, r.Path); a.Extend {
		r.Cost, r.Hold = limiter.Units(int64(1+w.c.Pick(6))), 5*time.Second
	} else {
		r.Hold = 0
	}
	got, err := w.Amend(context.Background(), r, a)
	c := new(arith.Charge)
	failed := limitertest.Settled(&r, &a, func() error { _, err := w.set.Resolve(&r, c); return err }, w.set.Lacking)
	var want limiter.Amended
	if failed == nil {
		want, _ = w.table.Amend(w.clock, c, a.Amend)
	}
	w.log("amend %s, extend %t, ignore %t: %+v", spelled(&r), a.Extend, a.IgnoreUnknown, want)
	if got.Known, want.Known = 0, 0; got != want || (err != nil) != (failed != nil) {
		return fmt.Sprintf("amended, by the cluster\n  %+v %v, by the table\n  %+v %v", got, err, want, failed)
	}
	return ""
}

// refund has both take a charge back.
func (w *walk) refund() error {
	if len(w.receipts) == 0 || w.reloaded { // a receipt from between a reload and the first charge by it is void
		return nil
	}
	i := w.c.Pick(len(w.receipts))
	x := w.receipts[i]
	w.receipts = slices.Delete(w.receipts, i, i+1)
	w.log("refund %s", spelled(&x.r))
	w.table.Refund(w.clock, w.charge(&x.r), x.alone)
	return w.Refund(context.Background(), x.r, x.here)
}

// reset has both forget the counters of a request.
func (w *walk) reset(r limiter.Request) error {
	w.log("reset %s", spelled(&r))
	w.table.Reset(w.clock, w.charge(&r))
	err := w.Reset(context.Background(), r)
	w.clock += limiter.Millisecond // what follows is of a later instant at an owner
	return err
}

// override begins or ends overrides of two users.
func (w *walk) override() error {
	limit, err := rules.OverrideLimit("5/minute")
	var list []rules.Override
	for _, x := range [][2]string{{"user", "ada"}, {"two", "bob"}}[:2*w.c.Pick(2)] {
		list = append(list, rules.Override{Rule: fmt.Sprintf("s%d%s", w.seed, x[0]), User: x[1], Limit: limit})
	}
	w.receipts = nil // a node refunds them by the rules without the override
	w.log("%d overrides", len(list))
	w.set = w.set.With(list)
	return err
}

// pass lets time pass.
func (s *subject) pass(time limiter.Tick) error { return s.w.run(time, func() error { return nil }) }

// crash ends a node after its heirs have all that it told, and has the others forget it.
func (s *subject) crash(n *Node) error {
	if err := s.pass(500 * ms); err != nil {
		return err
	}
	n.crash(false)
	if err := s.pass(5 * limiter.Second); err != nil {
		return err
	}
	for _, m := range s.w.live() {
		m.do(func() { m.members.Forget(n.name) })
	}
	return s.settle()
}

// settle returns when all is where it belongs.
func (s *subject) settle() error {
	for range 600 {
		if err := s.pass(100 * ms); err != nil {
			return err
		}
		if s.w.settled() == nil {
			return nil
		}
	}
	return s.w.settled()
}

// endOfAll ends all nodes, by a power cut after all is saved or in good order, within a time of each other. Then it
// starts them anew.
func (s *subject) endOfAll(cut bool, apart func() limiter.Tick) error {
	all, d := s.w.live(), s.w.disks
	if cut {
		if err := s.pass(3 * limiter.Second); err != nil {
			return err
		}
	}
	d.cut, d.away, d.endedAt, d.savedAt = true, make(map[string]bool), s.w.now, s.w.now
	for _, n := range all {
		d.away[n.name] = false
		if cut {
			n.crash(false)
			continue
		}
		s.w.after(apart(), func() { n.leave(func() {}) })
	}
	for range 200 {
		if err := s.pass(100 * ms); err != nil || len(s.w.live()) == 0 {
			break
		}
	}
	for _, n := range all {
		s.w.start(n.name, false, nil, 3)
	}
	if err := s.pass(backWithin + restoreWait); err != nil {
		return err
	}
	return s.settle()
}

// members has a member join, or one leave or crash, or all end at once.
func (w *walk) members() error {
	w.receipts = nil // those of a former ownership are void
	live := w.w.live()
	n := of(w.c, live...)
	switch {
	case w.w.disks != nil && w.c.Pick(2) == 0:
		cut, most := w.c.Pick(2) == 0, of[limiter.Tick](w.c, 0, 0, 20*ms, limiter.Second)
		w.log("all end, by a power cut: %t, or else within %v", cut, most.Duration())
		return w.endOfAll(cut, func() limiter.Tick { return most * limiter.Tick(w.c.Pick(5)) / 4 })
	case len(live) == 3:
		w.joined++
		w.log("n%d joins", w.joined)
		w.w.start(fmt.Sprint("n", w.joined), false, nil, 3)
	case w.c.Pick(2) == 0:
		w.log("%s leaves", n.name)
		n.leave(func() {})
	default:
		w.log("%s crashes", n.name)
		return w.crash(n)
	}
	return w.settle()
}

// course is what walks differ in: their rules and requests, how both decide and amend them, and how often what is done.
type course interface {
	yaml() string
	request() limiter.Request
	check(r limiter.Request, peek bool) string
	amend() string
	// repeats reports whether a check with an id is an earlier one, which it may change; holds whether another reserves.
	repeats(old, r *limiter.Request) bool
	holds() bool
	kinds() (often, rare, ofMembers []string)
}

func (w *walk) repeats(_, _ *limiter.Request) bool { return w.c.Pick(3) > 0 }
func (w *walk) holds() bool                        { return w.c.Pick(2) == 0 }

func (w *walk) kinds() (often, rare, ofMembers []string) {
	return []string{"check", "check", "check", "id", "id", "look", "amend", "amend", "refund", "rare"},
		[]string{"reset", "reset", "rules", "override", "override"}, []string{"members", "members", "members"}
}

// reload has both count by other rules.
func (w *walk) reload(x course) error {
	yaml := x.yaml()
	w.log("%s", yaml)
	return w.SetRules(yaml)
}

// step does one random thing, and returns how both differ.
func (w *walk) step(x course) string {
	if w.c.Pick(3) == 0 {
		if err := w.pass(100 * ms); err != nil { // what was charged is copied by then
			return err.Error()
		}
		w.clock += of[limiter.Tick](w.c, 1, 1000, 300_000, 2_000_000, 9_000_000, 61_000_000)
	}
	often, rare, ofMembers := x.kinds()
	kind := of(w.c, often...)
	if kind == "rare" {
		kind = of(w.c, rare...)
		if w.moves {
			kind = of(w.c, append(ofMembers, kind)...)
		}
	}
	w.did[kind]++
	var err error
	switch r := x.request(); kind {
	case "check":
		return x.check(r, false)
	case "id":
		old, ok := w.again()
		if ok && x.repeats(&old, &r) {
			return x.check(old, false)
		}
		if r.ID = fmt.Sprint("id", len(w.ids)); x.holds() {
			r.Hold = time.Duration(1+w.c.Pick(20)) * time.Second
		}
		w.ids = append(w.ids, r)
		return x.check(r, false)
	case "look":
		if old, ok := w.again(); ok && w.c.Pick(2) == 0 {
			r = old
			r.Hold = 0
		}
		return x.check(r, true)
	case "amend":
		return x.amend()
	case "refund":
		err = w.refund()
	case "reset":
		err = w.reset(r)
	case "rules":
		w.reloaded = true
		err = w.reload(x)
	case "members":
		err = w.members()
	case "override":
		err = w.override()
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// A cluster counts as one table does whatever is asked of both, in any order: checks and looks with and without ids and
// holds, settlements, extensions, refunds, resets, other rules and overrides; and while members join, leave and crash.
func TestAWalkOverSeveralOwnersIsThatOfOneTable(t *testing.T) {
	worlds(t)
	did := walkOver(t, seeds(t, 80), 20, func(*World) {}, asItIs)
	for _, kind := range []string{
		"check", "id", "look", "amend", "refund", "reset", "rules", "override", "members",
	} {
		if did[kind] == 0 && seeds(t, 80) > 20 {
			t.Errorf("no %s", kind)
		}
	}
}

// With disks it does so, too, when all nodes end: by a power cut after they have saved what they had, or in good order,
// at once or one after the other.
func TestAWalkOverTheEndOfAllIsThatOfOneTable(t *testing.T) {
	worlds(t)
	walkOver(t, seeds(t, 6), 4, func(w *World) { w.newDisks(Outages) }, asItIs)
}

func asItIs(w *walk) course { return w }

// walkOver takes n walks, so many of them in each world: the nodes of one may not send without end. as gives each its
// course. It returns how often each kind of step was taken.
func walkOver(t *testing.T, n, each int, prepare func(*World), as func(*walk) course) map[string]int {
	var s *subject
	did := map[string]int{}
	for seed := range uint64(n) {
		if seed%uint64(each) == 0 {
			s = newSubjectOf(t, "version: 1\nrules: []\n", prepare).(*subject)
		}
		s.clock += 4 * limiter.Day // after which nothing of the last walk counts
		w := &walk{subject: s, c: limitertest.SeededChoices(seed), seed: seed, table: table.New(table.Config{}), did: did,
			moves: seed%2 == 1, joined: 100 * int(seed)}
		x := as(w)
		if err := w.reload(x); err != nil {
			t.Fatal(err)
		}
		for range 60 {
			if differs := w.step(x); differs != "" {
				t.Fatalf("seed %d: %s\n%s\n%s", seed, differs, w.story[0], strings.Join(w.story[max(1, len(w.story)-40):], "\n"))
			}
		}
	}
	t.Log(did)
	return did
}

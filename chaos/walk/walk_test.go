package walk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
)

// perSeed is the number of steps of one seed, each with rules and callers of its own.
const perSeed = 400

// steps returns how many steps a walk has: WEIR_STEPS, else 20,000, and in short mode 2,000.
func steps(tb testing.TB) int {
	tb.Helper()
	if text := os.Getenv("WEIR_STEPS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			tb.Fatalf("WEIR_STEPS=%q is not valid: want a whole number above 0", text)
		}
		return n
	}
	if testing.Short() {
		return 2000
	}
	return 20_000
}

// asked is what decides, by one clock.
type asked struct {
	nodes []*weir.Node
	now   atomic.Int64
	walks int
	three bool // members of a cluster
}

func (a *asked) clock() time.Time { return time.UnixMicro(a.now.Load()) }

// rule is a rule of the file, with the numbers that a reload changes.
type rule struct {
	name   string
	both   bool // keys: [[ip], [user]]
	limits []*lim
	keep   bool
	ttl    int64
	slots  bool
	upTo   int64 // percent that requests in a batch may use; 0: the limits are the rule's own
}

// chosen reports whether each request chooses the numbers of a limit of the rule.
func (r *rule) chosen() bool {
	return slices.ContainsFunc(r.limits, func(l *lim) bool { return l.most > 0 || l.table != nil })
}

func (r *rule) String() string {
	s := fmt.Sprintf("{name: %s, %s", r.name, map[bool]string{true: "keys: [[ip], [user]]", false: "key: [user]"}[r.both])
	if r.upTo == 0 {
		s += ids(r)
	}
	s += ", limits: ["
	for i, l := range r.limits {
		if i > 0 {
			s += ", "
		}
		s += l.String()
	}
	return s + "]}"
}

// ids returns how a rule treats ids.
func ids(r *rule) string {
	s := fmt.Sprintf(", id_ttl: %s", time.Duration(r.ttl)*time.Microsecond)
	if r.keep {
		s += ", on_expiry: keep"
	}
	return s
}

// step is one step of a walk: after some time one call.
type step struct {
	n        int
	wait     string // how long: "align", "retry", or ""
	after    int64
	call     string
	rule     int
	node     int
	user, ip string
	plan     string
	batch    bool // by the rule that draws up to a part of the quota
	cost     int64
	id       string
	hold     int64
	actual   int64
	ignore   bool
	of       *step // a refund's check
	limit    int   // a reload's
	units    int64
}

func (s *step) String() string {
	return fmt.Sprintf("%d: after %s%v %s rule %d at %d, user %s, ip %s, plan %q, batch %v, cost %d, id %q, hold %v, "+
		"actual %d %v, limit %d %d",
		s.n, s.wait, time.Duration(s.after)*1000, s.call, s.rule, s.node, s.user, s.ip, s.plan, s.batch, s.cost, s.id,
		time.Duration(s.hold)*1000, s.actual, s.ignore, s.limit, s.units)
}

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// What the program does not do yet, as the documents have it, is not drawn.
const (
	// A reservation that opened a window of the first hit gives nothing back of its hit if others were charged.
	openersGiveBack = true
)

// newLimit draws a limit.
func newLimit(rng *rand.Rand, name string, slots bool) *lim {
	l := &lim{name: name, reject: "none"}
	l.alg = pick(rng, "sliding_counter", "fixed_window", "first_hit", "calendar", "sliding_log", "sliding_window",
		"token_bucket",
		"leaky_bucket", "leaky_bucket", "gcra")
	if l.alg == "first_hit" && !openersGiveBack {
		l.alg = "fixed_window"
	}
	l.units = int64(pick(rng, 1, 2, 3, 5, 7, 10, 12, 20, 60))
	l.window = pick(rng, int64(1), 3, 7, 10, 20, 60) * 1e6
	if slots {
		l.alg = "concurrency"
		return l
	}
	switch l.alg {
	case "calendar":
		l.zone = pick(rng, zones...)
	case "sliding_window":
		l.sub, l.lenient = pick(rng, int64(1), 2, 5, 10), rng.IntN(2) == 0
	case "sliding_counter":
		l.weight, l.rounding = pick(rng, int64(1000), 1000, 500, 333, 0), pick(rng, "exact", "floor", "nearest", "ceil")
	case "token_bucket", "gcra":
		l.burst = pick(rng, l.units, 1, 5, 30)
	case "leaky_bucket":
		l.burst, l.drip = pick(rng, l.units, 5, 30), pick(rng, 0, 1, l.units)
	}
	if rng.IntN(4) == 0 {
		l.reject = pick(rng, "room", "all")
	}
	if rng.IntN(6) == 0 {
		l.block = pick(rng, int64(1), 2, 30) * 1e6
	}
	return l
}

// walk is the rules and the steps of one seed.
type walk struct {
	seed  uint64
	rules []*rule
	steps []*step
}

func newWalk(seed uint64) *walk {
	rng := rand.New(rand.NewPCG(seed, 1))
	w := &walk{seed: seed}
	for i := range 3 {
		r := &rule{both: rng.IntN(3) == 0, keep: rng.IntN(4) == 0, ttl: pick(rng, int64(1), 10, 60) * 1e6, slots: i == 2}
		for j := range 1 + rng.IntN(3) {
			r.limits = append(r.limits, newLimit(rng, fmt.Sprint("l", j), r.slots && j == 0))
		}
		w.rules = append(w.rules, r)
	}
	var checks []*step
	for n := range perSeed {
		s := &step{n: n, rule: rng.IntN(3), node: rng.IntN(3), user: pick(rng, "a", "b"),
			ip: pick(rng, "10.0.0.1", "10.0.0.2")}
		r := w.rules[s.rule]
		switch rng.IntN(12) {
		case 0, 1, 2:
		case 3, 4, 5:
			s.after = rng.Int64N(3e6)
		case 6, 7:
			s.wait = "align"
		case 8:
			s.after = 1
		case 9:
			s.after = rng.Int64N(40e6)
		case 10:
			s.after = rng.Int64N(5e5)
		case 11:
			s.wait = "retry"
		}
		if rng.IntN(100) == 0 {
			s.after = rng.Int64N(48 * 3600e6)
		}
		s.cost = 1 + rng.Int64N(6)
		if rng.IntN(8) == 0 {
			s.cost = 1 + rng.Int64N(40)
		}
		s.call = "check"
		if s.id = ""; rng.IntN(2) == 0 || r.slots {
			s.id = pick(rng, "1", "2", "3", "4", "5")
			if rng.IntN(2) == 0 || r.slots {
				s.hold = pick(rng, int64(1), 2, 5, 15, 40) * 1e6
			}
		}
		switch k := rng.IntN(100); {
		case k < 54:
			checks = append(checks, s)
		case k < 57:
			s.call, s.id, s.hold = "peek", "", 0
		case k < 60:
			s.cost, s.id, s.hold = 0, "", 0
		case k < 92:
			if s.call = pick(rng, "settle", "settle", "settle", "cancel", "extend", "extend"); s.call == "extend" {
				s.hold = pick(rng, int64(1), 5, 15, 40) * 1e6
			}
			s.id, s.actual, s.ignore = pick(rng, "1", "2", "3", "4", "5"), 1+rng.Int64N(8), rng.IntN(3) == 0
			if len(checks) > 0 && rng.IntN(3) > 0 { // of a check that there probably was
				if c := checks[max(0, len(checks)-1-rng.IntN(5))]; c.id != "" {
					s.rule, s.user, s.ip, s.id = c.rule, c.user, c.ip, c.id
				}
			}
		case k < 96 && len(checks) > 0:
			s.call, s.of = "refund", checks[max(0, len(checks)-1-rng.IntN(6))]
			s.rule, s.user, s.ip, s.cost, s.id, s.hold = s.of.rule, s.of.user, s.of.ip, s.of.cost, s.of.id, s.of.hold
		case k < 98:
			s.call = "reset"
		case k < 99:
			s.call = "forth and back"
		default:
			s.call, s.limit, s.units = "reload", rng.IntN(len(r.limits)), int64(1+rng.IntN(30))
		}
		log := func(l *lim) bool { return l.alg == "sliding_log" } // it counts 1,250,000 units at most
		if s.call == "settle" && n%9 == 0 && !slices.ContainsFunc(w.rules[s.rule].limits, log) {
			s.actual = 6_000_000 // more than a bucket counts
		}
		w.steps = append(w.steps, s)
	}
	w.plans()
	w.priorities()
	return w
}

// priorities makes limits of some rules those of a quota, on which two rules draw, one up to a part.
func (w *walk) priorities() {
	rng := rand.New(rand.NewPCG(w.seed, 3))
	for _, r := range w.rules {
		if rng.IntN(2) == 0 || r.slots {
			continue
		}
		for _, l := range r.limits {
			l.reject, l.block = "none", 0
		}
		r.upTo = pick(rng, int64(1), 10, 33, 50, 80, 80, 99)
	}
	for _, s := range w.steps {
		s.batch = rng.IntN(2) == 0
	}
}

// plans gives limits numbers that requests choose, and requests their plans.
func (w *walk) plans() {
	rng := rand.New(rand.NewPCG(w.seed, 2))
	number := func() int64 { return pick(rng, int64(1), 2, 3, 5, 8, 13, 30) }
	for _, r := range w.rules {
		stated, most := rng.IntN(2) == 0, number()
		for _, l := range r.limits {
			switch {
			case rng.IntN(2) == 0, !planned(l):
			case stated:
				l.most = most
			default:
				l.table = map[string]int64{"free": number(), "pro": number()}
				if rng.IntN(2) == 0 {
					l.table["7"] = number()
				}
			}
		}
	}
	same := map[string]string{}
	for _, s := range w.steps {
		// Most callers keep their plans for some time.
		if s.plan = same[s.user]; s.plan == "" || rng.IntN(6) == 0 {
			s.plan = pick(rng, "free", "pro", "none", "7", "7", "2", "15", "0", "-3", "1.5", "99999999999999999999")
			same[s.user] = s.plan
		}
		if rng.IntN(12) == 0 {
			s.plan = ""
		}
	}
}

// planned reports whether the walks give a limit numbers that requests choose.
func planned(l *lim) bool { return l.drip == 0 }

// file returns the rules, under names that no other walk has.
func (a *asked) file(rules []*rule) []byte {
	var b strings.Builder
	b.WriteString("version: 1\nquotas:\n- {name: no_rule, key: [user], limits: [1/second]}\n")
	for _, r := range rules {
		if r.upTo > 0 {
			fmt.Fprintf(&b, "- %s\n", r)
		}
	}
	b.WriteString("rules:\n")
	for _, r := range rules {
		if r.upTo == 0 {
			fmt.Fprintf(&b, "- %s\n", r)
			continue
		}
		fmt.Fprintf(&b, "- {name: %s_all, quotas: [%s]%s}\n- {name: %s_part, quotas: [{name: %s, up_to: %d%%}]%s}\n", r.name,
			r.name, ids(r), r.name, r.name, r.upTo, ids(r))
	}
	return []byte(b.String())
}

func (a *asked) set(file []byte) error {
	for _, n := range a.nodes {
		if err := n.SetRules(file); err != nil {
			return err
		}
	}
	return nil
}

// run takes the steps and returns what differs first, and at which of them.
//
// A copy says how long ago something was, by its owner's clock. The walk moves that clock while a copy is
// under way. So an heir that takes over for lack of CPU may count a charge as a later one: then what
// differs counts for nothing, and the steps are taken once more.
func (a *asked) run(w *walk, ss []*step) (int, error) {
	for again := 0; ; again++ {
		before := a.takeovers()
		at, err := a.once(w, ss)
		if err == nil || again == 4 || a.takeovers() == before {
			return at, err
		}
	}
}

// takeovers returns how many partitions were taken over from members that were late.
func (a *asked) takeovers() (n uint64) {
	for _, node := range a.nodes {
		s, _ := node.Cluster().Stats()
		n += s.Events["takeover"]
	}
	return n
}

// once is run, whatever the members do.
func (a *asked) once(w *walk, ss []*step) (int, error) {
	a.walks++
	var rules []*rule
	for i, r := range w.rules {
		c := *r
		c.name, c.limits = fmt.Sprintf("w%dr%d", a.walks, i), nil
		for _, l := range r.limits {
			copied := *l
			c.limits = append(c.limits, &copied)
		}
		rules = append(rules, &c)
	}
	if err := a.set(a.file(rules)); err != nil {
		return 0, err
	}
	// Each walk begins at a full minute, later than all before.
	start := (a.now.Load()/60e6 + 1) * 60e6
	a.now.Store(start)
	g := &going{asked: a, rules: rules, model: newModel(start), receipts: map[*step]weir.Receipt{},
		charges: map[*step]*record{}}
	for i, s := range ss {
		if err := g.step(s); err != nil {
			return i, fmt.Errorf("%w\nat %v", err, g.model.now-start)
		}
	}
	return -1, nil
}

// going is a walk under way.
type going struct {
	*asked
	rules    []*rule
	model    *model
	receipts map[*step]weir.Receipt
	charges  map[*step]*record
	retry    int64 // of the last denial
	reset    bool  // the last call was one
}

func us(d time.Duration) int64 { return d.Microseconds() }

// request returns a step's request for both.
func (g *going) request(s *step) (*request, weir.Request) {
	r, id := g.rules[s.rule], s.id
	if id != "" && r.both {
		id += s.user + s.ip // "Use each for one request only": here for the requests of one pair of keys
	}
	q := &request{keys: fmt.Sprintf("%s|%s", r.name, s.user), cost: s.cost, id: id, hold: s.hold, ttl: r.ttl,
		keep: r.keep, peek: s.call == "peek"}
	keys := []string{"user" + s.user}
	if r.both {
		keys, q.keys = []string{"ip" + s.ip, "user" + s.user}, q.keys+"|"+s.ip
	}
	for _, k := range keys {
		for _, l := range r.limits {
			name := r.name + "|" + k + "|" + l.name
			c := g.model.counters[name]
			if c == nil {
				c = &counter{}
				g.model.counters[name] = c
			}
			chosen := *l.chosen(s.plan) // a reload changes the other
			if r.upTo > 0 && s.batch {  // "rounded down, and at least 1"
				chosen.ceiling = max(1, chosen.capacity()*r.upTo/100)
			}
			c.becomes(&chosen, r.chosen())
			q.cs = append(q.cs, c)
		}
	}
	named := r.name
	if r.upTo > 0 {
		named += map[bool]string{true: "_part", false: "_all"}[s.batch]
	}
	attributes := map[string]string{"plan": s.plan}
	if s.plan == "" {
		attributes = nil
	}
	return q, weir.Request{Attributes: attributes, Rule: named, User: s.user, IP: s.ip, Cost: weir.Units(s.cost), ID: id,
		Hold: time.Duration(s.hold) * 1000}
}

func (g *going) step(s *step) error {
	by := s.after
	switch s.wait {
	case "align":
		by = 1e6 - g.model.now%1e6
	case "retry":
		by, g.retry = max(g.retry, 0), 0
	}
	if len(g.nodes) > 1 && g.reset {
		by = max(by, 1) // two calls over a network are not of one microsecond
	}
	g.reset = s.call == "reset"
	g.model.advance(by)
	g.now.Store(g.model.now)
	ctx, n, m := context.Background(), g.nodes[s.node%len(g.nodes)], g.model
	q, r := g.request(s)
	switch s.call {
	case "check", "peek":
		var d weir.Decision
		var err error
		if s.call == "peek" {
			d, err = n.Peek(ctx, r)
		} else {
			d, err = n.Check(ctx, r)
		}
		want, charged := m.check(q)
		if g.retry = want.retry; charged != nil {
			g.receipts[s], g.charges[s] = d.Receipt, charged
		}
		return compare(&d, err, &want)
	case "settle":
		have, err := n.Settle(ctx, r, s.actual, func(a *limiter.Settling) { a.IgnoreUnknown = s.ignore })
		return compareAmended(have, err, m.settle(q, s.actual, s.ignore))
	case "cancel":
		have, err := n.Cancel(ctx, r)
		return compareAmended(have, err, m.settle(q, 0, true))
	case "extend":
		have, err := n.Extend(ctx, r)
		return compareAmended(have, err, m.extend(q))
	case "refund":
		c := g.charges[s.of]
		if c == nil || s.of.hold > 0 { // "The caller gets no receipt for a reservation."
			return nil
		}
		delete(g.charges, s.of) // "A receipt is valid once"
		if o := m.ids[q.name()]; o != nil && o != c {
			return nil // "Use each for one request only"
		}
		m.refund(c)
		return n.Refund(ctx, r, g.receipts[s.of])
	case "reset":
		m.reset(q)
		_, err := n.Reset(ctx, r)
		return err
	case "reload", "forth and back":
		clear(g.charges) // "It is also void if a limit was replaced by one that counts in another way"
		return g.reload(s)
	}
	return fmt.Errorf("no such call: %s", s.call)
}

// reload changes the number of a limit: "a limit keeps what it counted as long as its rule, key and
// name stay". Or it changes an algorithm, and back before anything is asked.
func (g *going) reload(s *step) error {
	r := g.rules[s.rule]
	l := r.limits[s.limit]
	switch {
	case s.call == "forth and back":
		was := *l
		*l = lim{name: l.name, alg: "sliding_log", units: 5, window: 5e6, reject: "none", table: l.table, most: l.most}
		other := g.file(g.rules)
		*l = was
		if err := g.set(other); err != nil {
			return err
		}
	case l.bucket() && (l.drip > 0 || s.n%2 == 0):
		l.burst = s.units
	default:
		l.units = s.units
	}
	return g.set(g.file(g.rules))
}

// compare says how an answer differs from the model's.
func compare(d *weir.Decision, err error, want *answer) error {
	if err != nil || want.err != "" {
		if errors.Is(err, weir.ErrSettled) && want.err == "settled" {
			return nil
		}
		return fmt.Errorf("the error is %w (allowed %v, repeated %v), want %q", err, d.Allowed, d.Repeated, want.err)
	}
	var b strings.Builder
	is := func(name string, have, want any) {
		if have != want {
			fmt.Fprintf(&b, "%s is %v, want %v\n", name, have, want)
		}
	}
	is("allowed", d.Allowed, want.allowed)
	is("never", d.Never, want.never)
	is("repeated", d.Repeated, want.repeated)
	is("retry_after", us(d.RetryAfter), max(0, want.retry))
	is("limits", d.Len(), len(want.limits))
	for i, l := range d.Limits() {
		if b.Len() > 0 && d.Len() != len(want.limits) {
			break
		}
		w := want.limits[i]
		is(fmt.Sprintf("remaining of limit %d", i), int64(l.Remaining), w.remaining)
		is(fmt.Sprintf("reset_after of limit %d", i), us(l.ResetAfter), w.reset)
		if !d.Repeated {
			is(fmt.Sprintf("retry_after of limit %d", i), us(l.RetryAfter), w.retry)
			is(fmt.Sprintf("allowed of limit %d", i), l.Allowed, w.allowed)
			is(fmt.Sprintf("never of limit %d", i), l.Never, w.never)
		}
	}
	if b.Len() > 0 {
		return errors.New(b.String())
	}
	return nil
}

func compareAmended(a weir.Amended, err error, want amended) error {
	if err != nil || want.err != "" {
		if errors.Is(err, weir.ErrSettled) && want.err == "settled" {
			return nil
		}
		return fmt.Errorf("%v and the error %w, want %+v", a.State, err, want)
	}
	have := amended{state: a.State.String()}
	switch have.state {
	case "done":
		have.estimate, have.over = int64(a.Estimate), int64(a.Over)
	case "charged":
		have.over = int64(a.Over)
	case "denied":
		have.retry = us(a.RetryAfter)
	}
	if have != want {
		return fmt.Errorf("%+v, want %+v", have, want)
	}
	return nil
}

// shorten leaves out steps as long as what is left still differs.
func (a *asked) shorten(w *walk, ss []*step, at int) ([]*step, error) {
	ss = ss[:at+1]
	_, err := a.again(w, ss)
	if err == nil {
		return ss, errors.New("it does not differ again")
	}
	for size := len(ss) / 2; size > 0; {
		before := len(ss)
		for i := 0; i+size < len(ss); {
			shorter := slices.Concat(ss[:i], ss[i+size:])
			passed := int64(0)
			for _, s := range ss[i : i+size] {
				passed += s.after
			}
			next := *shorter[i]
			if next.wait == "" { // the time that the left out steps took still passes
				next.after += passed
			}
			for _, s := range shorter[i+1:] {
				if s.of == shorter[i] {
					next = *shorter[i] // a refund names it
				}
			}
			kept := shorter[i]
			if next != *kept {
				shorter[i] = &next
			}
			if at, e := a.again(w, shorter); at >= 0 {
				ss, err = shorter[:at+1], e
			} else if shorter[i] = kept; size < 4 {
				if at, e := a.again(w, shorter); at >= 0 {
					ss, err = shorter[:at+1], e
				} else {
					i += size
				}
			} else {
				i += size
			}
		}
		if size > 1 || len(ss) == before {
			size /= 2
		}
	}
	return ss, err
}

// again is run, on members several times: each time the keys have other owners.
func (a *asked) again(w *walk, ss []*step) (at int, err error) {
	for range map[bool]int{true: 4, false: 1}[a.three] {
		if at, err = a.run(w, ss); err != nil {
			break
		}
	}
	return at, err
}

// walk goes as far as the test wants.
func (a *asked) walk(t *testing.T) {
	t.Helper()
	t.Run("Alternatives", a.alternatives)
	seed, seeds := uint64(0), uint64((steps(t)+perSeed-1)/perSeed)
	if text := os.Getenv("WEIR_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed, seeds = n, n+1
	}
	failed := 0
	for ; seed < seeds; seed++ {
		w := newWalk(seed)
		at, err := a.run(w, w.steps)
		if at < 0 && err == nil {
			continue
		}
		failed++
		was := err
		ss, err := a.shorten(w, w.steps, at)
		var b strings.Builder
		for _, s := range ss[max(0, len(ss)-30):] {
			fmt.Fprintf(&b, "  %v\n", s)
		}
		t.Errorf("seed %d (WEIR_SEED=%d), step %d: %v\nshortened: %v\nrules\n%ssteps\n%s",
			seed, seed, at, was, err, a.file(w.rules), b.String())
		if failed == 10 {
			break
		}
	}
}

var zones = []*time.Location{zone("UTC"), zone("Europe/Berlin"), zone("America/New_York")}

func zone(name string) *time.Location {
	l, err := time.LoadLocation(name)
	if err != nil {
		panic(err)
	}
	return l
}

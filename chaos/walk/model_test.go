package walk

import (
	"math/big"
	"slices"
	"time"
)

// horizon is later than anything in these walks: waits are sought up to it.
const horizon = int64(30*24*time.Hour) / 1000

// lim is a limit as the rules file has it. All times are microseconds.
type lim struct {
	name, alg string // an algorithm, or "first_hit", or "calendar"
	units     int64
	window    int64
	burst     int64  // of buckets: the capacity
	drip      int64  // of leaky_bucket: units that leak at once; 0 is continuous
	sub       int64  // of sliding_window
	lenient   bool   // of sliding_window
	weight    int64  // of sliding_counter, in thousandths
	rounding  string // of sliding_counter
	zone      *time.Location
	reject    string // count_rejected
	block     int64
	table     map[string]int64 // the number of each plan; units is that of all others
	most      int64            // requests state the number, at most this; 0: they do not
	ceiling   int64            // what the request may use of the capacity; 0: all
}

func (l *lim) bucket() bool {
	return l.alg == "token_bucket" || l.alg == "leaky_bucket" || l.alg == "gcra"
}

// piece is what one counter was charged at an instant. What came back is subtracted from
// units: "Less than the estimate comes back as if it had never been charged".
type piece struct {
	at, units int64
	back      *big.Rat // what a refund took of a bucket at this instant; units is 0 then
	lim       *lim     // as it was; a bucket leaks by it from then on
	changes   int      // of the limit before
	held      *record  // the reservation that it belongs to
	forgotten bool     // a log was at its bound when its limit changed: it gives nothing back of it
}

// counter is the history of one limit of one key.
type counter struct {
	lim     *lim
	next    *lim  // of a bucket or log: what it becomes when it is charged, a log also when it is looked at
	own     *lim  // of a bucket during a look by another number: what it is
	chosen  bool  // each request chooses the numbers of its rule
	left    int64 // when it last became another one
	changes int   // how often it did
	pieces  []*piece
	blocked int64  // until
	last    *piece // the latest charge, even if it came back
	changed int64  // when something was charged or came back last
	resets  int
}

// record is what is known of an id, or of a receipt.
type record struct {
	id       string
	held     bool  // a reservation that is under way
	final    bool  // it was one, and is settled or kept
	forget   int64 // the id is forgotten at this instant, unless it is under way
	end      int64
	keep     bool
	ttl      int64
	estimate int64
	number   int64 // that it stands for when it is final
	made     int64
	parts    []*part
}

// part is what a record charged to one counter.
type part struct {
	c      *counter
	pieces []*piece
	resets int
}

// model is all that the documents say is remembered.
type model struct {
	now      int64
	counters map[string]*counter
	ids      map[string]*record // by keys and id
}

func newModel(now int64) *model {
	return &model{now: now, counters: map[string]*counter{}, ids: map[string]*record{}}
}

func rat(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

// floorDiv is the number of the interval of length d in which x lies.
func floorDiv(x, d int64) int64 {
	q := x / d
	if x%d < 0 {
		q--
	}
	return q
}

// windowOf returns the start and the end of the aligned window of x: "multiples of the window
// in UTC", or a calendar's day "by the clocks" of its zone.
func (l *lim) windowOf(x int64) (from, to int64) {
	if l.alg == "calendar" {
		t := time.UnixMicro(x).In(l.zone)
		y, m, d := t.Date()
		return time.Date(y, m, d, 0, 0, 0, 0, l.zone).UnixMicro(), time.Date(y, m, d+1, 0, 0, 0, 0, l.zone).UnixMicro()
	}
	from = floorDiv(x, l.window) * l.window
	return from, from + l.window
}

// first returns the window of the first hit at x, and the piece that opened it: "with the
// first request after the last window". No window is open if to <= x.
func first(l *lim, ps []*piece, x int64) (opener *piece, to int64) {
	to = -1 << 62
	for _, p := range ps {
		if p.at <= x && p.at >= to {
			opener, to = p, p.at+l.window
		}
	}
	return opener, to
}

// leak is the number of units that leak in (from, to]: "leaks n units at each multiple of
// nW/L", or "evenly".
func (l *lim) leak(from, to int64) *big.Rat {
	if l.drip == 0 {
		return big.NewRat((to-from)*l.units, l.window)
	}
	every := big.NewRat(l.drip*l.window, l.units)
	n := func(x int64) int64 { return round(new(big.Rat).Quo(rat(x), every), "floor").Num().Int64() }
	return rat((n(to) - n(from)) * l.drip)
}

// highest is the most that counts of a bucket: "A bucket counts no more than what leaks in a day, in
// its window, or while a full one recovers, whichever is longest".
func (l *lim) highest() *big.Rat {
	inDay := new(big.Int).Quo(big.NewInt(24*3600e6*l.units), big.NewInt(l.window)).Int64()
	return rat(l.burst + max(l.burst, l.units, inDay))
}

// used is what counts at x of a history, before rounding.
func (l *lim) used(ps []*piece, x int64) *big.Rat {
	sum := int64(0)
	switch {
	case l.bucket():
		level, at, by := new(big.Rat), int64(0), l
		for i, p := range ps {
			if i > 0 {
				sink(level, by.leak(at, p.at))
			}
			changed := i > 0 && p.lim.units != by.units
			if at, by = p.at, p.lim; p.back != nil {
				sink(level, p.back)
			}
			level.Add(level, rat(p.units))
			if most := by.highest(); (changed || p.units > 0) && level.Cmp(most) > 0 {
				level.Set(most)
			}
		}
		if len(ps) > 0 {
			sink(level, by.leak(at, x))
		}
		return level
	case l.alg == "sliding_counter":
		// "It adds to the count of this window the part of the last window's count that still
		// lies within W, as if that traffic had been even." "how much the last window counts"
		from, to := l.windowOf(x)
		last := int64(0)
		for _, p := range ps {
			if p.at >= from {
				sum += p.units
			} else if p.at >= from-l.window {
				last += p.units
			}
		}
		tail := new(big.Rat).SetFrac(
			new(big.Int).Mul(big.NewInt(last*l.weight), big.NewInt(to-x)),
			new(big.Int).Mul(big.NewInt(1000), big.NewInt(l.window)))
		return tail.Add(round(tail, l.rounding), rat(sum))
	case l.alg == "first_hit":
		opener, to := first(l, ps, x)
		if to <= x {
			return rat(0)
		}
		for _, p := range ps {
			if p.at >= opener.at {
				sum += p.units
			}
		}
	default:
		for _, p := range ps {
			if l.counts(p.at, x) {
				sum += p.units
			}
		}
	}
	return rat(sum)
}

// counts reports whether what was charged at an instant counts at x.
func (l *lim) counts(at, x int64) bool {
	switch l.alg {
	case "fixed_window", "calendar":
		from, _ := l.windowOf(x)
		return at >= from
	case "sliding_log":
		return x < at+l.window // "each grant is forgotten after W"
	case "sliding_window":
		part := l.window / l.sub
		start := floorDiv(at, part) * part
		if l.lenient {
			return x < start+l.window // "or until its start is"
		}
		return x < start+part+l.window // "until its end is one window old"
	default: // concurrency
		return true
	}
}

func sink(level, by *big.Rat) {
	if level.Sub(level, by); level.Sign() < 0 {
		level.SetInt64(0)
	}
}

// round rounds the last window's part; "nearest rounds half up".
func round(x *big.Rat, how string) *big.Rat {
	switch how {
	case "floor":
		return new(big.Rat).SetInt(new(big.Int).Div(x.Num(), x.Denom()))
	case "nearest":
		return round(new(big.Rat).Add(x, big.NewRat(1, 2)), "floor")
	case "ceil":
		return new(big.Rat).Neg(round(new(big.Rat).Neg(x), "floor"))
	}
	return new(big.Rat).Set(x)
}

// at returns the history as it will be at x if nothing is settled before: "A reservation
// ends before anything else that happens at the same instant".
func (c *counter) at(x int64) []*piece {
	var over []*record
	for _, p := range c.pieces {
		r := p.held
		ends := r != nil && r.held && r.end <= x && (!r.keep || c.lim.alg == "concurrency")
		if ends && !slices.Contains(over, r) {
			over = append(over, r)
		}
	}
	if len(over) == 0 {
		return c.pieces
	}
	slices.SortStableFunc(over, func(a, b *record) int { return int(a.end - b.end) })
	ps := make([]*piece, len(c.pieces))
	for i, p := range c.pieces {
		copied := *p
		ps[i] = &copied
	}
	for _, r := range over {
		for _, p := range slices.Backward(slices.Clone(ps)) {
			if p.held == r {
				ps = giveBack(c.lim, ps, p, p.units, r.end, false)
			}
		}
	}
	return ps
}

// most is the largest cost that a limit admits at x, or less than 0 if even a debt is left.
func (c *counter) most(x int64) int64 {
	left := new(big.Rat).Sub(rat(c.lim.capacity()), c.lim.used(c.at(x), x))
	return round(left, "floor").Num().Int64()
}

func (c *counter) remaining(x int64) int64 {
	if x < c.blocked {
		return 0
	}
	return max(0, c.most(x))
}

// admits reports whether a limit admits a cost at x. "A request that costs 0 is charged
// nothing, but it is denied while others have used up the limit".
func (c *counter) admits(cost, x int64) bool {
	return x >= c.blocked && c.most(x) >= max(cost, 1)
}

// fresh reports whether "the key is the same as one never seen" at x; what is held "counts
// until then as if it stayed charged".
func (c *counter) fresh(x int64) bool {
	if x < c.blocked {
		return false
	}
	ps := c.pieces
	switch c.lim.alg {
	case "concurrency":
		return len(c.at(x)) == 0 // "until it is settled or canceled, or its hold ends"
	case "first_hit":
		_, to := first(c.lim, ps, x)
		return to <= x
	case "sliding_counter":
		from, _ := c.lim.windowOf(x)
		for _, p := range ps {
			if p.at >= from && p.units > 0 {
				return false // it counts in the next window, too
			}
		}
	}
	return c.lim.used(ps, x).Sign() == 0
}

// wait returns the least wait from now until ok, or -1. Between two charges nothing is added
// to what counts, so ok stays true once it is, and halving finds the first instant.
func wait(now int64, ok func(x int64) bool) int64 {
	if ok(now) {
		return 0
	}
	low, high := int64(0), int64(1)
	for !ok(now + high) {
		if low, high = high, high*2; low > horizon {
			return -1
		}
	}
	for high-low > 1 {
		if mid := (low + high) / 2; ok(now + mid) {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}

func (c *counter) charge(units, at int64, r *record) *piece {
	l := c.become(at)
	p := &piece{at: at, units: units, held: r, lim: l, changes: c.changes}
	c.pieces, c.last, c.changed = append(c.pieces, p), p, at
	return p
}

// forget drops what can count no more, to bound the walk's time.
func (c *counter) forget(now int64) {
	held := func(p *piece) bool { return p.held != nil && p.held.held }
	if len(c.pieces) > 12 && c.fresh(now) && !slices.ContainsFunc(c.pieces, held) {
		c.pieces = nil
	}
}

// advance moves the clock and ends the holds that are over, in the order of their ends.
func (m *model) advance(by int64) {
	m.now += by
	var over []*record
	for name, r := range m.ids {
		if r.held && r.end <= m.now {
			over = append(over, r)
		} else if !r.held && r.forget <= m.now {
			delete(m.ids, name) // "for as long as the id is remembered"
		}
	}
	slices.SortFunc(over, func(a, b *record) int {
		if a.end != b.end {
			return int(a.end - b.end)
		}
		return int(a.made - b.made)
	})
	for _, r := range over {
		r.held = false
		for _, p := range r.parts {
			if !r.keep || p.c.lim.alg == "concurrency" {
				p.back(1<<60, r.end, false)
			}
		}
		if !r.keep { // "An id that is not known, because its hold has ended"
			delete(m.ids, r.id)
			continue
		}
		// "its estimate stays charged"; the id is one "whose estimate was kept"
		r.final, r.number, r.forget = true, r.estimate, r.end+r.ttl
		if r.forget <= m.now {
			delete(m.ids, r.id)
		}
	}
	for _, c := range m.counters {
		c.forget(m.now)
	}
}

// back gives back units of a part, of its latest charges first.
func (p *part) back(units, at int64, refunded bool) {
	if p.resets != p.c.resets {
		return // "A reset forgets what was reserved: a later settlement gives nothing back."
	}
	for _, e := range slices.Backward(p.pieces) {
		n := min(units, e.units)
		if n > 0 {
			p.c.changed = max(p.c.changed, at)
			p.c.pieces = giveBack(p.c.lim, p.c.pieces, e, n, at, refunded)
		}
		units -= n
	}
}

// answer is what the model says to a check. Of each limit it has the numbers that the documents
// define.
type answer struct {
	allowed, never, repeated bool
	retry                    int64
	limits                   []limitAnswer
	err                      string
}

type limitAnswer struct {
	remaining, reset, retry int64
	allowed, never          bool
}

// request is a check of some counters.
type request struct {
	keys string // what an id belongs to
	cs   []*counter
	cost int64
	id   string
	hold int64
	ttl  int64
	keep bool
	peek bool // Node.Peek
}

func (q *request) name() string { return q.keys + "|" + q.id }

func (q *request) slots() bool {
	return slices.ContainsFunc(q.cs, func(c *counter) bool { return c.lim.alg == "concurrency" })
}

func (m *model) check(q *request) (answer, *record) {
	for _, c := range q.cs {
		defer c.look(m.now)()
	}
	if r := m.ids[q.name()]; q.id != "" && r != nil && q.cost > 0 && !q.peek {
		if r.final && q.slots() {
			// "Once that one is settled, canceled or kept, a check with its id is an error"
			return answer{err: "settled"}, nil
		}
		// "A further check with it gets the same answer, repeated among it, and charges nothing"
		a := m.numbers(q, false, nil)
		a.allowed, a.repeated = true, true
		return a, nil
	}
	a, charged, pieces := answer{allowed: true}, make([]bool, len(q.cs)), make([]*piece, len(q.cs))
	ok, begun := make([]bool, len(q.cs)), make([]bool, len(q.cs))
	for i, c := range q.cs {
		ok[i], begun[i] = c.admits(q.cost, m.now), m.now < c.blocked
		a.allowed = a.allowed && ok[i]
		a.never = a.never || q.cost > c.lim.capacity() // "a cost above that is denied for ever"
	}
	r := &record{id: q.name(), held: q.hold > 0 && a.allowed, forget: m.now + q.ttl, end: m.now + q.hold, keep: q.keep,
		ttl:      q.ttl,
		estimate: q.cost, number: q.cost, made: m.now}
	for i, c := range q.cs {
		switch { // "what a denied check is charged: nothing; the limits that had room, if another denied; every limit"
		case q.cost == 0 || q.peek:
		case a.allowed:
			charged[i], pieces[i] = true, c.charge(q.cost, m.now, r)
		// docs/decisions.md, "Never charges nothing": "No limit is charged, whatever count_rejected says, and no block
		// begins."
		case a.never:
		case c.lim.reject == "all" || c.lim.reject == "room" && ok[i]:
			charged[i], pieces[i] = true, c.charge(q.cost, m.now, r)
		}
	}
	for i, c := range q.cs {
		// "after a denial by this limit, every check of the key is denied this long; denials
		// meanwhile do not extend it". A peek "charges nothing".
		if !a.allowed && !a.never && !ok[i] && !begun[i] && c.lim.block > 0 && q.cost > 0 && !q.peek {
			c.blocked = m.now + c.lim.block
		}
	}
	a2 := m.numbers(q, !a.allowed, ok)
	a2.allowed, a2.never = a.allowed, a.never
	if a.never {
		a2.retry = 0
	}
	if q.cost == 0 || q.peek || !slices.Contains(charged, true) {
		return a2, nil
	}
	for i, c := range q.cs {
		p := &part{c: c, resets: c.resets}
		if charged[i] {
			p.pieces = []*piece{pieces[i]}
		}
		r.parts = append(r.parts, p)
	}
	if q.id != "" && a.allowed { // "A denial is not remembered"
		m.ids[q.name()] = r
	}
	return a2, r
}

// numbers are those of the limits as they are now. With denied set it has the waits too: "the
// shortest wait until the same check is allowed", which "includes what the denial itself charged".
func (m *model) numbers(q *request, denied bool, ok []bool) (a answer) {
	for i, c := range q.cs {
		l := limitAnswer{remaining: c.remaining(m.now), never: q.cost > c.lim.capacity(), allowed: true}
		l.reset = wait(m.now, c.fresh)
		if denied {
			l.allowed = ok[i]
			if !l.never {
				l.retry = wait(m.now, func(x int64) bool { return c.admits(q.cost, x) })
			}
			a.retry = max(a.retry, l.retry)
		}
		a.limits = append(a.limits, l)
	}
	return a
}

// amended is what was done with a reservation.
type amended struct {
	state                 string
	err                   string
	estimate, over, retry int64
}

// use charges units "in full, beyond the limit too". It returns by how much that was too much.
func (m *model) use(c *counter, units int64) (over int64) {
	if c.lim.alg == "concurrency" || units == 0 {
		return 0 // "Whatever a check is settled with, it holds nothing from then on."
	}
	defer c.look(m.now)()
	c.become(m.now)
	over = max(0, units-max(0, c.most(m.now)))
	c.charge(units, m.now, nil)
	return over
}

func (m *model) settle(q *request, actual int64, ignore bool) amended {
	r := m.ids[q.name()]
	switch {
	case r == nil && (ignore || actual == 0):
		return amended{state: "unknown"}
	case r == nil: // "is charged with what was used, and the answer says so"
		a := amended{state: "charged"}
		r = &record{id: q.name(), final: true, number: actual, forget: m.now + q.ttl, ttl: q.ttl, made: m.now}
		m.ids[r.id] = r
		for _, c := range q.cs {
			over := m.use(c, actual)
			a.over = max(a.over, over)
		}
		return a
	case !r.held && r.number == actual: // "To settle again with the same number does nothing"
		return amended{state: "repeated"}
	case !r.held:
		// "With another number it is an error that names the first one, and so is an extension. So
		// they are for an id whose estimate was kept, or that was never reserved."
		return amended{err: "settled"}
	}
	a := amended{state: "done", estimate: r.estimate}
	for _, p := range r.parts {
		switch {
		case p.c.lim.alg == "concurrency":
			p.back(1<<60, m.now, false)
		case actual < r.estimate:
			p.back(r.estimate-actual, m.now, false)
		default:
			over := m.use(p.c, actual-r.estimate)
			a.over = max(a.over, over)
		}
	}
	r.held, r.final, r.number, r.forget = false, true, actual, m.now+q.ttl
	return a
}

// extend is "a check for the difference", and "lets a reservation last for the request's Hold
// from now on".
func (m *model) extend(q *request) amended {
	r := m.ids[q.name()]
	switch {
	case r == nil:
		return amended{state: "unknown"}
	case !r.held:
		return amended{err: "settled"}
	}
	if more := q.cost - r.estimate; more > 0 {
		d := *q
		d.cost, d.id, d.hold = more, "", 0
		held := map[*counter]*piece{}
		a, charge := m.check(&d)
		if !a.allowed {
			// "If it is denied, the reservation stays as it was, and retry_after is 0 if the
			// reservation ends before there is room."
			if m.now+a.retry >= r.end {
				a.retry = 0
			}
			return amended{state: "denied", retry: a.retry}
		}
		for _, p := range charge.parts {
			p.pieces[0].held = r
			held[p.c] = p.pieces[0]
		}
		for _, p := range r.parts {
			if p.resets != p.c.resets {
				p.resets, p.pieces = p.c.resets, nil
			}
			p.pieces = append(p.pieces, held[p.c])
		}
		r.estimate = q.cost
	}
	r.end = m.now + q.hold
	return amended{state: "done", estimate: r.estimate}
}

// refund takes back what a receipt names.
func (m *model) refund(r *record) {
	if m.ids[r.id] == r {
		delete(m.ids, r.id) // "A refund with the id forgets it."
	}
	for _, p := range r.parts {
		if len(p.pieces) == 0 || p.resets != p.c.resets {
			continue // "if its keys were reset since"
		}
		c, e := p.c, p.pieces[0]
		if c.next != nil && c.lim.bucket() && (c.next.units != c.lim.units || c.next.burst != c.lim.burst) {
			continue // it was charged under another number since
		}
		if c.adopt(m.now); c.void(e) {
			continue
		}
		switch {
		case c.lim.alg == "first_hit":
			// "The hit that opened a window under align: first_hit is taken back only if it is
			// the only one in the window." Hits of its very instant are not told from it.
			opener, to := first(c.lim, c.pieces, e.at)
			alone := !slices.ContainsFunc(c.pieces, func(o *piece) bool {
				return o != e && o.at >= e.at && o.at < to && o.units > 0
			})
			if opener != nil && (opener.at != e.at || alone) {
				p.back(e.units, m.now, true)
			}
		case c.lim.bucket():
			m.refundBucket(c, e)
		default:
			p.back(e.units, m.now, true) // "A window or log is refunded exactly"
		}
	}
}

// refundBucket follows "A refund with a receipt knows the lowest level of a bucket only if nothing was
// charged since: else what
// may have leaked of the charge until the last one since does not come back, and with drip:
// interval until now".
func (m *model) refundBucket(c *counter, e *piece) {
	i := slices.Index(c.pieces, e)
	if i < 0 {
		return // so long ago that it was forgotten here
	}
	if c.lim.drip == 0 && c.last == e && c.changed == e.at {
		c.pieces = slices.Delete(slices.Clone(c.pieces), i, i+1)
		return
	}
	if level := c.lim.used(c.at(m.now), m.now); level.Add(level, c.lim.leak(e.at, m.now)).Cmp(c.lim.highest()) >= 0 {
		return // "If that has been so since, a refund with a receipt gives nothing back to it."
	}
	until := min(m.now, c.knownChange(m.now))
	if c.lim.drip > 0 {
		until = m.now
	}
	back := rat(e.units)
	sink(back, c.lim.leak(e.at, until))
	c.pieces = append(c.pieces, &piece{at: m.now, back: back, lim: c.lim})
}

// knownChange returns when a bucket was charged last, as far as it knows: "to a microsecond, or to a 100-millionth of
// its longest debt".
func (c *counter) knownChange(now int64) int64 {
	in := func(level *big.Rat) int64 {
		span := new(big.Rat).Mul(level, big.NewRat(c.lim.window, c.lim.units))
		return round(span, "floor").Num().Int64()
	}
	empty := now + in(c.lim.used(c.at(now), now))
	if empty-c.changed < 1<<32-1<<28 {
		return c.changed
	}
	part := (in(c.lim.highest())+1)>>27 + 1
	return empty - (empty-c.changed+part-1)/part*part + part - 1
}

// reset "deletes the counters of the keys of a request, with their blocks".
func (m *model) reset(q *request) {
	for _, c := range q.cs {
		c.pieces, c.blocked = nil, 0
		c.resets++
	}
}

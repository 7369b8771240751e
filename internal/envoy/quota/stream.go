package quota

import (
	"math"
	"slices"

	"github.com/weirlimit/weir/limiter"
)

// Bounds of a stream, and its times.
const (
	// MaxBuckets bounds the buckets of a stream, MaxID the bytes of the name of one, and MaxBytes those of all. What
	// is beyond is denied and not remembered.
	MaxBuckets = 1 << 14
	MaxID      = 4 << 10
	MaxBytes   = 8 << 20

	// Slack is how long a question to the owner and the message to Envoy may take, each at most half of it. A slice
	// is lent for the time to live and for so long, and is not renewed in the last part of the time to live that is
	// so long.
	Slack = 200 * limiter.Millisecond

	minTTL = 2 * limiter.Second
	maxTTL = 59 * limiter.Second
	// idle is how long a bucket is kept without demand.
	idle = limiter.Minute
	// eager is the least time between two questions about a bucket.
	eager = 250 * limiter.Millisecond
	// late is how long before the end of an assignment it is renewed without a report.
	late = 2 * Slack
	// smooth is over how long demand is measured, at least. A difference that chance explains moves it by 1/steady.
	smooth = limiter.Second
	steady = 4
	// many is how many buckets a stream has that asks as often as one bucket may.
	many = 256
)

// Usage is what a report says of a bucket.
type Usage struct {
	// ID is the name of the bucket, the same for the same bucket.
	ID string
	// Allowed and Denied are the requests since the report before. Elapsed is the time since then, in whole seconds.
	Allowed, Denied uint64
	Elapsed         limiter.Tick
}

// Kind is what is assigned.
type Kind uint8

// The kinds.
const (
	None     Kind = iota // nothing is, or what was is over
	Tokens               // a bucket of tokens
	DenyAll              // no request passes
	AllowAll             // every request passes
	Abandon              // the bucket is forgotten
)

// Action is what Envoy is told of a bucket.
type Action struct {
	ID   string
	Kind Kind
	// Size and Rate are those of the bucket of tokens. TTL is in whole seconds.
	Size, Rate uint32
	TTL        limiter.Tick
}

// Ask is a question to the owner of a bucket's counter: for a slice, or for one that takes the place of it.
type Ask struct {
	ID string
	// Slice names the slice among those of the stream. Size is its burst; 0: a new slice, whose size is chosen.
	Slice, Size uint32
	// Smaller is how many times the size of a new slice is made smaller, see [Size].
	Smaller uint8
	// Demand is in units a second.
	Demand uint64
	// Hold is for how long the slice is lent, and At when it is asked for.
	Hold, At limiter.Tick
}

// Grant is the answer: Tokens with the size and the rate that are assigned, DenyAll or AllowAll. DenyAll with a size
// says that the owner denied a slice of that size.
type Grant struct {
	Kind       Kind
	Size, Rate uint32
}

// Beyond is what reports had beyond what was assigned.
type Beyond struct {
	ID    string
	Units uint64
}

// Out is what a step leaves to be done.
type Out struct {
	Asks    []Ask
	Actions []Action
	Beyond  []Beyond
	// Refused are the buckets of a report that are not kept.
	Refused int
}

// Stream is what is known of the buckets of one stream. One goroutine at a time may use it.
type Stream struct {
	room     *Share
	buckets  map[string]*bucket
	all      []*bucket // the same, each at its place
	bytes    int
	assigned uint64          // units a second of all
	slices   uint32          // that were asked for
	gaps     [4]limiter.Tick // between the last reports; 0: not known yet
	interval limiter.Tick    // the second longest of them
	next     limiter.Tick    // when something is due, see Due
}

// NewStream returns a stream without buckets. room may be nil. [Stream.Close] must follow.
func NewStream(room *Share) *Stream { return &Stream{room: room, buckets: make(map[string]*bucket)} }

// Close forgets all buckets.
func (s *Stream) Close() {
	for len(s.all) > 0 {
		s.forget(s.all[len(s.all)-1])
	}
}

// Len returns how many buckets there are.
func (s *Stream) Len() int { return len(s.buckets) }

// Assigned returns how many units a second are assigned.
func (s *Stream) Assigned() uint64 { return s.assigned }

// Report takes a report in.
func (s *Stream) Report(now limiter.Tick, us []Usage, out *Out) {
	gap := limiter.Tick(0)
	for i := range us {
		u := &us[i]
		b := s.buckets[u.ID]
		if b == nil {
			if u.Allowed|u.Denied == 0 { // or Envoy reports for ever what is not kept
				out.Actions = append(out.Actions, Action{ID: u.ID, Kind: Abandon})
				continue
			}
			if len(s.buckets) >= MaxBuckets || len(u.ID) > MaxID || s.bytes+len(u.ID) > MaxBytes ||
				!s.room.take(costs(u.ID)) {
				out.Refused++
				out.Actions = append(out.Actions, Action{ID: u.ID, Kind: DenyAll, TTL: s.ttl()})
				continue
			}
			b = s.begin(now, u)
		} else {
			if b.again {
				gap = max(gap, now-b.reported)
			}
			b.again = true
			b.measure(now, u)
		}
		s.check(now, b, u)
		b.reported = now
		switch {
		case u.Allowed|u.Denied != 0:
			b.wanted = now
		case now-b.wanted >= idle:
			out.Actions = append(out.Actions, Action{ID: u.ID, Kind: Abandon})
			s.forget(b)
			continue
		}
		if b.asked == 0 || now-b.asked >= eager {
			s.ask(now, b, out)
		}
	}
	if gap > 0 {
		s.heard(gap)
	}
}

// heard takes in how long after the report before one came. One that is late is an exception, two are none.
func (s *Stream) heard(gap limiter.Tick) {
	if s.interval == 0 {
		for i := range s.gaps {
			s.gaps[i] = gap
		}
	}
	copy(s.gaps[1:], s.gaps[:])
	s.gaps[0] = gap
	sorted := s.gaps
	slices.Sort(sorted[:])
	s.interval = sorted[len(sorted)-2]
}

// begin begins a bucket with its first report. It has the first request of a new bucket; of one that Envoy had
// before, as on an earlier stream, it has those since the report before.
func (s *Stream) begin(now limiter.Tick, u *Usage) *bucket {
	b := &bucket{id: u.ID, place: len(s.all), measured: now, wanted: now, may: allowance{at: now}}
	n := add(u.Allowed, u.Denied)
	b.demand = float64(n) / max(1, float64(u.Elapsed)/float64(limiter.Second))
	if n > 1 || u.Elapsed > 0 {
		b.earlier = now + min(max(2*u.Elapsed, minTTL), maxTTL)
	}
	s.buckets[b.id] = b
	s.all = append(s.all, b)
	s.bytes += len(b.id)
	return b
}

func (s *Stream) forget(b *bucket) {
	s.put(b, Abandon, 0)
	last := s.all[len(s.all)-1]
	last.place, s.all[b.place] = b.place, last
	s.all[len(s.all)-1] = nil
	s.all = s.all[:len(s.all)-1]
	delete(s.buckets, b.id)
	s.bytes -= len(b.id)
	s.room.give(costs(b.id))
}

// put notes what is assigned to a bucket.
func (s *Stream) put(b *bucket, k Kind, rate uint32) {
	if b.kind == Tokens {
		s.assigned -= uint64(b.rate)
	}
	if b.kind, b.rate = k, rate; k == Tokens {
		s.assigned += uint64(rate)
	}
}

// check compares what was allowed with what was assigned.
func (s *Stream) check(now limiter.Tick, b *bucket, u *Usage) {
	b.accrue(now)
	if b.reported < b.earlier {
		b.may.credit = float64(b.size) + float64(b.rate)*Slack.Duration().Seconds() // it may have come late
		return
	}
	if allowed := float64(u.Allowed); allowed > b.may.credit && b.kind != AllowAll {
		b.beyond = min(add(b.beyond, uint64(min(allowed-b.may.credit, mostRequests))), mostRequests)
	}
	b.may.credit = max(0, b.may.credit-float64(u.Allowed))
	if gap := now - b.reported; gap >= smooth/20 { // reports that come together were late
		most := float64(b.size) + float64(max(b.rate, b.may.before))*(gap+Slack).Duration().Seconds()
		b.may.credit = min(b.may.credit, most)
	}
}

// ttl returns how long assignments are to live: two reports, so that one may be lost.
func (s *Stream) ttl() limiter.Tick {
	const early = 200 * limiter.Millisecond // reports do not come to the millisecond
	whole := (2*s.interval - early + limiter.Second - 1) / limiter.Second * limiter.Second
	return min(max(whole, minTTL), maxTTL)
}

// eager returns how soon the stream asks again for a bucket that would use more than it is assigned: at most as often
// for all as for many buckets.
func (s *Stream) eager() limiter.Tick {
	return max(min(max(s.interval/4, eager), 20*eager), eager*limiter.Tick(len(s.all))/many)
}

// ask asks about a bucket. With that it says what was allowed beyond its assignments since it asked last: so the owner
// hears of that as often as of demand, however often a report names the bucket.
func (s *Stream) ask(now limiter.Tick, b *bucket, out *Out) {
	if b.beyond > 0 {
		out.Beyond = append(out.Beyond, Beyond{b.id, b.beyond})
		b.beyond = 0
	}
	a := Ask{ID: b.id, Size: b.size, Demand: uint64(math.Round(min(b.demand, 1<<53))), Hold: s.ttl() + Slack, At: now}
	if b.asked = now; !b.lives(now, Slack) {
		if b.slice.lent || b.slice.name == 0 {
			s.slices++
			b.slice.name, b.slice.lent = s.slices, false
		}
		a.Size, a.Smaller = 0, b.slice.smaller
	}
	a.Slice = b.slice.name
	out.Asks = append(out.Asks, a)
}

// Answered takes the owner's answer to a question in.
func (s *Stream) Answered(now limiter.Tick, a *Ask, g Grant, out *Out) {
	b := s.buckets[a.ID]
	if b == nil || b.slice.name != a.Slice {
		return
	}
	b.slice.lent = b.slice.lent || g.Kind == Tokens
	switch {
	case a.Size != 0:
	case g.Kind == Tokens:
		b.slice.smaller -= min(b.slice.smaller, 1)
	case g.Kind == DenyAll && g.Size > least: // the bursts of others leave less
		b.slice.smaller, b.slice.name = a.Smaller+1, 0
	}
	if g.Kind == Tokens {
		if b.lives(now, 0) && g.Rate < b.rate {
			if b.lowered[0] == 0 {
				b.lowered[0] = b.ends
			} else {
				b.lowered[1] = b.ends
			}
		}
		b.ends = now + a.Hold
	}
	if g.Kind == Tokens && (g.Rate == 0 || now-a.At > Slack/2 || a.Size != 0 && !b.lives(now, Slack/2)) {
		g.Kind = DenyAll // what is lent is not used
	}
	b.hungry = g.Kind == DenyAll || g.Kind == Tokens && float64(g.Rate) < b.demand
	if g.Kind == DenyAll && (b.lives(now, Slack) || b.kind == None && now < b.earlier) {
		s.wait(now, b)
		return // what was assigned lasts
	}
	if g.Kind != Tokens && g.Kind == b.kind && now+s.interval+late < b.until {
		s.wait(now, b)
		return // Envoy was told
	}
	b.accrue(now)
	b.may.before, b.may.beforeUntil = b.rate, now+Slack
	if b.kind == AllowAll && g.Kind != AllowAll {
		b.earlier = now + Slack // the next report is of requests that all were allowed
	}
	if g.Kind == Tokens {
		if b.size = g.Size; a.Size == 0 {
			b.may.credit += float64(g.Size)
		}
	}
	s.assign(now, b, g.Kind, g.Rate, a.Hold-Slack, out)
}

// assign tells Envoy what is assigned from now on.
func (s *Stream) assign(now limiter.Tick, b *bucket, k Kind, rate uint32, ttl limiter.Tick, out *Out) {
	s.put(b, k, rate)
	b.until = now + ttl
	out.Actions = append(out.Actions, Action{ID: b.id, Kind: k, Size: b.size, Rate: b.rate, TTL: ttl})
	s.wait(now, b)
}

// Due returns when something is to be done that no report begins, at the latest, and does what is due now.
func (s *Stream) Due(now limiter.Tick, out *Out) (next limiter.Tick) {
	if now < s.next {
		return s.next
	}
	s.next = now + limiter.Second
	for i := len(s.all) - 1; i >= 0; i-- { // the last one takes the place of one that is forgotten
		b := s.all[i]
		switch lately := now-b.reported < s.patience(); {
		case b.lowered[0] > 0 && now >= b.lowered[0] && b.lives(now, Slack): // others may have what it had
			if b.lowered[0], b.lowered[1] = b.lowered[1], 0; lately { // else its end is near, and nothing is to extend it
				s.ask(now, b, out)
			}
		case lately && b.hungry && now-b.asked >= s.eager(),
			lately && now+late >= b.until && now-b.asked >= limiter.Second: // its report is late
			s.ask(now, b, out)
		case b.kind == Tokens && !b.lives(now, Slack):
			b.accrue(now)
			b.may.before, b.may.beforeUntil = b.rate, now+Slack
			s.assign(now, b, DenyAll, 0, s.ttl(), out)
		case now-b.reported >= 2*idle: // Envoy reports all its buckets for ever
			s.forget(b)
			continue
		}
		s.wait(now, b)
	}
	return s.next
}

// wait notes when something of a bucket is due.
func (s *Stream) wait(now limiter.Tick, b *bucket) {
	if b.hungry {
		s.next = min(s.next, max(b.asked+s.eager(), now+eager/4))
	}
	if b.kind == Tokens {
		s.next = min(s.next, max(b.until-late, now+eager/4))
		if b.lowered[0] > 0 {
			s.next = min(s.next, max(b.lowered[0], now+eager/4))
		}
	}
}

// patience is for how long after a report assignments are renewed. Until it is known how often reports come, it is
// less the more buckets there are.
func (s *Stream) patience() limiter.Tick {
	if s.interval == 0 {
		return max(idle*many/limiter.Tick(max(many, len(s.all))), 5*limiter.Second)
	}
	return s.interval + s.interval/2
}

func add(a, b uint64) uint64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxUint64
}

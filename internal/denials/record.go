// Package denials keeps the last denials of a node in memory, so that an operator can ask later why someone was
// refused.
//
// Denials are kept by key: of a key that is denied a thousand times a second there are a count for each minute, the
// first denial of each minute and the last few of all. So no flood of one key hides another. When the memory is full,
// the tenant that takes most of it loses first, of its rules the one that takes most, and of its keys those that were
// denied once, the oldest first. So a flood of keys hides only keys of its own rule, and first those that are like its
// own.
package denials

import (
	"cmp"
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weirlimit/weir/limiter"
)

const (
	// DefaultBytes is the memory that a record takes by default.
	DefaultBytes = 64 << 20
	// MinBytes is the least that makes sense.
	MinBytes = 1 << 20

	shards     = 8
	maxMinutes = 60  // of one key: its last ones in which it was denied
	maxSamples = 8   // of one key: its last ones, at most one a second
	maxText    = 256 // bytes of each name that is kept
	tries      = 4   // to get a lock that a reader has
)

// Names says what is kept of the names in requests.
type Names uint8

// What is kept.
const (
	// Plain keeps names as they are.
	Plain Names = iota
	// Hashed keeps keyed hashes, by which one who knows a name finds it.
	Hashed
	// Off keeps none.
	Off
)

// Config configures a [Record]. KeyName and Now are required.
type Config struct {
	// Bytes bounds the memory, roughly; default [DefaultBytes].
	Bytes int64
	// Names says what is kept of names, HashKey keys the hashes: the same on all members.
	Names   Names
	HashKey []byte
	// KeyName appends the name of the counter that denied, as a node names it.
	KeyName func(dst []byte, r *limiter.Request, l *limiter.LimitDecision) []byte
	// Now is the wall clock.
	Now func() time.Time
	// Each, unless nil, receives at most one denial of each key in a second, with how many there were since
	// the one before. It is called under a lock and must not wait.
	Each func(d *Denial)
}

// Denial is one denial, as it is kept.
type Denial struct {
	Time   time.Time `json:"time"`
	Key    string    `json:"key,omitempty"`
	Rule   string    `json:"rule,omitempty"`
	Limit  string    `json:"limit,omitempty"`
	Tenant string    `json:"tenant,omitempty"`
	Sample
	// Count is how many denials this one stands for.
	Count uint64 `json:"count"`
}

// Sample is what is kept of one request.
type Sample struct {
	User   string `json:"user,omitempty"`
	IP     string `json:"ip,omitempty"`
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`
	// Cost is what was asked, Remaining what was left, in units.
	Cost uint64 `json:"cost"`
	// Capacity is the most that the limit ever admits.
	Capacity  uint64 `json:"capacity,omitempty"`
	Remaining uint64 `json:"remaining"`
	// RetryAfterMs is when it would have been allowed; Never: at no time.
	RetryAfterMs int64  `json:"retry_after_ms,omitempty"`
	Never        bool   `json:"never,omitempty"`
	Blocked      bool   `json:"blocked,omitempty"`
	Overridden   bool   `json:"overridden,omitempty"`
	Source       string `json:"source"`
	Over         string `json:"over"`
}

// Record keeps denials. It is safe for concurrent use.
type Record struct {
	config Config
	most   int64 // bytes of one shard
	seed   maphash.Seed
	began  time.Time
	missed atomic.Uint64
	names  sync.Pool // *[]byte, for names of keys
	shards [shards]shard
}

// New returns an empty record.
func New(c Config) *Record {
	c.Bytes = cmp.Or(c.Bytes, DefaultBytes)
	r := &Record{config: c, most: max(c.Bytes, MinBytes) / shards, seed: maphash.MakeSeed(), began: c.Now()}
	for i := range r.shards {
		r.shards[i].keys, r.shards[i].tenants = map[uint64]*entry{}, map[string]*tenant{}
	}
	return r
}

// shard has a part of the keys.
type shard struct {
	mu      sync.Mutex
	keys    map[uint64]*entry
	tenants map[string]*tenant
	bytes   int64
	evicted uint64
	_       [64]byte // keeps the locks apart
}

// tenant and group have the entries of a tenant, and of one of its rules.
type tenant struct {
	bytes int64
	rules map[string]*group
}

type group struct {
	of    *tenant
	rule  string
	owner string // the tenant's name
	bytes int64
	once  list // keys that were denied once
	more  list
}

type entry struct {
	prev, next *entry
	id         uint64
	group      *group
	bytes      int64

	key, rule, limit, tenant string
	count                    uint64
	first, last              int64 // in milliseconds since 1970
	told                     uint64
	minutes                  []minute // the oldest first, if it is not full
	oldest                   int      // of minutes, once it is full
	samples                  []sample // likewise
	next1                    int
}

type minute struct {
	at    int64 // in minutes since 1970
	count uint64
	first sample
}

type sample struct {
	at int64
	Sample
}

// Sizes of the parts of an entry, for its bytes.
const (
	entryBytes  = int64(unsafe.Sizeof(entry{})) + 96 // and its place in the map
	minuteBytes = int64(unsafe.Sizeof(minute{}))
	sampleBytes = int64(unsafe.Sizeof(sample{}))
)

// Denied records the denial of a request, which came over a protocol. It never waits: if a reader has the lock, the
// denial is only counted as missed.
func (r *Record) Denied(over string, q *limiter.Request, d *limiter.Decision) {
	room, _ := r.names.Get().(*[]byte)
	if room == nil {
		room = new(make([]byte, 0, 512))
	}
	defer r.names.Put(room)
	name, l := (*room)[:0], d.BlockedBy()
	if l != nil {
		name = r.config.KeyName(name, q, l)
	} else {
		name = append(append(append(append(name, q.User...), 0), q.IP...), 0) // a rule that denies has no counter
		name = append(name, q.Path...)
	}
	*room = name
	var h maphash.Hash
	h.SetSeed(r.seed)
	_, _ = h.WriteString(d.Rule)
	_ = h.WriteByte(0)
	_, _ = h.WriteString(q.Tenant)
	_ = h.WriteByte(0)
	_, _ = h.Write(name)
	id, now := h.Sum64(), r.config.Now()
	s := &r.shards[id%shards]
	for i := 0; !s.mu.TryLock(); i++ {
		if i == tries {
			r.missed.Add(1)
			return
		}
	}
	defer s.mu.Unlock()
	e := s.keys[id]
	if e == nil {
		e = r.add(s, id, name, q, d, l)
	}
	r.count(s, e, now, over, q, d, l)
	if s.bytes > r.most {
		s.evict(r.most, e)
	}
}

func (r *Record) add(s *shard, id uint64, name []byte, q *limiter.Request, d *limiter.Decision,
	l *limiter.LimitDecision) *entry {
	e := &entry{id: id, rule: strings.Clone(d.Rule), tenant: strings.Clone(q.Tenant), bytes: entryBytes}
	if l != nil {
		e.key = r.keep(string(name))
		if l.Limit != nil {
			e.limit = l.Limit.Name()
		}
	}
	e.bytes += room(e.rule, e.tenant, e.key, e.limit)
	t := s.tenants[e.tenant]
	if t == nil {
		t = &tenant{rules: map[string]*group{}}
		s.tenants[e.tenant] = t
	}
	g := t.rules[e.rule]
	if g == nil {
		g = &group{of: t, rule: e.rule, owner: e.tenant}
		t.rules[e.rule] = g
	}
	e.group = g
	s.keys[id] = e
	g.once.push(e)
	s.grow(e, e.bytes)
	return e
}

func (s *shard) grow(e *entry, n int64) {
	s.bytes, e.group.bytes, e.group.of.bytes = s.bytes+n, e.group.bytes+n, e.group.of.bytes+n
}

func (r *Record) count(s *shard, e *entry, now time.Time, over string, q *limiter.Request, d *limiter.Decision,
	l *limiter.LimitDecision) {
	ms := now.UnixMilli()
	before, g := e.last, e.group
	if e.count == 0 {
		e.first = ms
	}
	e.count++
	e.last = max(e.last, ms)
	switch e.count {
	case 1:
	case 2:
		g.once.remove(e)
		g.more.push(e)
	default:
		if ms/1000 != before/1000 { // to the end of the list, at most once a second
			g.more.remove(e)
			g.more.push(e)
		}
	}
	m := e.minute(ms / 60_000)
	if m != nil && ms/1000 == before/1000 && e.count > 1 {
		m.count++
		return
	}
	one := sample{ms, r.sampleOf(over, q, d, l)}
	was := e.bytes
	if m == nil {
		m = e.addMinute(ms/60_000, one)
	}
	m.count++
	e.addSample(one)
	s.grow(e, e.bytes-was)
	if r.config.Each != nil {
		r.config.Each(&Denial{Time: now, Key: e.key, Rule: e.rule, Limit: e.limit, Tenant: e.tenant, Sample: one.Sample,
			Count: e.count - e.told})
		e.told = e.count
	}
}

// minute returns the newest minute if it is this one.
func (e *entry) minute(at int64) *minute {
	n := len(e.minutes)
	if n == 0 {
		return nil
	}
	if m := &e.minutes[(e.oldest+n-1)%n]; m.at >= at { // a clock that was set back goes on in the newest
		return m
	}
	return nil
}

func (e *entry) addMinute(at int64, first sample) *minute {
	if len(e.minutes) < maxMinutes {
		before := cap(e.minutes)
		e.minutes = append(e.minutes, minute{at: at, first: first})
		e.bytes += minuteBytes*int64(cap(e.minutes)-before) + first.bytes()
		return &e.minutes[len(e.minutes)-1]
	}
	m := &e.minutes[e.oldest]
	e.bytes += first.bytes() - m.first.bytes()
	*m = minute{at: at, first: first}
	e.oldest = (e.oldest + 1) % maxMinutes
	return m
}

func (e *entry) addSample(one sample) {
	if len(e.samples) < maxSamples {
		before := cap(e.samples)
		e.samples = append(e.samples, one)
		e.bytes += sampleBytes*int64(cap(e.samples)-before) + one.bytes()
		return
	}
	e.bytes += one.bytes() - e.samples[e.next1].bytes()
	e.samples[e.next1] = one
	e.next1 = (e.next1 + 1) % maxSamples
}

func (s *sample) bytes() int64 { return room(s.User, s.IP, s.Method, s.Path) }

// room returns what texts take in memory, each a whole number of 16 bytes.
func room(texts ...string) (n int64) {
	for _, t := range texts {
		n += int64((len(t) + 15) &^ 15)
	}
	return n
}

func (r *Record) sampleOf(over string, q *limiter.Request, d *limiter.Decision, l *limiter.LimitDecision) Sample {
	cost, _ := q.Cost.Value(1)
	s := Sample{
		User: r.keep(q.User), IP: r.keep(q.IP), Path: r.keep(q.Path), Method: clip(q.Method), Cost: cost,
		Never: d.Never, RetryAfterMs: d.RetryAfter.Milliseconds(), Source: d.Source.String(), Over: over,
		Overridden: d.Overridden,
	}
	if r.config.Names == Off {
		s.Method = ""
	}
	if l != nil {
		s.Cost, s.Remaining, s.Blocked = l.Cost, l.Remaining, l.Blocked
		if l.Limit != nil {
			s.Capacity = l.Limit.Capacity()
		}
	}
	return s
}

// evict makes room: below nine tenths of the bound, so that it is seldom done. It keeps one entry.
func (s *shard) evict(most int64, kept *entry) {
	for s.bytes > most/10*9 {
		t, g := s.heaviest()
		if g == nil {
			return
		}
		// Until the group is a tenth smaller: to look for the heaviest takes time.
		for enough := g.bytes / 10 * 9; g.bytes > enough || g.bytes == 0; {
			e := g.once.front()
			if e == kept || e == nil {
				e = g.more.front()
			}
			if e == nil || e == kept {
				if e = g.once.front(); e == nil || e == kept {
					return // it is all that there is
				}
			}
			s.remove(e)
			if g.bytes == 0 {
				break
			}
		}
		if g.bytes == 0 {
			delete(t.rules, g.rule)
			if len(t.rules) == 0 {
				delete(s.tenants, g.owner)
			}
		}
	}
}

// heaviest returns the tenant that takes most, and its rule that does.
func (s *shard) heaviest() (t *tenant, g *group) {
	for _, o := range s.tenants {
		if t == nil || o.bytes > t.bytes {
			t = o
		}
	}
	if t == nil {
		return nil, nil
	}
	for _, o := range t.rules {
		if g == nil || o.bytes > g.bytes {
			g = o
		}
	}
	return t, g
}

func (s *shard) remove(e *entry) {
	g := e.group
	if e.count > 1 {
		g.more.remove(e)
	} else {
		g.once.remove(e)
	}
	s.grow(e, -e.bytes)
	delete(s.keys, e.id)
	s.evicted++
}

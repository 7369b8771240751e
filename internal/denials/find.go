package denials

import (
	"cmp"
	"container/heap"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Query says which denials are wanted. Empty fields exclude nothing.
type Query struct {
	// User is the user, or the address, of a request; Rule and Tenant those of the key; Key its name.
	User   string `json:"user,omitempty"`
	Rule   string `json:"rule,omitempty"`
	Tenant string `json:"tenant,omitempty"`
	Key    string `json:"key,omitempty"`
	// Since and Until bound the time, to the minute.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// Most is how many keys are wanted at most: those that were denied most. 0: 100.
	Most int `json:"most,omitempty"`
}

// MaxFound is the most keys of one answer.
const MaxFound = 1000

// Found is what a record knows.
type Found struct {
	// Keys are ordered by Count, the highest first.
	Keys []Key `json:"keys"`
	// Left is how many further keys there are.
	Left int `json:"left,omitempty"`
	// Began is since when the record knows denials. Evicted is how many keys it had to forget, Missed how many denials
	// were not recorded because someone read.
	Began   time.Time `json:"began"`
	Evicted uint64    `json:"evicted,omitempty"`
	Missed  uint64    `json:"missed,omitempty"`
}

// Key is what is known of the denials of one key.
type Key struct {
	Key    string `json:"key,omitempty"`
	Rule   string `json:"rule,omitempty"`
	Limit  string `json:"limit,omitempty"`
	Tenant string `json:"tenant,omitempty"`
	// Count is how many denials there were in the time that was asked for, LastMinute how many in the last 60 s, roughly.
	Count      uint64    `json:"count"`
	LastMinute uint64    `json:"last_minute"`
	First      time.Time `json:"first"`
	Last       time.Time `json:"last"`
	// Minutes are those in which it was denied, and Samples some denials, both the oldest first.
	Minutes []Minute `json:"minutes"`
	Samples []Taken  `json:"samples"`
	// Members are those that denied it, if several were asked.
	Members []string `json:"members,omitempty"`
}

// Minute is how many denials there were in a minute.
type Minute struct {
	At    time.Time `json:"at"`
	Count uint64    `json:"count"`
}

// Taken is a sample with its time.
type Taken struct {
	Time time.Time `json:"time"`
	Sample
}

// Sentence says what was refused, and why.
func (s *Sample) Sentence() string {
	var b strings.Builder
	who := cmp.Or(s.User, s.IP, "a request")
	b.WriteString(who)
	if s.Path != "" {
		b.WriteString(" at " + strings.TrimSpace(s.Method+" "+s.Path))
	}
	if s.IP != "" && s.IP != who {
		b.WriteString(" from " + s.IP)
	}
	switch {
	case s.Overridden && s.Never:
		b.WriteString(": an override denies it")
	case s.Source == "rule":
		b.WriteString(": the rule denies every request")
	case s.Never:
		fmt.Fprintf(&b, ": cost %d is more than is ever allowed", s.Cost)
	default:
		fmt.Fprintf(&b, ": cost %d, %d left, free again in %v", s.Cost, s.Remaining,
			time.Duration(s.RetryAfterMs)*time.Millisecond)
	}
	if s.Blocked {
		b.WriteString(", blocked")
	}
	if s.Overridden && !s.Never {
		b.WriteString(", by an override")
	}
	fmt.Fprintf(&b, " (%s, over %s)", s.Source, s.Over)
	return b.String()
}

// Find returns what the record knows. It locks a part for the time of looking at some keys, and copies no more of them
// than are wanted.
func (r *Record) Find(q Query) Found {
	now := r.config.Now()
	out := Found{Keys: []Key{}, Began: r.began, Missed: r.missed.Load()}
	user := q.User
	if user != "" {
		if user = r.asked(user); user == "" {
			return out // no names are kept
		}
	}
	most := q.Most
	if most <= 0 {
		most = 100
	}
	var best ranked
	all := 0
	for i := range r.shards {
		s, seen := &r.shards[i], 0
		s.mu.Lock()
		out.Evicted += s.evicted
		for _, e := range s.keys {
			if seen++; seen%locked == 0 { // a denial must not find the lock taken for long
				s.mu.Unlock()
				s.mu.Lock()
			}
			if q.Rule != "" && e.rule != q.Rule || q.Tenant != "" && e.tenant != q.Tenant ||
				q.Key != "" && e.key != q.Key || user != "" && !e.concerns(user) {
				continue
			}
			if n := e.count; !q.bounded() || e.countWithin(q, &n) {
				all++
				best.add(rank{e.id, n, e.last}, min(most, MaxFound))
			}
		}
		s.mu.Unlock()
	}
	for _, x := range best {
		s := &r.shards[x.id%shards]
		s.mu.Lock()
		if e := s.keys[x.id]; e != nil { // it may have gone since
			if k, ok := e.within(q, now, user); ok {
				out.Keys = append(out.Keys, k)
			}
		}
		s.mu.Unlock()
	}
	out.Left = all - len(best)
	out.Keys, _ = Most(out.Keys, len(out.Keys))
	return out
}

// locked is how many keys are looked at under one lock.
const locked = 64

// rank is how much a key was denied.
type rank struct {
	id    uint64
	count uint64
	last  int64
}

// ranked are the keys that were denied most, the one that was denied least of them first.
type ranked []rank

func (h ranked) Len() int { return len(h) }
func (h ranked) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].count, h[j].count), cmp.Compare(h[i].last, h[j].last)) < 0
}
func (h ranked) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *ranked) Push(x any) { *h = append(*h, x.(rank)) }

func (h *ranked) Pop() any { *h = (*h)[:len(*h)-1]; return nil }

// add adds a key, or drops the least of more than most.
func (h *ranked) add(x rank, most int) {
	if len(*h) < most {
		heap.Push(h, x)
		return
	}
	if (ranked{(*h)[0], x}).Less(0, 1) {
		(*h)[0] = x
		heap.Fix(h, 0)
	}
}

// Most orders keys, and returns the first most of them and how many it left.
func Most(keys []Key, most int) (_ []Key, left int) {
	slices.SortFunc(keys, func(a, b Key) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), b.Last.Compare(a.Last), strings.Compare(a.Key, b.Key))
	})
	if len(keys) > most {
		keys, left = keys[:most], len(keys)-most
	}
	return keys, left
}

// concerns reports whether the entry has denials of a user or an address.
func (e *entry) concerns(user string) bool {
	has := func(s sample) bool { return s.User == user || s.IP == user }
	return slices.ContainsFunc(e.samples, has) ||
		slices.ContainsFunc(e.minutes, func(m minute) bool { return has(m.first) })
}

func (q *Query) bounded() bool { return !q.Since.IsZero() || !q.Until.IsZero() }

// has reports whether a time, in milliseconds since 1970, is within the query's.
func (q *Query) has(ms int64) bool {
	t := time.UnixMilli(ms)
	return (q.Since.IsZero() || !t.Before(q.Since)) && (q.Until.IsZero() || t.Before(q.Until))
}

// hasMinute reports whether a part of a minute may be within the query's time.
func (q *Query) hasMinute(m *minute) bool {
	begin := m.at * 60_000
	return !q.bounded() || q.has(begin) || q.has(begin+59_999) || q.has(m.first.at)
}

// countWithin counts the denials within a time, and reports whether there are any.
func (e *entry) countWithin(q Query, n *uint64) (some bool) {
	*n = 0
	for i := range e.minutes {
		if q.hasMinute(&e.minutes[i]) {
			*n += e.minutes[i].count
			some = true
		}
	}
	return some
}

// within returns what is known of a time, false if nothing is.
func (e *entry) within(q Query, now time.Time, user string) (Key, bool) {
	k := Key{Key: e.key, Rule: e.rule, Limit: e.limit, Tenant: e.tenant, First: time.UnixMilli(e.first).UTC(),
		Last: time.UnixMilli(e.last).UTC(), Minutes: []Minute{}, Samples: []Taken{}}
	add := func(s *sample) {
		if q.has(s.at) && (user == "" || s.User == user || s.IP == user) {
			k.Samples = append(k.Samples, Taken{time.UnixMilli(s.at).UTC(), s.Sample})
		}
	}
	for i := range e.minutes {
		m := &e.minutes[(e.oldest+i)%len(e.minutes)]
		begin := m.at * 60_000
		if !q.hasMinute(m) {
			continue
		}
		k.Minutes = append(k.Minutes, Minute{time.UnixMilli(begin).UTC(), m.count})
		k.Count += m.count
		if begin+120_000 > now.UnixMilli() {
			// Of the minute before this one only the part that is not a minute ago yet counts.
			share := uint64(min(60_000, begin+120_000-now.UnixMilli()))
			k.LastMinute += m.count * share / 60_000
		}
		add(&m.first)
	}
	for i := range e.samples {
		add(&e.samples[i])
	}
	slices.SortStableFunc(k.Samples, func(a, b Taken) int { return a.Time.Compare(b.Time) })
	k.Samples = slices.CompactFunc(k.Samples, func(a, b Taken) bool { return a == b })
	if !q.bounded() {
		k.Count = e.count
	}
	return k, len(k.Minutes) > 0
}

// Merge adds the keys that another member knows, by its name, to those of several. What a member cannot have is left
// out: further keys than [MaxFound], one that it names twice, and more of a key than a record keeps.
func Merge(into []Key, from string, keys []Key) []Key {
	at := make(map[[4]string]int, len(into))
	for i := range into {
		at[into[i].id()] = i
	}
	for _, k := range keys[:min(len(keys), MaxFound)] {
		k.Members = []string{from}
		k.Minutes = last(k.Minutes, maxMinutes, func(a, b Minute) int { return a.At.Compare(b.At) })
		k.Samples = last(k.Samples, maxMinutes+maxSamples, func(a, b Taken) int { return a.Time.Compare(b.Time) })
		i, have := at[k.id()]
		if !have || k.Key == "" {
			at[k.id()] = len(into)
			into = append(into, k)
			continue
		}
		o := &into[i]
		if slices.Contains(o.Members, from) {
			continue
		}
		o.Count, o.LastMinute = o.Count+k.Count, o.LastMinute+k.LastMinute
		if k.First.Before(o.First) {
			o.First = k.First
		}
		if k.Last.After(o.Last) {
			o.Last = k.Last
		}
		o.Members = append(o.Members, from)
		o.Samples = last(append(o.Samples, k.Samples...), maxMinutes+maxSamples,
			func(a, b Taken) int { return a.Time.Compare(b.Time) })
		o.Minutes = together(o.Minutes, k.Minutes)
	}
	return into
}

func last[T any](list []T, most int, order func(a, b T) int) []T {
	slices.SortStableFunc(list, order)
	return list[max(0, len(list)-most):]
}

// together adds the counts of minutes, and returns the last ones.
func together(a, b []Minute) []Minute {
	all := last(append(a, b...), 2*maxMinutes, func(a, b Minute) int { return a.At.Compare(b.At) })
	out := all[:0]
	for _, m := range all {
		if n := len(out); n > 0 && out[n-1].At.Equal(m.At) {
			out[n-1].Count += m.Count
		} else {
			out = append(out, m)
		}
	}
	return out[max(0, len(out)-maxMinutes):]
}

func (k *Key) id() [4]string { return [4]string{k.Tenant, k.Rule, k.Limit, k.Key} }

// keep returns what is kept of a name.
func (r *Record) keep(name string) string {
	switch {
	case name == "" || r.config.Names == Off:
		return ""
	case r.config.Names == Hashed:
		mac := hmac.New(sha256.New, r.config.HashKey)
		_, _ = mac.Write([]byte(name))
		return hashMark + hex.EncodeToString(mac.Sum(nil)[:hashBytes])
	}
	return clip(name)
}

// asked returns what is kept of a name that is asked about, which may be the hash that an answer had. A request that is
// recorded has no hashes: it could pass for another.
func (r *Record) asked(name string) string {
	if r.config.Names == Hashed && strings.HasPrefix(name, hashMark) && len(name) == len(hashMark)+2*hashBytes {
		return name
	}
	return r.keep(name)
}

const (
	hashMark  = "h:"
	hashBytes = 8
)

// clip returns the begin of a text as valid UTF-8, as a copy.
func clip(s string) string {
	if len(s) > maxText {
		n := maxText - len("…")
		for n > maxText-8 && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n] + "…"
	}
	return strings.Clone(strings.ToValidUTF8(s, "\uFFFD"))
}

package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Unit is the unit of time of a limit. Its numbers are those of the protocol.
type Unit uint8

// The units. A month has 30 days and a year 365.
const (
	Second Unit = 1 + iota
	Minute
	Hour
	Day
	Month
	Year
	Week
)

// unitOf returns the unit of a name in any case.
func unitOf(name string) (Unit, bool) {
	for u := Second; u <= Week; u++ {
		if strings.EqualFold(name, u.String()) {
			return u, true
		}
	}
	return 0, false
}

// Valid reports whether u is a unit.
func (u Unit) Valid() bool { return u >= Second && u <= Week }

// Length returns how long a unit is, 0 if u is none.
func (u Unit) Length() time.Duration {
	const day = 24 * time.Hour
	all := [...]time.Duration{Second: time.Second, Minute: time.Minute, Hour: time.Hour, Day: day, Month: 30 * day,
		Year: 365 * day, Week: 7 * day}
	if !u.Valid() {
		return 0
	}
	return all[u]
}

// String returns the unit's name.
func (u Unit) String() string {
	if !u.Valid() {
		return "unknown"
	}
	return [...]string{Second: "second", Minute: "minute", Hour: "hour", Day: "day", Month: "month", Year: "year",
		Week: "week"}[u]
}

// Limit is a limit of a configuration. It is immutable.
type Limit struct {
	// Path is the domain and the descriptors above and at the limit, for people.
	Path string
	// Name of the limit, which other limits replace it by; empty if it has none.
	Name string
	// Unit is valid unless the limit is Unlimited. Requests is how many it admits; 0
	// admits none.
	Unit      Unit
	Requests  uint32
	Unlimited bool
	// Replaces names the limits that do not apply where this one does.
	Replaces []string
	// Shadow reports that the limit counts and never denies, Quota that it denies only
	// together with all other quotas of the request.
	Shadow, Quota bool
	// Metadata is what the file says beside, without what Form is made of; values as
	// encoding/json has them.
	Metadata map[string]any
	// Form is how the limit counts.
	Form Form

	names    []levelName // of the levels of the file, from the top
	detailed bool        // statistics have the values of requests
	labels   []string    // if they do not depend on requests
}

// levelName is how a level is called in statistics.
type levelName struct {
	text   string // key, or key_value
	value  bool   // with the value of the request
	shared bool   // values share the counter, and the name
}

// Labels returns the names of a limit in statistics: the domain, then one for each level. For
// a limit that came with a request they are the domain and the keys of its entries. The slice
// must not be changed.
func (l *Limit) Labels(domain string, entries []Entry) []string {
	if l.labels != nil {
		return l.labels
	}
	out := make([]string, 1, 1+len(entries))
	out[0] = domain
	if l.names == nil {
		for _, e := range entries {
			out = append(out, e.Key)
		}
		return out
	}
	shares := slices.ContainsFunc(l.names, func(n levelName) bool { return n.shared })
	for i, n := range l.names {
		text := n.text
		if (l.detailed || n.value) && !n.shared && i < len(entries) {
			if text = entries[i].Key; entries[i].Value != "" || l.detailed && !shares {
				text += "_" + entries[i].Value // only a detailed one of which no level is shared has an empty value
			}
		}
		out = append(out, text)
	}
	return out
}

// Config is a configuration. It is immutable and safe for concurrent use.
type Config struct{ domains map[string]*level }

// level has the descriptors of one level.
type level struct {
	exact    map[string]*node
	patterns []*node // those with wildcards, in the order of the file
}

type node struct {
	text   string // key, or key_value
	limit  *Limit
	shared bool // all values that match the wildcard share a counter
	below  level
}

func (l *level) add(n *node) {
	if l.exact == nil {
		l.exact = make(map[string]*node)
	}
	l.exact[n.text] = n
	if strings.Contains(n.text, "*") {
		l.patterns = append(l.patterns, n)
	}
}

// find returns the descriptor for an entry of a request: the exact one, else the first
// wildcard that matches, else the one of the bare key. wild reports a wildcard.
func (l *level) find(e Entry) (n *node, wild bool) {
	text := e.Key + "_" + e.Value
	if n = l.exact[text]; n != nil {
		return n, false
	}
	for _, n := range l.patterns {
		if matches(n.text, text) {
			return n, true
		}
	}
	return l.exact[e.Key], false
}

// matches reports whether text matches a pattern, in which * stands for any text. Its time
// is bounded by the product of the lengths.
func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	first, last := parts[0], parts[len(parts)-1]
	if !strings.HasPrefix(text, first) {
		return false
	}
	text = text[len(first):]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(text, part)
		if at < 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return strings.HasSuffix(text, last)
}

// Entry is one entry of a descriptor of a request.
type Entry struct{ Key, Value string }

// Has reports whether there is a domain.
func (c *Config) Has(domain string) bool { return c.domains[domain] != nil }

// Domains returns how many domains there are.
func (c *Config) Domains() int { return len(c.domains) }

// DomainNames returns the names of the domains, sorted.
func (c *Config) DomainNames() []string { return slices.Sorted(maps.Keys(c.domains)) }

// Each calls f with every limit, in no order, until f returns an error, and returns it.
func (c *Config) Each(f func(*Limit) error) error {
	for _, l := range c.domains {
		if err := l.each(f); err != nil {
			return err
		}
	}
	return nil
}

func (l *level) each(f func(*Limit) error) error {
	for _, n := range l.exact {
		if n.limit != nil {
			if err := f(n.limit); err != nil {
				return err
			}
		}
		if err := n.below.each(f); err != nil {
			return err
		}
	}
	return nil
}

// Lookup returns the limit of a descriptor in a domain, nil if it has none. It appends to
// counted the entries that the limit counts by: those of the descriptor, but the pattern in
// place of a value that shares its counter with others.
//
// At each level the exact descriptor is taken, else the first wildcard in the order of the
// file, else the one of the bare key. What was taken is not given up where no limit is
// found below it. A limit applies at the last entry only.
func (c *Config) Lookup(domain string, entries, counted []Entry) (*Limit, []Entry) {
	at := c.domains[domain]
	if at == nil {
		return nil, counted
	}
	begin := len(counted)
	for i, e := range entries {
		n, wild := at.find(e)
		if n == nil {
			break
		}
		if wild && n.shared {
			counted = append(counted, Entry{Key: n.text})
		} else {
			counted = append(counted, e)
		}
		if i == len(entries)-1 {
			return n.limit, counted
		}
		at = &n.below
	}
	return nil, counted[:begin]
}

// maxSteps bounds how many entries LookupUnordered looks up.
const maxSteps = 1024

// LookupUnordered is Lookup for entries that have no order, each key once: in the first order, by keys, that a limit of
// the domain has. counted are in that order. If there are too many orders to try, all is false: there may be a limit.
func (c *Config) LookupUnordered(domain string, entries []Entry) (l *Limit, counted []Entry, all bool) {
	at := c.domains[domain]
	if at == nil {
		return nil, nil, true
	}
	x := unordered{left: slices.Clone(entries), steps: maxSteps}
	slices.SortFunc(x.left, func(a, b Entry) int { return strings.Compare(a.Key, b.Key) })
	l = x.limit(at)
	return l, x.counted, l != nil || x.steps >= 0
}

// unordered is a search for the order of entries.
type unordered struct {
	left, counted []Entry
	steps         int // that are left; negative: the search was cut off
}

func (x *unordered) limit(at *level) *Limit {
	for i, e := range x.left {
		if x.steps--; x.steps < 0 {
			return nil
		}
		n, wild := at.find(e)
		if n == nil {
			continue
		}
		shown := e
		if wild && n.shared {
			shown = Entry{Key: n.text}
		}
		x.left, x.counted = slices.Delete(x.left, i, i+1), append(x.counted, shown)
		if len(x.left) == 0 && n.limit != nil {
			return n.limit
		}
		if l := x.limit(&n.below); l != nil {
			return l
		}
		x.left, x.counted = slices.Insert(x.left, i, e), x.counted[:len(x.counted)-1]
	}
	return nil
}

// Lines describes each limit in a line, sorted by their paths.
func (c *Config) Lines() (out []string) {
	_ = c.Each(func(l *Limit) error { // f returns no error
		line := fmt.Sprintf("%s: unit=%s requests_per_unit=%d", l.Path, strings.ToUpper(l.Unit.String()), l.Requests)
		if l.Unlimited {
			line = l.Path + ": unlimited"
		}
		out = append(out, fmt.Sprintf("%s, shadow_mode: %t, quota_mode: %t%s", line, l.Shadow, l.Quota, &l.Form))
		return nil
	})
	slices.Sort(out)
	return out
}

package weirwire

import (
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// dictionary numbers the limits and rules of one reply in the order of their first use.
type dictionary struct {
	last    counter // the limit used last, which is often used next
	lastAt  uint32
	limits  map[counter]uint32
	infos   []*weirv1.LimitInfo // includes those of earlier replies, for reuse
	used    int
	rules   map[string]uint32
	ordered []string // rules
}

type counter struct {
	rule  *limiter.Rule
	limit *limiter.Limit
}

func (n *dictionary) clear() {
	n.last, n.used, n.ordered = counter{}, 0, n.ordered[:0]
	clear(n.limits)
	clear(n.rules)
}

// limit returns the index of a limit. It adds the limit if it is new.
func (n *dictionary) limit(l *limiter.LimitDecision) uint32 {
	c := counter{l.Rule, l.Limit}
	if c == n.last {
		return n.lastAt
	}
	at, known := n.limits[c]
	if !known {
		at = n.add(c)
	}
	n.last, n.lastAt = c, at
	return at
}

func (n *dictionary) add(c counter) uint32 {
	if n.limits == nil {
		n.limits = make(map[counter]uint32)
	}
	if n.used == len(n.infos) {
		n.infos = append(n.infos, new(weirv1.LimitInfo))
	}
	at, m := uint32(n.used), n.infos[n.used]
	n.used++
	n.limits[c] = at
	m.Rule, m.Name, m.Algorithm = c.rule.Name, c.limit.Name(), weirv1.Algorithm(c.limit.Algorithm())
	m.Limit, m.Capacity, m.WindowUs = c.limit.Limit(), c.limit.Capacity(), int64(limiter.Span(c.limit.Window()))
	m.Shadow, m.Calendar = c.rule.Shadow, weirv1.Calendar(c.limit.Calendar())
	return at
}

// rule returns 1 + the index of a rule's name, 0 for an empty name.
func (n *dictionary) rule(name string) uint32 {
	if name == "" {
		return 0
	}
	at, known := n.rules[name]
	if !known {
		if n.rules == nil {
			n.rules = make(map[string]uint32)
		}
		n.ordered = append(n.ordered, name)
		at = uint32(len(n.ordered))
		n.rules[name] = at
	}
	return at
}

// sized returns a slice of length n, which uses the memory of s if that is large
// enough. Its elements have old values.
func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

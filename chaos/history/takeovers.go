package history

import (
	"cmp"
	"fmt"
	"slices"
)

// takeover is a change of who decides a key.
type takeover struct {
	after, before Micros // it came between these
	from, to      string
}

// changes returns the changes of who decided a key that its answers show: another
// node, or another run of the same, as where an owner was killed and owned again when
// it came back before anybody else did.
func (c *analysis) changes(key string, ops []Op) []takeover {
	return takeovers(key, ops, c.runAt)
}

// runAt tells which run of a node it is at an instant, as its clients saw; 0 where
// nobody had asked it yet.
func (c *analysis) runAt(node string, at Micros) int {
	if c.runs == nil {
		c.runs = make(map[string]map[int]Micros)
		for i := range c.Ops {
			o := &c.Ops[i]
			name := fmt.Sprintf("node-%d", o.Node+1)
			if c.runs[name] == nil {
				c.runs[name] = make(map[int]Micros)
			}
			if first, seen := c.runs[name][o.Run]; !seen || o.Call < first {
				c.runs[name][o.Run] = o.Call
			}
		}
	}
	run := 0
	for n, first := range c.runs[node] {
		if first <= at {
			run = max(run, n)
		}
	}
	return run
}

// takeovers returns the changes of who decided a key that its answers show; runAt,
// if it is not nil, tells which run of a node it was. A change that no answer shows
// admitted nothing.
func takeovers(key string, ops []Op, runAt func(node string, at Micros) int) []takeover {
	var decided []Op
	for _, o := range ops {
		if o.Counted() && owner(&o, key) != "" {
			decided = append(decided, o)
		}
	}
	slices.SortFunc(decided, func(a, b Op) int { return cmp.Compare(a.Return, b.Return) })
	var out []takeover
	for i := 1; i < len(decided); i++ {
		from, to := owner(&decided[i-1], key), owner(&decided[i], key)
		if from != to || runAt != nil && runAt(from, decided[i-1].Return) != runAt(to, decided[i].Return) {
			out = append(out, takeover{decided[i-1].Call, decided[i].Return, from, to})
		}
	}
	return out
}

// each is what a takeover may cost.
func (h *History) each(r *Rule) int {
	if h.Allows.Raised && r.Policy != "closed" {
		return max(r.D(), r.Share(h.Nodes-h.Left))
	}
	return r.D()
}

// owner returns who decided a key of a check, "" if the answer does not say. Of a lease, which outlives its owner,
// it is who lent it: that says nothing of who decides.
func owner(o *Op, key string) string {
	if o.Source == SourceLeased {
		return ""
	}
	if i := slices.Index(o.Keys, key); i >= 0 && i < len(o.Owners) {
		return o.Owners[i]
	}
	return ""
}

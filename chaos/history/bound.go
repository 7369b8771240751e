package history

import (
	"cmp"
	"fmt"
	"slices"
)

// Worst is a key that came nearest to its bound, or went beyond it, or that was admitted
// most beyond what is promised without faults.
type Worst struct {
	Rule, Key string
	// Admitted in the worst window, Promised without faults, Bound with those
	// that were seen, of which Takeovers.
	Admitted, Promised, Bound, Takeovers int
}

// Over is how many units more than promised without faults were admitted.
func (w *Worst) Over() int { return max(0, w.Admitted-w.Promised) }

// may is how many units more that may be.
func (w *Worst) may() int { return w.Bound - w.Promised }

// Bounds sweeps the answers of owners and heirs, key by key, for a window with
// more than the run allows. It returns, of each rule, the key that came nearest to its
// bound and the one that was over by most, and what is beyond its bound.
func (h *History) Bounds() (worst, most []Worst, violations []error) {
	for i := range h.Rules {
		r := &h.Rules[i]
		var of, over *Worst
		for key, ops := range h.byKey(r.Name) {
			w := h.bound(r, key, ops)
			if w.Admitted > w.Bound {
				violations = append(violations, fmt.Errorf("%s, key %s: %d admitted by owners and heirs in one window, at most %d (%d without faults, %d takeovers seen, D %d)",
					r.Name, key, w.Admitted, w.Bound, w.Promised, w.Takeovers, h.each(r)))
			}
			if of == nil || w.Admitted-w.Bound > of.Admitted-of.Bound {
				of = &w
			}
			if over == nil || w.Over() > over.Over() || w.Over() == over.Over() && w.may() < over.may() {
				over = &w
			}
		}
		if of != nil {
			worst, most = append(worst, *of), append(most, *over)
		}
	}
	return worst, most, append(violations, h.policies()...)
}

// byKey returns the checks of a rule by their keys.
func (h *History) byKey(rule string) map[string][]Op {
	out := make(map[string][]Op)
	for _, o := range h.Ops {
		if o.Rule == rule {
			for _, k := range o.Keys {
				out[k] = append(out[k], o)
			}
		}
	}
	return out
}

func (h *History) bound(r *Rule, key string, ops []Op) Worst {
	var in []Op
	for _, o := range ops {
		if o.Outcome == Allowed && o.Counted() {
			in = append(in, o)
		}
	}
	times := h.Allows.Of(r.Policy)
	w := Worst{Rule: r.Name, Key: key, Takeovers: h.takeovers(r, key, ops)}
	w.Admitted, w.Promised = sweep(r, in)
	w.Bound = int(times*float64(w.Promised)) + w.Takeovers*h.each(r)
	return w
}

// sweep returns the window with the largest excess over what the rule admits:
// how much was certainly decided in it, and how much may be.
func sweep(r *Rule, in []Op) (admitted, promised int) {
	slices.SortFunc(in, func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
	promised = r.most()
	for i := range in {
		start := in[i].Call
		// All that was called at or after start and returned by its end was decided
		// in between.
		var ends []Micros
		for j := i; j < len(in) && (r.Burst > 0 || in[j].Call-start < r.Window); j++ {
			ends = append(ends, in[j].Return)
		}
		slices.Sort(ends)
		for n, end := range ends {
			most := r.Limit
			if r.Burst > 0 {
				most = r.Burst + int(int64(r.Limit)*int64(end-start)/int64(r.Window)) + 1
			} else if end-start >= r.Window {
				break
			}
			if n+1-most > admitted-promised {
				admitted, promised = n+1, most
			}
		}
	}
	return admitted, promised
}

// takeover is a change of who decides a key.
type takeover struct {
	after, before Micros // it came between these
	from, to      string
}

// changes returns the changes of who decided a key that its answers show: another
// node, or another run of the same, as where an owner was killed and owned again when
// it came back before anybody else did.
func (h *History) changes(key string, ops []Op) []takeover {
	return takeovers(key, ops, h.runAt)
}

// runAt tells which run of a node it is at an instant, as its clients saw; 0 where
// nobody had asked it yet.
func (h *History) runAt(node string, at Micros) int {
	if h.runs == nil {
		h.runs = make(map[string]map[int]Micros)
		for i := range h.Ops {
			o := &h.Ops[i]
			name := fmt.Sprintf("node-%d", o.Node+1)
			if h.runs[name] == nil {
				h.runs[name] = make(map[int]Micros)
			}
			if first, seen := h.runs[name][o.Run]; !seen || o.Call < first {
				h.runs[name][o.Run] = o.Call
			}
		}
	}
	run := 0
	for n, first := range h.runs[node] {
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

// takeovers is how many of them may have cost D. Graceful changes cost nothing.
// Where a key may have two owners, because a split has two sides, they answer in
// turn without any takeover. There changes are counted as each node that was asked
// saw them, and those that several saw once.
func (h *History) takeovers(r *Rule, key string, ops []Op) int {
	if h.graceful() {
		return 0
	}
	if h.Allows.Of(r.Policy) <= 1 {
		return len(h.changes(key, ops))
	}
	asked := make(map[int][]Op)
	for _, o := range ops {
		asked[o.Node] = append(asked[o.Node], o)
	}
	most := make(map[[2]string]int)
	for _, of := range asked {
		seen := make(map[[2]string]int)
		for _, t := range h.changes(key, of) {
			change := [2]string{t.from, t.to}
			seen[change]++
			most[change] = max(most[change], seen[change])
		}
	}
	sum := 0
	for _, n := range most {
		sum += n
	}
	return sum
}

// each is what a takeover may cost.
func (h *History) each(r *Rule) int {
	if h.Allows.Raised && r.Policy != "closed" {
		return max(r.D(), r.Share(h.Nodes-h.Left))
	}
	return r.D()
}

// owner returns who decided a key of a check, "" if the answer does not say.
func owner(o *Op, key string) string {
	if i := slices.Index(o.Keys, key); i >= 0 && i < len(o.Owners) {
		return o.Owners[i]
	}
	return ""
}

// policies: what a node's policy admits by itself is its share, for each run of
// the node, whose fallback table ends with it.
func (h *History) policies() []error {
	var out []error
	type place struct {
		node, run int
	}
	for i := range h.Rules {
		r := &h.Rules[i]
		for key, ops := range h.byKey(r.Name) {
			by := make(map[place][]Op)
			for _, o := range ops {
				if o.ByPolicy() && o.Outcome == Allowed && !r.Several {
					by[place{o.Node, o.Run}] = append(by[place{o.Node, o.Run}], o)
				}
			}
			share := *r
			share.Limit, share.Burst = max(1, r.Limit/(h.Nodes-h.Left)), 0
			if r.Burst > 0 {
				share.Burst = r.Share(h.Nodes - h.Left)
			}
			if r.Policy == "open" {
				share = *r
			}
			for at, in := range by {
				admitted, most := sweep(&share, in)
				if r.Policy == "closed" {
					most = 0
				}
				if admitted > most {
					out = append(out, fmt.Errorf("%s, key %s: the policy of node %d admitted %d in one window by itself, at most %d", r.Name, key, at.node, admitted, most))
				}
			}
		}
	}
	return out
}

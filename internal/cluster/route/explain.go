package route

import (
	"slices"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Explained is the explanation of one key of a charge.
type Explained struct {
	// By is the member that answered; 0 if none did before the deadline.
	By peer.Instance
	// Owner is the member that owned the key, as far as this node knew when it asked; 0
	// if none was known. It differs from By only if By is the heir and has taken over.
	Owner peer.Instance
	// Mute means that By answered without reasons: By, or the member that relayed the
	// question, runs a version that does not support them.
	Mute bool
	// Answer is the decision that a check of this key alone would get.
	Answer limiter.Decision
	// Limits are the reasons, in the order of the limits of Answer. The caller fills in
	// names and members.
	Limits []limiter.LimitExplanation
}

// Explain asks the owner of each key of a charge, or its heir, for the decision that a
// check would get, and the reasons. It calls done once, with one element for each key,
// when all have answered or the configured deadline has passed. It charges nothing, and
// no policy answers. Peek of the charge is ignored. The charge is the caller's again
// when Explain returns.
func (c *Router) Explain(t *Turn, charge *arith.Charge, done func([]Explained)) {
	out := make([]Explained, charge.Len())
	if len(out) == 0 {
		done(out)
		return
	}
	var open atomic.Int64
	open.Store(int64(len(out)))
	for i := range out {
		k := &arith.Charge{Peek: true, ID: charge.ID}
		k.Add(*charge.Key(i))
		owner, _ := c.Owner(k)
		if p := c.where(k.Key(0)); owner == 0 && p.Managed {
			owner = c.config.View().Owner(p.Partition)
		}
		c.start(t, &Call{task: task{kind: KindExplain, charge: k, answer: &out[i].Answer, done: func(_ *Turn, o *Call) {
			o.conclude(&out[i], owner)
			if open.Add(-1) == 0 {
				done(out)
			}
		}}})
	}
}

// explained records the reasons that this node itself has given.
func (o *Call) explained(told []limiter.LimitExplanation) {
	if o.task.kind == KindExplain {
		o.mu.Lock()
		o.result.reasons = told
		o.mu.Unlock()
	}
}

// conclude fills x with the result of an explanation that has ended. owner is the member
// that owned the key when it began.
func (o *Call) conclude(x *Explained, owner peer.Instance) {
	o.mu.Lock()
	defer o.mu.Unlock()
	x.By, x.Owner = o.result.by, owner
	if x.By == 0 {
		return
	}
	if x.Answer.Source != limiter.SourceHeir {
		x.Owner = x.By
	}
	if x.Mute = len(o.result.reasons) != x.Answer.Len(); !x.Mute {
		x.Limits = o.result.reasons
	}
}

// reasonsIn returns the reasons of a reply; nil if there are none.
func reasonsIn(f *peer.Frame, r *peer.Reply) (told []limiter.LimitExplanation) {
	i := slices.IndexFunc(f.Explained, func(e peer.Explanation) bool { return e.ID == r.ID })
	if i < 0 {
		return nil
	}
	for j := range f.Explained[i].Limits {
		l := &f.Explained[i].Limits[j]
		y := limiter.LimitExplanation{Limit: l.Limit, Known: l.Known, Arithmetic: l.Arithmetic, Now: limiter.Tick(l.Now)}
		for _, s := range l.State {
			y.State = append(y.State, limiter.Field(s))
		}
		for _, w := range l.Counts {
			y.Counts = append(y.Counts, limiter.WindowCount{Start: limiter.Tick(w.Start), End: limiter.Tick(w.End),
				Count: w.Count})
		}
		told = append(told, y)
	}
	return told
}

// Together overwrites d with one decision, made of the answers for all keys of a charge.
func Together(all []Explained, d *limiter.Decision) {
	d.Clear()
	total := 0
	for i := range all {
		total += all[i].Answer.Len()
	}
	d.Grow(total)
	n, repeated, charged := 0, false, false
	for i := range all {
		a := &all[i].Answer
		for j := range a.Len() {
			*d.Limit(n) = *a.Limit(j)
			d.Limit(n).Key = i
			charged = charged || a.Limit(j).Cost > 0 && !a.Repeated
			n++
		}
		repeated = repeated || a.Repeated
		d.Source = graver(d.Source, a.Source)
	}
	if arith.Combine(d, true); repeated && !charged { // all keys that the check charges know its id
		arith.Repeat(d)
	}
	arith.Conclude(d)
}

package weir

import (
	"cmp"
	"context"

	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/rules"
)

// Explain returns how a request would be decided now, and why: each key, its state, the
// arithmetic and, in a cluster, its owner and the member that answered. Any member may
// be asked; the owner of each key, or its heir, explains it. Explain changes no
// counter, causes no copying and does not count in the lists of top keys.
//
// The error wraps [ErrInvalid] for a request that cannot be decided. In a cluster it
// may wrap [ErrUnanswered], if no member that holds a key answered within the cluster's
// deadline, [ErrUnexplained] or [ErrJoining]. Otherwise it is [ErrClosed], the
// context's error, or states that the backend does not answer.
func (n *Node) Explain(ctx context.Context, r Request) (*Explanation, error) {
	if err := n.usable(ctx); err != nil {
		return nil, err
	}
	set := n.node.Rules.Load()
	e, err := n.explainBy(ctx, set, r)
	for last := e; err == nil; {
		if set, _ = set.Next(&r, last.Decision); set == nil {
			return e, nil
		}
		if last, err = n.explainBy(ctx, set, r); err == nil && sooner(last.Decision, e.Decision) {
			e = last
		}
	}
	return nil, err
}

// explainBy is Explain by one set of rules, without the alternatives.
func (n *Node) explainBy(ctx context.Context, set *rules.Set, r Request) (*Explanation, error) {
	q := &engine.Question{Set: set, Request: &r}
	m, err := q.Set.Resolve(&r, &q.Charge)
	if err != nil {
		return nil, n.node.Refused(err)
	}
	d := new(Decision)
	e, err := n.decider.Explain(ctx, q, d)
	if err != nil {
		return nil, err
	}
	d.Rule = cmp.Or(d.Rule, m.Rule)
	if m.Outcome.Has(rules.Denied) {
		arith.DenyByRule(d, q.Set.Rule(m.Rule))
	}
	if m.Outcome.Has(rules.Overridden) {
		engine.Overridden(d)
	}
	d.ShadowDenied = d.ShadowDenied || m.Outcome.Has(rules.ShadowDenied)
	if q.Set.Doubled() {
		foldLimits(e, arith.Fold(d), d.Len())
	}
	e.Unlimited, e.Decision, e.Answer = m.Outcome.Has(rules.Unlimited), d, answerOf(q.Set, &r, d)
	e.Rules = q.Set.Matching(&r) // in JSON an empty list, as are the limits, if there is none
	if e.Limits == nil {
		e.Limits = []limiter.LimitExplanation{}
	}
	for i := range e.Limits {
		e.Limits[i].Name, e.Limits[i].Key = e.Answer.Limits[i].Name, e.Answer.Limits[i].Key
	}
	return e, nil
}

// foldLimits keeps one of each two limits, as [arith.Fold] has done.
func foldLimits(e *Explanation, second uint64, n int) {
	if len(e.Limits) != 2*n {
		return
	}
	for i := range min(n, 64) {
		if second>>i&1 != 0 {
			e.Limits[i] = e.Limits[n+i]
		}
	}
	e.Limits = e.Limits[:n]
}

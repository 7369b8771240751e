// Package engine holds what a node shares with the part of it that decides: its own
// table, a backend, or its membership of a cluster.
package engine

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/rules"
)

// Decider decides the checks of a node. It is safe for concurrent use. Before each call
// the node has checked that it is not closed and that the context has not ended.
type Decider interface {
	// Check resolves and decides a request into d, and charges it unless it is a peek.
	Check(ctx context.Context, set *rules.Set, r *limiter.Request, d *limiter.Decision, peek bool) error
	// CheckBatch is Check for several requests, as if one after the other. An error
	// means that none was decided.
	CheckBatch(ctx context.Context, set *rules.Set, rs []limiter.Request, ds []limiter.Decision, peeks Peeks) (Undecided,
		error)
	// Refund takes back the charge that a receipt names.
	Refund(ctx context.Context, q *Question, receipt limiter.Receipt) error
	// Amend settles or extends the reservation of the question's id.
	Amend(ctx context.Context, q *Question, a limiter.Amend) (limiter.Amended, error)
	// Reset forgets the counters of a request, and returns how many there were.
	Reset(ctx context.Context, q *Question) (int, error)
	// Explain writes into d what a check would find, and returns the instant and the
	// limits of it. It charges nothing.
	Explain(ctx context.Context, q *Question, d *limiter.Decision) (*limiter.Explanation, error)
	// RulesSet is called with the hash of new rules after they came into force.
	RulesSet(hash uint64)
	// Ready returns nil if the node is ready for requests, otherwise the reason.
	Ready() error
	// Warnings describes why a node that is ready decides otherwise than its rules say;
	// nil if it does not.
	Warnings() []string
	// Close ends the decider.
	Close() error
}

// Peeks states which requests of a batch are peeks: those that Each has true for, by their
// index, or all of them. The zero value states that none is.
type Peeks struct {
	All  bool
	Each []bool
}

// Has reports whether request i is a peek.
func (p Peeks) Has(i int) bool { return p.All || i < len(p.Each) && p.Each[i] }

// Question is a request that rules have resolved.
type Question struct {
	Set     *rules.Set
	Request *limiter.Request
	Charge  arith.Charge
}

// AppendName appends the readable name of key k, without the limit, such as /towns:ada.
// It is a [arith.KeyNamer] for this question's charge only.
func (q *Question) AppendName(dst []byte, _, k int) []byte {
	return q.Set.AppendKeyName(dst, q.Request, q.Charge.Key(k), nil)
}

// Name returns what AppendName appends.
func (q *Question) Name(k int) string { return string(q.AppendName(nil, 0, k)) }

// WithoutHold returns an error for a request that is to be held, for a decider that has no
// reservations; where says which.
func WithoutHold(r *limiter.Request, where string) error {
	if r.Hold == 0 {
		return nil
	}
	return NoHolds(where)
}

// NoHolds is the error of a decider that has no reservations; where says which.
func NoHolds(where string) error {
	return fmt.Errorf("%w: reservations are not supported %s yet: use nodes that count themselves, or charge for good "+
		"and leave out the hold", limiter.ErrInvalid, where)
}

// Undecided lists the requests of a batch that could not be decided: their indices,
// ascending, and the error of each.
type Undecided struct {
	Index []int
	Errs  []error
}

// Add records that request i could not be decided. It clears the decision and sets it to
// denied.
func (u *Undecided) Add(i int, d *limiter.Decision, err error) {
	d.Refuse()
	u.Index, u.Errs = append(u.Index, i), append(u.Errs, err)
}

// Node is the part of a node that its decider uses. Its fields do not change once the
// node is open, except for the contents of the atomics.
type Node struct {
	Table *table.Table
	// Slices are the rates of keys that it has divided.
	Slices Slices
	Tables table.Config
	// Secret and ClusterName key the hash that names counters.
	Secret      []byte
	ClusterName string
	// SecondSecret is another one under which all is counted, too; empty for none.
	SecondSecret []byte
	// Observer has the functions that learn what the node does; a nil function is not called.
	Observer limiter.Observer
	// Log receives what operators should know. It is not nil.
	Log *slog.Logger
	// Clock is the embedder's clock. If it is nil, the clock is Opened plus the time
	// elapsed since.
	Clock  func() time.Time
	Opened time.Time
	Rules  atomic.Pointer[rules.Set]
	// Text is the file that the rules were made from; nil if there is none.
	Text atomic.Pointer[Text]
	// Closed is set once, when the node closes.
	Closed atomic.Bool

	full [table.Bounds]fullNews
}

// Text is the file that a set of rules was made from.
type Text struct {
	Set  *rules.Set
	File []byte
}

// Now returns the node's present time.
func (n *Node) Now() limiter.Tick {
	if n.Clock != nil {
		return limiter.TickOf(n.Clock())
	}
	return limiter.TickOf(n.Opened) + limiter.Tick(time.Since(n.Opened)/limiter.TickDuration)
}

// Refused reports an error to the observer and returns it.
func (n *Node) Refused(err error) error {
	if n.Observer.Refused != nil {
		n.Observer.Refused(err)
	}
	return err
}

// Decided completes the decision of a request that the set has resolved, and reports it to the observer: by the tally
// alike, if it is not nil.
func (n *Node) Decided(set *rules.Set, r *limiter.Request, m rules.Match, d *limiter.Decision, alike *Tally) {
	next, _ := set.Next(r, d)
	onward := next != nil // then it is not the answer yet
	if m.Outcome > rules.Unlimited {
		n.ruled(set, r, m, d, onward)
	}
	if d.Rule == "" {
		d.Rule = m.Rule
	}
	if onward {
		return
	}
	if u := m.Unzoned; u != nil {
		if u.Number && n.Observer.Unlisted != nil {
			n.Observer.Unlisted(u.Rule, u.Missing)
		} else if !u.Number && n.Observer.Unzoned != nil {
			n.Observer.Unzoned(u.Rule, u.Missing)
		}
	}
	if m.Shadow && n.Observer.Shadowed != nil {
		n.shadowed(d)
	}
	if d.Repeated && n.Observer.Repeated != nil {
		n.Observer.Repeated(d.Rule)
	}
	switch {
	case r.Lent:
		if n.Observer.Lent != nil {
			n.Observer.Lent(d.Rule, !d.Allowed)
		}
	case n.Observer.Checked == nil:
	case alike != nil:
		alike.add(n.Observer.Checked, d)
	default:
		n.Observer.Checked(1, d.Rule, d.Source, d.Allowed, d.ShadowDenied)
	}
}

// ruled is the part of Decided for rules that deny each request. Nothing is observed of a decision that leads onward.
func (n *Node) ruled(set *rules.Set, r *limiter.Request, m rules.Match, d *limiter.Decision, onward bool) {
	if m.Outcome.Has(rules.Denied) {
		arith.DenyByRule(d, set.Rule(m.Rule))
	}
	if m.Outcome.Has(rules.Overridden) {
		Overridden(d)
		if !onward && n.Observer.Overridden != nil {
			n.Observer.Overridden(cmp.Or(d.Rule, m.Rule), !d.Allowed)
		}
	}
	if !m.Outcome.Has(rules.ShadowDenied) {
		return
	}
	d.ShadowDenied = true
	if onward || n.Observer.Shadowed == nil {
		return
	}
	for _, name := range set.Matching(r) {
		if rule := set.Rule(name); rule != nil && rule.Shadow && rule.Deny != nil {
			n.Observer.Shadowed(name, true)
		}
	}
}

// Overridden completes a decision for which an override decided: the rule that it names is the one that is overridden.
func Overridden(d *limiter.Decision) {
	d.Overridden = true
	d.Rule = strings.TrimPrefix(d.Rule, rules.OverridePrefix)
}

// shadowed tells what each shadow rule of a decision would have decided. The counters of a
// rule follow each other.
func (n *Node) shadowed(d *limiter.Decision) {
	for i := 0; i < d.Len(); {
		rule, denied := d.Limit(i).Rule, false
		for ; i < d.Len() && d.Limit(i).Rule == rule; i++ {
			denied = denied || !d.Limit(i).Allowed
		}
		if rule.Shadow {
			n.Observer.Shadowed(rule.Name, denied)
		}
	}
}

// Tally counts consecutive decisions of a batch that are alike, to report them together.
// It is not safe for concurrent use.
type Tally struct {
	n       int
	rule    string
	source  limiter.Source
	allowed bool
	shadow  bool
}

// add counts a decision. If it differs from those before, it reports those first.
func (t *Tally) add(checked func(int, string, limiter.Source, bool, bool), d *limiter.Decision) {
	if t.n > 0 && (d.Rule != t.rule || d.Source != t.source || d.Allowed != t.allowed || d.ShadowDenied != t.shadow) {
		t.Tell(checked)
	}
	if t.n == 0 {
		t.rule, t.source, t.allowed, t.shadow = d.Rule, d.Source, d.Allowed, d.ShadowDenied
	}
	t.n++
}

// Tell reports the decisions counted so far and starts anew. checked may be nil if none were counted.
func (t *Tally) Tell(checked func(n int, rule string, source limiter.Source, allowed, shadowDenied bool)) {
	if t.n > 0 {
		checked(t.n, t.rule, t.source, t.allowed, t.shadow)
		t.n = 0
	}
}

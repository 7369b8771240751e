// Package engine is what lies between a node and the part of it that decides: its own
// table, a backend, or a member of a cluster.
package engine

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/rules"
)

// Decider decides what a node is asked. It is safe for concurrent use. The node has
// seen to it that it is not closed and that the context has not ended.
type Decider interface {
	// Check resolves and decides a request, and charges it unless it is a peek.
	Check(ctx context.Context, set *rules.Set, r *limiter.Request, d *limiter.Decision, peek bool) error
	// CheckBatch does so for requests one after the other. An error means that none was
	// decided.
	CheckBatch(ctx context.Context, set *rules.Set, rs []limiter.Request, ds []limiter.Decision) (Undecided, error)
	// Refund takes back the charge that a receipt names.
	Refund(ctx context.Context, q *Question, receipt limiter.Receipt) error
	// Reset forgets the counters of a request, and returns how many there were.
	Reset(ctx context.Context, q *Question) (int, error)
	// Explain tells what a check would find, in d and in the instant and the limits of
	// what it returns.
	Explain(ctx context.Context, q *Question, d *limiter.Decision) (*limiter.Explanation, error)
	// RulesSet is called when rules have come into force.
	RulesSet(hash uint64)
	// Ready tells why the node should not be asked, nil if it may be.
	Ready() error
	// Close ends it.
	Close() error
}

// Question is a request that rules have resolved.
type Question struct {
	Set     *rules.Set
	Request *limiter.Request
	Charge  limiter.Charge
}

// AppendName appends what people call key k, without the limit, such as /towns:ada.
// It is a [limiter.KeyNamer], of one charge.
func (q *Question) AppendName(dst []byte, _, k int) []byte {
	return q.Set.AppendKeyName(dst, q.Request, q.Charge.Key(k), nil)
}

// Name returns what AppendName appends.
func (q *Question) Name(k int) string { return string(q.AppendName(nil, 0, k)) }

// Undecided is which requests of a batch could not be decided, ascending, and why.
type Undecided struct {
	Index []int
	Errs  []error
}

// Add notes that request i could not be decided.
func (u *Undecided) Add(i int, d *limiter.Decision, err error) {
	d.Clear()
	d.Allowed = false
	u.Index, u.Errs = append(u.Index, i), append(u.Errs, err)
}

// Observer is told what is decided, as the observer of the root package is.
type Observer interface {
	Checked(n int, rule string, source limiter.Source, allowed, shadowDenied bool)
	Refused(err error)
}

// Node is what a decider has of its node. Its fields do not change once the node is
// open.
type Node struct {
	Table *table.Table
	// Tables configures Table.
	Tables table.Config
	// Secret and ClusterName are those that key the hash of counters.
	Secret      []byte
	ClusterName string
	// Observer is told of decisions; nil: nobody is.
	Observer Observer
	// Log is told what deserves an operator's attention; it is not nil.
	Log *slog.Logger
	// Clock is the embedder's; nil: Opened and the time since.
	Clock  func() time.Time
	Opened time.Time
	// Rules are those in force.
	Rules atomic.Pointer[rules.Set]
	// Text is the file they were made of, nil if there is none.
	Text atomic.Pointer[Text]
	// Closed is set once, by whoever closes the node.
	Closed atomic.Bool
}

// Text is the file that rules were made of.
type Text struct {
	Set  *rules.Set
	File []byte
}

// Now reads the clock.
func (n *Node) Now() limiter.Tick {
	if n.Clock != nil {
		return limiter.TickOf(n.Clock())
	}
	return limiter.TickOf(n.Opened) + limiter.Tick(time.Since(n.Opened)/limiter.TickDuration)
}

// Refused has an error counted, and returns it.
func (n *Node) Refused(err error) error {
	if n.Observer != nil {
		n.Observer.Refused(err)
	}
	return err
}

// Decided completes a decision, and has it counted: in a tally, if there is one.
func (n *Node) Decided(m rules.Match, d *limiter.Decision, alike *Tally) {
	if d.Rule == "" {
		d.Rule = m.Rule
	}
	switch {
	case n.Observer == nil:
	case alike != nil:
		alike.add(n.Observer, d)
	default:
		n.Observer.Checked(1, d.Rule, d.Source, d.Allowed, d.ShadowDenied)
	}
}

// Tally is decisions of a batch that came after one another and are counted alike.
type Tally struct {
	n       int
	rule    string
	source  limiter.Source
	allowed bool
	shadow  bool
}

// add counts a decision, and tells of those before it if it is not like them.
func (t *Tally) add(o Observer, d *limiter.Decision) {
	if t.n > 0 && (d.Rule != t.rule || d.Source != t.source || d.Allowed != t.allowed || d.ShadowDenied != t.shadow) {
		t.Tell(o)
	}
	if t.n == 0 {
		t.rule, t.source, t.allowed, t.shadow = d.Rule, d.Source, d.Allowed, d.ShadowDenied
	}
	t.n++
}

// Tell has the observer know what was counted.
func (t *Tally) Tell(o Observer) {
	if t.n > 0 {
		o.Checked(t.n, t.rule, t.source, t.allowed, t.shadow)
		t.n = 0
	}
}

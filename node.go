package weir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/rules"
)

// ErrClosed is returned by the methods of a [Node] after Close.
var ErrClosed = errors.New("weir: the node is closed")

// minBytes is the least of [Config.MaxBytes]: an empty table, and a chunk for words of
// each size, take some three million.
const minBytes = 8 << 20

// Node decides checks. It is safe for concurrent use.
type Node struct {
	node    engine.Node
	decider engine.Decider
	cluster Cluster
	options rules.Options
	file    string
	watch   Observer     // nil: nobody
	log     *slog.Logger // nil: nobody
}

// Open returns a node that is ready to decide. It returns an error that wraps
// [ErrInvalid], with all that is wrong, where the rules are; the context is
// for opening only and may be cancelled afterwards.
func Open(ctx context.Context, c Config) (*Node, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if c.MaxKeys < 0 {
		return nil, fmt.Errorf("%w: MaxKeys %d is negative; give the number of counters to hold, or 0 for %d", ErrInvalid, c.MaxKeys, table.DefaultMaxKeys)
	}
	if c.MaxBytes > 0 && c.MaxBytes < minBytes {
		return nil, fmt.Errorf("%w: MaxBytes %d is too little for a table: give %d or more, 0 for 256 bytes for each of MaxKeys, or a negative number for no bound", ErrInvalid, c.MaxBytes, minBytes)
	}
	if c.Overflow > OverflowAllow {
		return nil, fmt.Errorf("%w: there is no Overflow number %d; give OverflowDeny or OverflowAllow", ErrInvalid, c.Overflow)
	}
	if c.Replication > ReplicationOff {
		return nil, fmt.Errorf("%w: there is no Replication number %d; give ReplicationLag, ReplicationStrict or ReplicationOff", ErrInvalid, c.Replication)
	}
	if c.Cluster != nil && c.Backend != nil {
		return nil, fmt.Errorf("%w: Cluster and Backend are both given, but a backend is shared by itself: give one of them", ErrInvalid)
	}
	if c.RulesFile == "" {
		c.RulesFile = "rules"
	}
	if len(c.Secret) == 0 && c.Cluster == nil && c.Backend == nil {
		// Nobody else has to find this node's counters, so nobody needs to be able to
		// search for keys that share one, or a partition.
		c.Secret = make([]byte, 32)
		_, _ = rand.Read(c.Secret) // which never fails
	}
	n := &Node{
		cluster: noCluster{},
		options: rules.Options{Secret: c.Secret, ClusterName: c.ClusterName, PathCacheEntries: c.PathCacheEntries, Replication: c.Replication},
		file:    c.RulesFile, watch: c.Observer, log: c.Logger,
	}
	n.node.Tables = table.Config{MaxKeys: c.MaxKeys, MaxBytes: c.MaxBytes, Overflow: c.Overflow}
	n.node.Table = table.New(n.node.Tables)
	n.node.Secret, n.node.ClusterName = c.Secret, c.ClusterName
	n.node.Clock, n.node.Opened = c.Now, time.Now()
	if c.Observer != nil {
		n.node.Observer = c.Observer
	}
	n.node.Log = c.Logger
	if n.node.Log == nil {
		n.node.Log = slog.New(slog.DiscardHandler)
	}
	if len(c.Rules) == 0 {
		n.node.Rules.Store(rules.Empty(n.options))
	} else if err := n.setRules(c.Rules); err != nil {
		return nil, err
	}
	if err := n.choose(ctx, &c); err != nil {
		return nil, err
	}
	return n, nil
}

// choose chooses who decides.
func (n *Node) choose(ctx context.Context, c *Config) (err error) {
	switch {
	case c.Cluster != nil:
		n.decider, n.cluster, err = c.Cluster.OpenMember(ctx, &n.node)
	case c.Backend != nil:
		n.decider = &remote{Node: &n.node, backend: c.Backend}
	default:
		n.decider = &local{Node: &n.node}
	}
	return err
}

// SetRules replaces the rules by the contents of a rules file. Limits whose rule,
// key and name stay keep what was consumed, whatever else of them changes. If
// the file is invalid, the error wraps [ErrInvalid] and says all that is wrong,
// and the old rules stay in force. Checks go on meanwhile. [Config.Logger] is told of
// warnings and of rules that are gone.
func (n *Node) SetRules(file []byte) error {
	if n.node.Closed.Load() {
		return ErrClosed
	}
	if err := n.setRules(file); err != nil {
		return err
	}
	n.decider.RulesSet(n.RulesHash())
	return nil
}

func (n *Node) setRules(file []byte) error {
	set, err := rules.Parse(n.file, file, n.options)
	if err != nil {
		if have := n.node.Rules.Load(); n.watch != nil && have != nil {
			n.watch.RulesSet(have.Hash(), err)
		}
		return err
	}
	n.node.Text.Store(&engine.Text{Set: set, File: slices.Clone(file)})
	if before := n.node.Rules.Swap(set); n.log != nil {
		n.logRules(before, set)
	}
	if n.watch != nil {
		n.watch.RulesSet(set.Hash(), nil)
	}
	return nil
}

// Rules describes the rules in force, in the order of their file.
func (n *Node) Rules() []rules.RuleInfo { return n.node.Rules.Load().Rules() }

// RulesHash returns a hash of what the rules mean, the same in every node that
// has the same rules.
func (n *Node) RulesHash() uint64 { return n.node.Rules.Load().Hash() }

func (n *Node) usable(ctx context.Context) error {
	if n.node.Closed.Load() {
		return ErrClosed
	}
	return ctx.Err()
}

// Check decides a request, charges it if it is allowed, and overwrites d. Both
// are the caller's, are not kept, and may be used again: then a check allocates
// nothing, for up to four limits and unless the request brings its own.
//
// The error is not nil where nothing was decided or counted: it wraps
// [ErrInvalid] for a request that cannot be decided, is [ErrClosed], or is the
// context's. One exception: if the context ends while others are asked, in a
// cluster or with a backend, the check may have been counted; the error wraps the
// context's and says so, and d holds no answer.
func (n *Node) Check(ctx context.Context, r *Request, d *Decision) error {
	return n.check(ctx, r, d, false)
}

// Peek tells what Check would answer, and charges nothing. Its errors are those
// of Check.
func (n *Node) Peek(ctx context.Context, r *Request, d *Decision) error {
	return n.check(ctx, r, d, true)
}

// Decide is Check for those who would rather have the decision returned.
func (n *Node) Decide(ctx context.Context, r Request) (*Decision, error) {
	d := new(Decision)
	if err := n.Check(ctx, &r, d); err != nil {
		return nil, err
	}
	return d, nil
}

func (n *Node) check(ctx context.Context, r *Request, d *Decision, peek bool) error {
	if err := n.usable(ctx); err != nil {
		return err
	}
	return n.decider.Check(ctx, n.node.Rules.Load(), r, d, peek)
}

// BatchError is returned by CheckBatch when some of the requests could not be
// decided; the others were.
type BatchError struct {
	// Index lists the requests at fault, ascending; Errs has the error of each.
	Index []int
	Errs  []error
}

// Error tells the first error and how many there are.
func (e *BatchError) Error() string {
	text := fmt.Sprintf("request %d of the batch: %v", e.Index[0], e.Errs[0])
	if more := len(e.Errs) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

// Failed returns the requests at fault, ascending, and the error of each.
func (e *BatchError) Failed() (index []int, errs []error) { return e.Index, e.Errs }

// Unwrap returns the errors of the requests at fault.
func (e *BatchError) Unwrap() []error { return e.Errs }

// CheckBatch decides requests one after the other, as of one instant, into the
// decisions of the same index. A request that cannot be decided leaves its
// decision denied without a reason, and is in the [*BatchError] that is then
// returned; the others are decided all the same. Where the context ends while
// others are asked, as for Check, its error is among those. Any other error means
// that none was decided.
func (n *Node) CheckBatch(ctx context.Context, rs []Request, ds []Decision) error {
	if err := n.usable(ctx); err != nil {
		return err
	}
	if len(rs) != len(ds) {
		return fmt.Errorf("%w: a batch of %d requests needs as many decisions, not %d", ErrInvalid, len(rs), len(ds))
	}
	bad, err := n.decider.CheckBatch(ctx, n.node.Rules.Load(), rs, ds)
	if err == nil && len(bad.Errs) > 0 {
		err = &BatchError{bad.Index, bad.Errs}
	}
	return err
}

// Refund takes back the charge that a decision of the same request named by its
// receipt, as far as it still counts: a window or log exactly, a bucket what
// has not leaked since. So a refund never admits more than had the charge not
// been made. A receipt is good once, and to be used by whoever got it: using it
// again takes back what others were charged. It is void, and Refund does
// nothing, if the request has another cost or other limits by now, or its keys
// were reset. The hit that opened a window under align: first_hit is taken back
// only if it is alone in it.
//
// In a cluster a receipt is void, too, when its key has changed owners since. If
// nobody who holds the keys answers within the cluster's deadline, the error
// wraps [ErrUnanswered]; if the context ends before, the context's. Either says
// whether the refund may have been made.
func (n *Node) Refund(ctx context.Context, r *Request, receipt Receipt) error {
	q, err := n.resolve(ctx, r)
	if err != nil {
		return err
	}
	return n.decider.Refund(ctx, q, receipt)
}

// Reset forgets all that was counted for the keys of a request, and their
// blocks. It returns how many counters there were. In a cluster, if of some keys
// nobody who holds them answers within the cluster's deadline, the error wraps
// [ErrUnanswered], names those keys and says whether they may have been reset, and
// the number is that of the others; if the context ends before, the error wraps
// the context's. To reset again does no harm. If a member that holds some of the keys
// takes no resets from others, the error wraps [ErrForbidden] and names those keys.
func (n *Node) Reset(ctx context.Context, r *Request) (int, error) {
	q, err := n.resolve(ctx, r)
	if err != nil {
		return 0, err
	}
	return n.decider.Reset(ctx, q)
}

func (n *Node) resolve(ctx context.Context, r *Request) (*engine.Question, error) {
	if err := n.usable(ctx); err != nil {
		return nil, err
	}
	q := &engine.Question{Set: n.node.Rules.Load(), Request: r}
	_, err := q.Set.Resolve(r, &q.Charge)
	return q, err
}

// KeyName returns the name of the counter that a limit of the request's
// decision is about, such as "/towns:ada:minute".
func (n *Node) KeyName(r *Request, l *LimitDecision) string {
	return keyName(n.node.Rules.Load(), r, l)
}

// AppendKeyName appends what KeyName returns to a slice, and returns the extended
// slice.
func (n *Node) AppendKeyName(dst []byte, r *Request, l *LimitDecision) []byte {
	return n.node.Rules.Load().AppendKeyName(dst, r, &limiter.Key{Rule: l.Rule, Index: l.KeyIndex}, l.Limit)
}

func keyName(set *rules.Set, r *Request, l *LimitDecision) string {
	return string(set.AppendKeyName(nil, r, &limiter.Key{Rule: l.Rule, Index: l.KeyIndex}, l.Limit))
}

// Answer returns the decision of a request in the form of its JSON.
func (n *Node) Answer(r *Request, d *Decision) Answer { return n.answer(n.node.Rules.Load(), r, d) }

func (n *Node) answer(set *rules.Set, r *Request, d *Decision) Answer {
	return limiter.NewAnswer(d, func(i int) string { return keyName(set, r, d.Limit(i)) })
}

// Stats returns how many counters the node holds and what they take.
func (n *Node) Stats() Stats { return n.node.Table.Stats() }

// Shares returns what the counters of rules with a max_share take, in the order of their
// names.
func (n *Node) Shares() []Share { return n.node.Table.Shares() }

// Top returns the n keys that were checked most and the n counters that denied
// most, the most first. The first is counted in a sample of one check in 16.
func (n *Node) Top(most int) (hottest, denied []TopKey) { return n.node.Table.Top(most) }

// Ready tells why the node should not be asked, nil if it may be. A node of a
// cluster is ready when it has joined and holds what it should, and stays so
// until it leaves; one that cannot get what it should hold (a minority, say) is
// ready ten seconds after it joined, and answers by policy. But a node that sees
// others, more than a minority, and can talk to none of them is not ready before it
// can, and does not join before. The errors wrap [ErrJoining], [ErrSettling] or
// [ErrLeaving], or are [ErrClosed].
func (n *Node) Ready() error {
	if n.node.Closed.Load() {
		return ErrClosed
	}
	return n.decider.Ready()
}

// Cluster returns the node's part in a cluster. Where the node is in none, lists are
// empty, and what asks for a cluster returns [ErrNoCluster].
func (n *Node) Cluster() Cluster { return n.cluster }

// Close ends the node, and its backend if it has one: all that was counted in
// memory is forgotten, and its methods return [ErrClosed]. Closing twice is no
// error. For a cluster it is a crash: the others find out by themselves, and go
// on from their copies; Leave of [Cluster] is the way out.
func (n *Node) Close() error {
	if n.node.Closed.Swap(true) {
		return nil
	}
	return n.decider.Close()
}

package weir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

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
	table   *table.Table
	backend Backend // nil: the table decides
	member  *member // nil: there is no cluster
	rules   atomic.Pointer[rules.Set]
	text    atomic.Pointer[ruleText] // of the rules; nil: there are none
	placed  atomic.Pointer[placed]
	options rules.Options
	file    string
	watch   Observer         // nil: nobody
	log     *slog.Logger     // nil: nobody
	now     func() time.Time // nil: the node's own clock
	opened  time.Time
	start   limiter.Tick // opened, in ticks
	closed  atomic.Bool

	lookaheads sync.Pool // of *lookahead
	matches    sync.Pool // of *[]rules.Match, for batches in a cluster
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
		table:   table.New(table.Config{MaxKeys: c.MaxKeys, MaxBytes: c.MaxBytes, Overflow: c.Overflow}),
		options: rules.Options{Secret: c.Secret, ClusterName: c.ClusterName, PathCacheEntries: c.PathCacheEntries, Replication: c.Replication},
		backend: c.Backend,
		file:    c.RulesFile,
		watch:   c.Observer,
		log:     c.Logger,
		now:     c.Now,
		opened:  time.Now(),
	}
	if n.log == nil && c.Cluster != nil {
		n.log = c.Cluster.Logger
	}
	n.start = limiter.TickOf(n.opened)
	if len(c.Rules) == 0 {
		n.rules.Store(rules.Empty(n.options))
	} else if err := n.SetRules(c.Rules); err != nil {
		return nil, err
	}
	if c.Cluster != nil {
		var err error
		if n.member, err = openMember(ctx, n, &c); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// SetRules replaces the rules by the contents of a rules file. Limits whose rule,
// key and name stay keep what was consumed, whatever else of them changes. If
// the file is invalid, the error wraps [ErrInvalid] and says all that is wrong,
// and the old rules stay in force. Checks go on meanwhile. [Config.Logger] is told of
// warnings and of rules that are gone.
func (n *Node) SetRules(file []byte) error {
	if n.closed.Load() {
		return ErrClosed
	}
	set, err := rules.Parse(n.file, file, n.options)
	if err != nil {
		if have := n.rules.Load(); n.watch != nil && have != nil {
			n.watch.RulesSet(have.Hash(), err)
		}
		return err
	}
	n.text.Store(&ruleText{set, slices.Clone(file)})
	if before := n.rules.Swap(set); n.log != nil {
		n.logRules(before, set)
	}
	if n.member != nil {
		n.member.setRules(set.Hash())
	}
	if n.watch != nil {
		n.watch.RulesSet(set.Hash(), nil)
	}
	return nil
}

// Rules describes the rules in force, in the order of their file.
func (n *Node) Rules() []rules.RuleInfo { return n.rules.Load().Rules() }

// RulesHash returns a hash of what the rules mean, the same in every node that
// has the same rules.
func (n *Node) RulesHash() uint64 { return n.rules.Load().Hash() }

// tick reads the clock. A backend has one of its own, which -1 stands for.
func (n *Node) tick() limiter.Tick {
	switch {
	case n.now != nil:
		return limiter.TickOf(n.now())
	case n.backend != nil:
		return -1
	}
	return n.start + limiter.Tick(time.Since(n.opened)/limiter.TickDuration)
}

func (n *Node) usable(ctx context.Context) error {
	if n.closed.Load() {
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
	set := n.rules.Load()
	if n.member != nil {
		return n.decideTogether(ctx, set, r, d, peek)
	}
	now := n.tick()
	if n.backend != nil {
		return n.decideThere(ctx, set, now, r, d, peek)
	}
	var c limiter.Charge
	return n.decide(set, now, r, &c, d, peek)
}

// decide decides in memory.
func (n *Node) decide(set *rules.Set, now limiter.Tick, r *Request, c *limiter.Charge, d *Decision, peek bool) error {
	m, err := set.Resolve(r, c)
	if err != nil {
		return n.refused(err)
	}
	c.Peek = peek
	return n.decideResolved(set, now, r, c, m, d, nil)
}

// decideResolved decides what a request was resolved to. It is counted in a tally if
// there is one.
func (n *Node) decideResolved(set *rules.Set, now limiter.Tick, r *Request, c *limiter.Charge, m rules.Match, d *Decision, alike *tally) error {
	if err := n.table.Decide(now, c, d); err != nil {
		return n.refused(err)
	}
	n.decided(set, r, c, m, d, alike)
	return nil
}

// decided completes a decision, and has it counted, in a tally if there is one.
func (n *Node) decided(set *rules.Set, r *Request, c *limiter.Charge, m rules.Match, d *Decision, alike *tally) {
	if d.Rule == "" {
		d.Rule = m.Rule
	}
	if c.Unnamed != 0 {
		n.nameKeys(set, r, c)
	}
	switch {
	case n.watch == nil:
	case alike != nil:
		alike.add(n.watch, d)
	default:
		n.watch.Checked(1, d.Rule, d.Source, d.Allowed, d.ShadowDenied)
	}
}

func (n *Node) refused(err error) error {
	if n.watch != nil {
		n.watch.Refused(err)
	}
	return err
}

// nameKeys tells the table the names of keys that entered a list of top keys.
func (n *Node) nameKeys(set *rules.Set, r *Request, c *limiter.Charge) {
	var buf [limiter.MaxKeyBytes]byte
	for i := range c.Len() {
		if c.Unnamed&(1<<i) != 0 {
			name := set.AppendKeyName(buf[:0], r, c.Key(i), nil)
			if n.member != nil {
				n.member.core.SetName(c.Key(i), name)
				continue
			}
			n.table.SetName(c.Key(i), name)
		}
	}
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

// add notes that request i could not be decided.
func (e *BatchError) add(i int, d *Decision, err error) {
	d.Clear()
	d.Allowed = false
	e.Index, e.Errs = append(e.Index, i), append(e.Errs, err)
}

// orNil returns nil if all were decided.
func (e *BatchError) orNil() error {
	if len(e.Errs) == 0 {
		return nil
	}
	return e
}

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
	set := n.rules.Load()
	if n.member != nil {
		return n.batchTogether(ctx, set, rs, ds)
	}
	now := n.tick()
	if n.backend != nil {
		return n.batchThere(ctx, set, now, rs, ds)
	}
	return n.batchHere(set, now, rs, ds)
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
// nobody who holds the keys answers within [ClusterConfig.Deadline], the error
// wraps [ErrUnanswered]; if the context ends before, the context's. Either says
// whether the refund may have been made.
func (n *Node) Refund(ctx context.Context, r *Request, receipt Receipt) error {
	var c limiter.Charge
	if err := n.resolve(ctx, r, &c); err != nil {
		return err
	}
	if n.member != nil {
		return n.member.refund(ctx, &c, receipt, n.namerOf(r, &c))
	}
	if n.backend != nil {
		return n.backend.Refund(ctx, n.tick(), &c, receipt, namer(n.rules.Load(), r, &c))
	}
	n.table.Refund(n.tick(), &c, receipt)
	return nil
}

// Reset forgets all that was counted for the keys of a request, and their
// blocks. It returns how many counters there were. In a cluster, if of some keys
// nobody who holds them answers within [ClusterConfig.Deadline], the error wraps
// [ErrUnanswered], names those keys and says whether they may have been reset, and
// the number is that of the others; if the context ends before, the error wraps
// the context's. To reset again does no harm. If a member that holds some of the keys
// takes no resets from others, the error wraps [ErrForbidden] and names those keys.
func (n *Node) Reset(ctx context.Context, r *Request) (int, error) {
	var c limiter.Charge
	if err := n.resolve(ctx, r, &c); err != nil {
		return 0, err
	}
	if n.member != nil {
		return n.member.reset(ctx, &c, n.namerOf(r, &c))
	}
	if n.backend != nil {
		return n.backend.Reset(ctx, n.tick(), &c, namer(n.rules.Load(), r, &c))
	}
	return n.table.Reset(n.tick(), &c), nil
}

func (n *Node) resolve(ctx context.Context, r *Request, c *limiter.Charge) error {
	if err := n.usable(ctx); err != nil {
		return err
	}
	_, err := n.rules.Load().Resolve(r, c)
	return err
}

// KeyName returns the name of the counter that a limit of the request's
// decision is about, such as "/towns:ada:minute".
func (n *Node) KeyName(r *Request, l *LimitDecision) string {
	return keyName(n.rules.Load(), r, l)
}

// AppendKeyName appends what KeyName returns to a slice, and returns the extended
// slice.
func (n *Node) AppendKeyName(dst []byte, r *Request, l *LimitDecision) []byte {
	return n.rules.Load().AppendKeyName(dst, r, &limiter.Key{Rule: l.Rule, Index: l.KeyIndex}, l.Limit)
}

func keyName(set *rules.Set, r *Request, l *LimitDecision) string {
	return string(set.AppendKeyName(nil, r, &limiter.Key{Rule: l.Rule, Index: l.KeyIndex}, l.Limit))
}

// Answer returns the decision of a request in the form of its JSON.
func (n *Node) Answer(r *Request, d *Decision) Answer { return n.answer(n.rules.Load(), r, d) }

func (n *Node) answer(set *rules.Set, r *Request, d *Decision) Answer {
	return limiter.NewAnswer(d, func(i int) string { return keyName(set, r, d.Limit(i)) })
}

// Stats returns how many counters the node holds and what they take.
func (n *Node) Stats() Stats { return n.table.Stats() }

// Shares returns what the counters of rules with a max_share take, in the order of their
// names.
func (n *Node) Shares() []Share { return n.table.Shares() }

// Top returns the n keys that were checked most and the n counters that denied
// most, the most first. The first is counted in a sample of one check in 16.
func (n *Node) Top(most int) (hottest, denied []TopKey) { return n.table.Top(most) }

// Close ends the node, and its backend if it has one: all that was counted in
// memory is forgotten, and its methods return [ErrClosed]. Closing twice is no
// error. For a cluster it is a crash: the others find out by themselves, and go
// on from their copies; [Node.Leave] is the way out.
func (n *Node) Close() error {
	switch {
	case n.closed.Swap(true):
		return nil
	case n.member != nil:
		return n.member.close(false)
	case n.backend != nil:
		return n.backend.Close()
	}
	return nil
}

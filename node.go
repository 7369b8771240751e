package weir

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/rules"
)

// ErrClosed is returned by the methods of a [Node] after Close.
var ErrClosed = errors.New("weir: the node is closed")

// minBytes is the smallest [Config.MaxBytes]. An empty table, with one chunk for each
// size of log and sub-window memory, takes about three million bytes.
const minBytes = 8 << 20

// Node decides checks. It is safe for concurrent use.
type Node struct {
	node    engine.Node
	decider engine.Decider
	cluster Cluster
	options rules.Options
	seal    sealKey // of receipts for clients
	file    string
	unheld  bool // a backend counts that has no reservations
	setting sync.Mutex
	// overrides are those in force; setting guards them.
	overrides []rules.Override
	log       *slog.Logger
}

// Open returns a node that is ready to decide. If the configuration or the rules are
// invalid, the error wraps [ErrInvalid]; for rules it names all that is wrong. The
// context bounds opening only and may be cancelled afterwards.
func Open(ctx context.Context, c Config) (*Node, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if c.MaxKeys < 0 {
		return nil, fmt.Errorf("%w: MaxKeys %d is negative; give the number of counters to hold, or 0 for %d", ErrInvalid,
			c.MaxKeys, table.DefaultMaxKeys)
	}
	if c.MaxBytes > 0 && c.MaxBytes < minBytes {
		return nil, fmt.Errorf("%w: MaxBytes %d is too little for a table: give %d or more, 0 for 256 bytes for each of "+
			"MaxKeys, or a negative number for no bound", ErrInvalid, c.MaxBytes, minBytes)
	}
	if c.Overflow > OverflowAllow {
		return nil, fmt.Errorf("%w: there is no Overflow number %d; give OverflowDeny or OverflowAllow", ErrInvalid,
			c.Overflow)
	}
	if c.Replication > ReplicationOff {
		return nil, fmt.Errorf("%w: there is no Replication number %d; give ReplicationLag, ReplicationStrict or "+
			"ReplicationOff", ErrInvalid, c.Replication)
	}
	if c.Cluster != nil && c.Backend != nil {
		return nil, fmt.Errorf("%w: Cluster and Backend are both given, but a backend is shared by itself: give one of them",
			ErrInvalid)
	}
	if err := rules.CheckSecrets(c.Secret, c.SecondSecret); err != nil {
		return nil, fmt.Errorf("%w: SecondSecret: %w", ErrInvalid, err)
	}
	c.Logger = cmp.Or(c.Logger, slog.New(warningsOnly{slog.Default().Handler()}))
	c.RulesName = cmp.Or(c.RulesName, "rules")
	seal := sealKeyOf(&c)
	if len(c.Secret) == 0 && c.Cluster == nil && c.Backend == nil {
		// No other node has to find these counters, so the secret can be random. Nobody
		// can then search for keys that share a counter or a partition.
		c.Secret = make([]byte, 32)
		_, _ = rand.Read(c.Secret) // which never fails
	}
	n := &Node{
		cluster: noCluster{},
		options: rules.Options{Secret: c.Secret, Second: c.SecondSecret, ClusterName: c.ClusterName,
			PathCacheEntries: c.PathCacheEntries, Replication: c.Replication, Strict: c.StrictRules},
		seal: seal,
		file: c.RulesName, log: c.Logger,
	}
	n.node.Tables = table.Config{MaxKeys: c.MaxKeys, MaxBytes: c.MaxBytes, Overflow: c.Overflow,
		Tenants: new(table.Tenants)}
	n.node.Table = table.New(n.node.Tables)
	n.node.Secret, n.node.SecondSecret, n.node.ClusterName = c.Secret, c.SecondSecret, c.ClusterName
	n.node.Clock, n.node.Opened = c.Now, time.Now()
	if c.Observer != nil {
		n.node.Observer = *c.Observer
	}
	n.node.Log = c.Logger
	var extras BackendExtras
	if c.Backend != nil {
		extras = c.Backend.Extras()
		n.unheld = extras.Amend == nil
	}
	if len(c.Rules) == 0 {
		n.node.Rules.Store(rules.Empty(n.options))
	} else if err := n.setRules(c.Rules); err != nil {
		return nil, err
	}
	if err := n.choose(ctx, &c, extras); err != nil {
		return nil, err
	}
	return n, nil
}

// choose sets what decides: a member of a cluster, a backend, or the node's own table.
func (n *Node) choose(ctx context.Context, c *Config, extras BackendExtras) (err error) {
	switch {
	case c.Cluster != nil:
		n.decider, n.cluster, err = c.Cluster.OpenMember(ctx, &n.node)
	case c.Backend != nil:
		if extras.UseTable != nil {
			extras.UseTable(n.node.Table)
		}
		if panicked := n.node.Observer.Panicked; panicked != nil && extras.ObservePanics != nil {
			extras.ObservePanics(panicked)
		}
		n.decider = &remote{&n.node, c.Backend, extras}
	default:
		n.decider = &local{Node: &n.node}
	}
	return err
}

// SetRules replaces the rules by the contents of a rules file. A limit keeps its counts
// if its rule, key and name stay the same, whatever else changes. If the file is
// invalid, the error wraps [ErrInvalid] and names all that is wrong, and the old rules
// stay in force. Checks continue meanwhile. Warnings, which [Node.Rules] has too, and
// rules that the new file no longer has, are logged to [Config.Logger].
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
	if err == nil && n.unheld && set.Concurrent() != "" {
		err = fmt.Errorf("%w: %s: rule %q limits concurrency, which takes reservations, and the backend has none: use "+
			"another one, or take the limit out", ErrInvalid, n.file, set.Concurrent())
	}
	if err != nil {
		if have := n.node.Rules.Load(); n.node.Observer.RulesSet != nil && have != nil {
			n.node.Observer.RulesSet(have.Hash(), err)
		}
		return err
	}
	n.setting.Lock()
	defer n.setting.Unlock()
	set = set.With(n.overrides)
	n.node.Text.Store(&engine.Text{Set: set, File: slices.Clone(file)})
	logRules(n.log, n.file, n.node.Rules.Swap(set), set)
	if n.node.Observer.RulesSet != nil {
		n.node.Observer.RulesSet(set.Hash(), nil)
	}
	if n.node.Observer.RulesNamed != nil {
		n.node.Observer.RulesNamed(names(set))
	}
	return nil
}

// SetOverrides puts overrides in force in place of those that were before; see [rules.Override]. They stay in force
// when rules are replaced, and concern the rules that have their names then; one about a rule that there is not has no
// effect. Only this node applies them: it is for the program to give all members the same, and to end them.
func (n *Node) SetOverrides(list []rules.Override) {
	n.setting.Lock()
	defer n.setting.Unlock()
	n.overrides = slices.Clone(list)
	n.putOverrides(n.node.Rules.Load())
}

// CheckOverride returns why an override would have no effect by the rules in force, nil if it has. The error wraps
// [ErrInvalid].
func (n *Node) CheckOverride(o rules.Override) error { return n.node.Rules.Load().CheckOverride(o) }

// putOverrides gives the rules in force the overrides. The lock is held.
func (n *Node) putOverrides(set *rules.Set) {
	next := set.With(n.overrides)
	if text := n.node.Text.Load(); text != nil && text.Set == set {
		n.node.Text.Store(&engine.Text{Set: next, File: text.File})
	}
	n.node.Rules.Store(next)
}

// RulesFile returns the rules file in force, nil if there is none. It must not be changed.
func (n *Node) RulesFile() []byte {
	text := n.node.Text.Load()
	if text == nil {
		return nil
	}
	return text.File
}

// Rules describes the rules in force, in the order of their file.
func (n *Node) Rules() []rules.RuleInfo { return n.node.Rules.Load().Rules() }

// RulesHash returns a hash of the meaning of the rules. Nodes with the same rules have
// the same hash.
func (n *Node) RulesHash() uint64 { return n.node.Rules.Load().Hash() }

func (n *Node) usable(ctx context.Context) error {
	if n.node.Closed.Load() {
		return ErrClosed
	}
	return ctx.Err()
}

// KeyName returns the name of the counter that a limit of the request's
// decision is about, such as "/towns:ada:minute".
func (n *Node) KeyName(r *Request, l *LimitDecision) string {
	return keyName(n.node.Rules.Load(), r, l)
}

// AppendKeyName appends the result of KeyName to dst and returns the extended slice.
func (n *Node) AppendKeyName(dst []byte, r *Request, l *LimitDecision) []byte {
	return n.node.Rules.Load().AppendKeyName(dst, r, &arith.Key{Rule: l.Rule, Index: l.KeyIndex}, l.Limit)
}

func keyName(set *rules.Set, r *Request, l *LimitDecision) string {
	return string(set.AppendKeyName(nil, r, &arith.Key{Rule: l.Rule, Index: l.KeyIndex}, l.Limit))
}

// Answer returns the decision of a request in its JSON form.
func (n *Node) Answer(r *Request, d *Decision) Answer { return answerOf(n.node.Rules.Load(), r, d) }

func answerOf(set *rules.Set, r *Request, d *Decision) Answer {
	a := limiter.NewAnswer(d, func(i int) string { return keyName(set, r, d.Limit(i)) })
	if b := d.BlockedBy(); b != nil {
		a.DrawnBy = set.DrawnBy(r, b.Rule.Name)
	}
	a.ZoneDefault = set.ZoneDefault(r)
	return a
}

// Stats returns how many counters the node holds and how much memory they take.
func (n *Node) Stats() Stats { return n.node.Table.Stats() }

// Shares returns the usage of the rules that have a max_share, ordered by rule name.
func (n *Node) Shares() []Share { return n.node.Table.Shares() }

// SetTenantShares names the tenants that there are, with the part of the table that the counters of each may
// take at most, in thousandths: 1 to 1000, or 0 for what every tenant may take by default. That is, a tenant gets
// new counters while it has at most three times as many as are left free, so none fills the table for others. With
// tenants given, the requests without a tenant are bounded like one of them, else they are not. All
// members of a cluster need the same, as each bounds the counters that it owns.
func (n *Node) SetTenantShares(thousandths map[string]int) { n.node.Tables.Tenants.Set(thousandths) }

// Top returns up to most keys that were checked most, and up to most counters that
// denied most, each list in descending order. Checks are counted in a sample of one in
// 16.
func (n *Node) Top(most int) (hottest, denied []TopKey) { return n.node.Table.Top(most, nil) }

// Ready returns nil if the node should be sent checks, else the reason why not. The
// errors wrap [ErrJoining], [ErrSettling] or [ErrLeaving], or are [ErrClosed].
//
// A member of a cluster is ready when it has joined and holds the counters that it
// should hold, and stays ready until it leaves. If it cannot get them, in a minority
// for example, it becomes ready ten seconds after it joined and answers by policy.
// Exception: a member that sees more than a minority of the others but can connect to
// none of them neither joins nor becomes ready until it can connect to one.
func (n *Node) Ready() error {
	if n.node.Closed.Load() {
		return ErrClosed
	}
	return n.decider.Ready()
}

// Cluster returns the node's view of its cluster. For a node without a cluster, lists
// are empty and methods that need a cluster return [ErrNoCluster].
func (n *Node) Cluster() Cluster { return n.cluster }

// Close stops the node, and its backend if it has one. Counters in memory are lost, and
// methods return [ErrClosed] from now on. A second call does nothing. To a cluster,
// Close looks like a crash: the other members detect it and continue from their copies.
// Use Leave of [Cluster] for an orderly exit.
func (n *Node) Close() error {
	if n.node.Closed.Swap(true) {
		return nil
	}
	return n.decider.Close()
}

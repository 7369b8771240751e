package cluster

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// rulebook caches the rules and limits of other nodes, and the shares of rules that a
// minority applies. Each cache is bounded, and cleared at its bound: what is needed is
// sent or computed again. It is safe for concurrent use.
type rulebook struct {
	mu     sync.Mutex
	rules  map[uint64]*limiter.Rule
	limits map[peer.Limit]*limiter.Limit
	scaled map[scaledKey]*limiter.Rule
}

type scaledKey struct {
	rule     *limiter.Rule
	num, den uint64
}

// learn caches the definitions in a frame.
func (b *rulebook) learn(rules []peer.Rule) {
	for i := range rules {
		r := &rules[i]
		if !r.Defined {
			continue
		}
		b.defined(r)
	}
}

// defined returns the rule that another node names. It returns nil if the rule is not
// cached and r does not define it, or if the definition does not match its ID.
func (b *rulebook) defined(r *peer.Rule) *limiter.Rule {
	b.mu.Lock()
	have := b.rules[r.ID]
	b.mu.Unlock()
	if have != nil || !r.Defined {
		return have
	}
	rule, err := b.rule(r)
	if err != nil || rule.ID() != r.ID {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.rules) >= maxForeign {
		clear(b.rules)
	}
	b.rules[r.ID] = rule
	return rule
}

// rule makes a rule from its definition.
func (b *rulebook) rule(r *peer.Rule) (*limiter.Rule, error) {
	if len(r.Limits) > limiter.MaxLimits || r.OnUnreachable > uint8(limiter.UnreachableClosed) || r.Replication > uint8(limiter.ReplicationOff) {
		return nil, fmt.Errorf("%w: rule %q of another node", limiter.ErrInvalid, r.Name)
	}
	out := &limiter.Rule{
		Name: r.Name, Shadow: r.Shadow,
		OnUnreachable: limiter.Unreachable(r.OnUnreachable), Replication: limiter.Replication(r.Replication),
	}
	for i := range r.Limits {
		l, err := b.limit(&r.Limits[i])
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out.Limits, func(have *limiter.Limit) bool { return limiter.NameID(have) == limiter.NameID(l) }) {
			return nil, fmt.Errorf("%w: rule %q of another node has two limits of one name", limiter.ErrInvalid, r.Name)
		}
		out.Limits = append(out.Limits, l)
	}
	return out, nil
}

// limit makes a limit from its definition.
func (b *rulebook) limit(l *peer.Limit) (*limiter.Limit, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if have, ok := b.limits[*l]; ok {
		return have, nil
	}
	out, err := limiter.NewLimit(specOf(l))
	if err != nil {
		return nil, err
	}
	if b.limits == nil || len(b.limits) >= maxForeign {
		b.limits = make(map[peer.Limit]*limiter.Limit)
	}
	b.limits[*l] = out
	return out, nil
}

// ruleOf returns the rule that this node applies for a rule that another node names: the
// rule of that name in its own file, whatever the other's says, unless it has the other
// class of partitions. Otherwise it is the other node's rule; nil if that must be
// defined first. same reports whether the rule is the one that was named.
func (c *Core) ruleOf(r *peer.Rule, closed bool) (rule *limiter.Rule, same bool) {
	if own := c.config.Rule(r.Name); own != nil && (own.Class() == limiter.Closed) == closed {
		return own, own.ID() == r.ID
	}
	c.book.mu.Lock()
	defer c.book.mu.Unlock()
	foreign := c.book.rules[r.ID]
	if foreign == nil || (foreign.Class() == limiter.Closed) != closed {
		return nil, false
	}
	return foreign, true
}

// applied appends the rules that a reply is about, one for each key.
func (b *rulebook) applied(rules []*limiter.Rule, f *peer.Frame, r *peer.Reply, k *limiter.Charge) []*limiter.Rule {
	for i := range k.Len() {
		rules = append(rules, k.Key(i).Rule)
		if i >= len(r.Rules) || int(r.Rules[i]) >= len(f.Rules) {
			continue
		}
		// The cache may have been cleared since the rule was learned.
		if foreign := b.defined(&f.Rules[r.Rules[i]]); foreign != nil {
			rules[i] = foreign
		}
	}
	return rules
}

// share returns a rule with num/den of each limit, at least 1 each.
func (b *rulebook) share(r *limiter.Rule, num, den uint64) *limiter.Rule {
	key := scaledKey{r, num, den}
	b.mu.Lock()
	defer b.mu.Unlock()
	if s, ok := b.scaled[key]; ok {
		return s
	}
	if len(b.scaled) >= maxScaled {
		clear(b.scaled)
	}
	s := &limiter.Rule{Name: r.Name, Shadow: r.Shadow, OnUnreachable: r.OnUnreachable, Replication: r.Replication, MaxShare: r.MaxShare}
	for _, l := range r.Limits {
		s.Limits = append(s.Limits, limiter.Scaled(l, num, den))
	}
	b.scaled[key] = s
	return s
}

func ruleToPeer(r *limiter.Rule, id uint64, define bool) peer.Rule {
	out := peer.Rule{ID: id, Name: r.Name, Defined: define}
	if !define {
		return out
	}
	out.Shadow, out.OnUnreachable, out.Replication = r.Shadow, uint8(r.OnUnreachable), uint8(r.Replication)
	for _, l := range r.Limits {
		out.Limits = append(out.Limits, limitToPeer(l))
	}
	return out
}

func limitToPeer(l *limiter.Limit) peer.Limit {
	s := l.Spec()
	out := peer.Limit{
		Name: s.Name, Algorithm: uint8(s.Algorithm), Align: uint8(s.Align), Coverage: uint8(s.Coverage),
		Rounding: uint8(s.Rounding), Drip: uint8(s.Drip), Count: uint8(s.CountRejected),
		Limit: s.Limit, Burst: s.Burst, Window: s.Window.Microseconds(), Block: s.Block.Microseconds(),
		SubWindows: int32(s.SubWindows),
	}
	if s.Weight != nil {
		out.HasWeight, out.Weight = true, int32(*s.Weight)
	}
	return out
}

func specOf(l *peer.Limit) limiter.Spec {
	s := limiter.Spec{
		Name: l.Name, Algorithm: limiter.Algorithm(l.Algorithm), Align: limiter.Align(l.Align),
		Coverage: limiter.Coverage(l.Coverage), Rounding: limiter.Rounding(l.Rounding), Drip: limiter.Drip(l.Drip),
		CountRejected: limiter.CountRejected(l.Count), Limit: l.Limit, Burst: l.Burst,
		Window: time.Duration(l.Window) * time.Microsecond, Block: time.Duration(l.Block) * time.Microsecond,
		SubWindows: int(l.SubWindows),
	}
	if l.HasWeight {
		w := int(l.Weight)
		s.Weight = &w
	}
	return s
}

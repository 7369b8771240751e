package mesh

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/internal/recent"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// maxForeign is how many definitions of rules, and of limits, a dictionary keeps.
const maxForeign = 4096

// Dictionary translates between rules and limits and their definitions in frames. It
// caches those of other nodes. Each cache is bounded, and cleared at its bound: what is
// needed is sent again. It is safe for concurrent use.
type Dictionary struct {
	own    func(name string) *limiter.Rule
	mu     sync.Mutex
	rules  map[uint64]*limiter.Rule
	limits map[peer.Limit]*limiter.Limit
	parts  *recent.Made[part, *limiter.Rule]
}

// part is an own rule of which a request may use so many percent, 0 for all, and whether its denials lead on.
type part struct {
	of     *limiter.Rule
	upTo   uint8
	onward bool
}

func (p part) rule() *limiter.Rule {
	out := p.of
	if p.upTo > 0 {
		out = out.UpTo(p.upTo)
	}
	if p.onward {
		out = out.Onward()
	}
	return out
}

// NewDictionary returns an empty dictionary. own returns the rule with that name in this
// node's rules file, nil if there is none.
func NewDictionary(own func(name string) *limiter.Rule) *Dictionary {
	return &Dictionary{own: own, rules: make(map[uint64]*limiter.Rule),
		parts: recent.NewMade(part.rule)}
}

// Learn caches the definitions in a frame.
func (b *Dictionary) Learn(rules []peer.Rule) {
	for i := range rules {
		if r := &rules[i]; r.Defined {
			b.defined(r)
		}
	}
}

// defined returns the rule that another node names. It returns nil if the rule is not
// cached and r does not define it, or if the definition does not match its ID.
func (b *Dictionary) defined(r *peer.Rule) *limiter.Rule {
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

func (b *Dictionary) rule(r *peer.Rule) (*limiter.Rule, error) {
	if len(r.Limits) > limiter.MaxLimits || r.OnUnreachable > uint8(limiter.UnreachableClosed) ||
		r.Replication > uint8(limiter.ReplicationOff) {
		return nil, fmt.Errorf("%w: rule %q of another node", limiter.ErrInvalid, r.Name)
	}
	out := &limiter.Rule{
		Name: r.Name, Shadow: r.Shadow,
		OnUnreachable: limiter.Unreachable(r.OnUnreachable), Replication: limiter.Replication(r.Replication),
	}
	for i := range r.Limits {
		l, err := b.Limit(&r.Limits[i])
		if err != nil {
			return nil, err
		}
		if l.Algorithm() >= arith.Remembered {
			return nil, fmt.Errorf("%w: rule %q of another node remembers ids or reservations, as no rule does",
				limiter.ErrInvalid, r.Name)
		}
		if slices.ContainsFunc(out.Limits, func(have *limiter.Limit) bool {
			return arith.NameID(have) == arith.NameID(l)
		}) {
			return nil, fmt.Errorf("%w: rule %q of another node has two limits of one name", limiter.ErrInvalid, r.Name)
		}
		out.Limits = append(out.Limits, l)
	}
	return out, nil
}

// Limit makes a limit from its definition.
func (b *Dictionary) Limit(l *peer.Limit) (*limiter.Limit, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if have, ok := b.limits[*l]; ok {
		return have, nil
	}
	out, err := limitOf(l)
	if err != nil {
		return nil, err
	}
	if b.limits == nil || len(b.limits) >= maxForeign {
		b.limits = make(map[peer.Limit]*limiter.Limit)
	}
	b.limits[*l] = out
	return out, nil
}

// Lookup returns the rule that this node applies for a rule that another node names: the
// rule of that name in its own file, whatever the other's says, unless it has the other
// class of partitions. Otherwise it is the other node's rule; nil if that must be
// defined first. What the other node chose names the variant of this node's own
// rule; a choice that is not known here, or of no use to it, leaves its default. same reports whether
// the rule is the one that was named.
func (b *Dictionary) Lookup(r *peer.Rule, closed bool) (rule *limiter.Rule, same bool) {
	if own := b.own(r.Name); own != nil && (own.Class() == limiter.Closed) == closed {
		if r.Choice != "" {
			own, _ = own.In(r.Choice)
		}
		if r.UpTo > 0 || r.Onward {
			own = b.parts.Of(part{own, r.UpTo, r.Onward})
		}
		return own, own.ID() == r.ID
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	foreign := b.rules[r.ID]
	if foreign == nil || (foreign.Class() == limiter.Closed) != closed {
		return nil, false
	}
	return foreign, true
}

// Applied appends the rules that a reply is about, one for each key.
func (b *Dictionary) Applied(rules []*limiter.Rule, f *peer.Frame, r *peer.Reply, k *arith.Charge) []*limiter.Rule {
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

// Definition returns a rule as frames carry it.
func Definition(r *limiter.Rule) peer.Rule { return ruleToPeer(r, r.ID(), true) }

func ruleToPeer(r *limiter.Rule, id uint64, define bool) peer.Rule {
	out := peer.Rule{ID: id, Name: r.Name, Defined: define, Choice: r.Choice(), UpTo: r.Ceiling(),
		Onward: r.LeadsOn()}
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
		Limit: s.Limit, Burst: s.Burst, Ceiling: s.Ceiling, Window: s.Window.Microseconds(), Block: s.Block.Microseconds(),
		SubWindows: int32(s.SubWindows), DripUnits: s.DripUnits, Calendar: uint8(s.Calendar),
		AnchorDay: uint8(s.AnchorDay), WeekStart: uint8(s.WeekStart), At: int32(s.At / time.Minute), Zone: s.Zone,
	}
	if s.Weight != nil {
		out.HasWeight, out.Weight = true, int32(*s.Weight)
	}
	return out
}

// limitOf makes a limit from its definition. Those that remember ids and reservations are no
// limits of a rule: they are the same in all nodes.
func limitOf(l *peer.Limit) (*limiter.Limit, error) {
	if limiter.Algorithm(l.Algorithm) < arith.Remembered {
		return limiter.NewLimit(specOf(l))
	}
	for _, own := range []*limiter.Limit{arith.RememberedLimit(), arith.HoldsLimit()} {
		if limitToPeer(own) == *l {
			return own, nil
		}
	}
	return nil, fmt.Errorf("%w: another node has a counter that is of no rule, and not one that remembers ids or "+
		"reservations", limiter.ErrInvalid)
}

func specOf(l *peer.Limit) limiter.Spec {
	s := limiter.Spec{
		Name: l.Name, Algorithm: limiter.Algorithm(l.Algorithm), Align: limiter.Align(l.Align),
		Coverage: limiter.Coverage(l.Coverage), Rounding: limiter.Rounding(l.Rounding), Drip: limiter.Drip(l.Drip),
		CountRejected: limiter.CountRejected(l.Count), Limit: l.Limit, Burst: l.Burst, Ceiling: l.Ceiling,
		Window: time.Duration(l.Window) * time.Microsecond, Block: time.Duration(l.Block) * time.Microsecond,
		SubWindows: int(l.SubWindows), DripUnits: l.DripUnits,
		Calendar: limiter.Calendar(l.Calendar), AnchorDay: int(l.AnchorDay), WeekStart: limiter.Weekday(l.WeekStart),
		At: time.Duration(l.At) * time.Minute, Zone: l.Zone,
	}
	if l.HasWeight {
		s.Weight = new(int(l.Weight))
	}
	return s
}

package weir

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/peer"
)

// ErrUnexplained is wrapped by the error of [Node.Explain] where the member that holds
// a key answered, and runs a version that does not explain.
var ErrUnexplained = errors.New("weir: it is not explained")

// Explain tells how a request would be decided now, and why: each key, its state,
// the arithmetic, and in a cluster who owns it and who told all this. Any member may
// be asked; each key's owner explains it, or its heir. No counter changes by it, none
// is copied, and it is in no list of top keys.
//
// The error wraps [ErrInvalid] for a request that cannot be decided; in a cluster
// [ErrUnanswered] where nobody that holds a key answered within
// [ClusterConfig.Deadline], [ErrUnexplained], or [ErrJoining]. Else it is
// [ErrClosed], the context's, or tells that the backend does not answer.
func (n *Node) Explain(ctx context.Context, r *Request) (*Explanation, error) {
	if err := n.usable(ctx); err != nil {
		return nil, err
	}
	var c limiter.Charge
	set, now := n.rules.Load(), n.tick()
	m, err := set.Resolve(r, &c)
	if err != nil {
		return nil, n.refused(err)
	}
	e, d := &Explanation{Now: now}, new(Decision)
	switch {
	case n.member != nil:
		e.Limits, err = n.member.explain(ctx, &c, d, namer(set, r, &c))
	case n.backend != nil:
		if err = n.decideThere(ctx, set, now, r, d, true); err == nil {
			e, err = n.backend.Explain(ctx, now, &c, namer(set, r, &c))
		}
	default:
		e.Limits = n.table.Explain(now, &c, d)
	}
	if err != nil {
		return nil, err
	}
	if d.Rule == "" {
		d.Rule = m.Rule
	}
	e.Unlimited, e.Decision, e.Answer = m.Unlimited, d, n.answer(set, r, d)
	e.Rules = []string{} // in JSON an empty list, as are the limits
	if m.Rule != "" {
		e.Rules = append(e.Rules, m.Rule)
	}
	if e.Limits == nil {
		e.Limits = []limiter.LimitExplanation{}
	}
	for i := range e.Limits {
		l := d.Limit(i)
		e.Limits[i].Name, e.Limits[i].Key = e.Answer.Limits[i].Name, e.Answer.Limits[i].Key
		if last := len(e.Rules) - 1; last < 0 || e.Rules[last] != l.Rule.Name {
			e.Rules = append(e.Rules, l.Rule.Name)
		}
	}
	return e, nil
}

// explain asks the cluster about a charge, and makes one decision of what it says.
func (m *member) explain(ctx context.Context, c *limiter.Charge, d *Decision, name func(dst []byte, i, k int) []byte) ([]limiter.LimitExplanation, error) {
	if err := m.enter(); err != nil {
		return nil, err
	}
	defer m.closing.RUnlock()
	told := make(chan []cluster.Explained, 1)
	m.core.Explain(c, func(all []cluster.Explained) { told <- all })
	var all []cluster.Explained
	select {
	case all = <-told: // the deadline bounds it
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var limits []limiter.LimitExplanation
	for i := range all {
		x := &all[i]
		owner, by := m.named(x.Owner), m.named(x.By)
		if x.By == 0 || x.Mute {
			return nil, unexplained(owner, by, string(name(nil, 0, i)), m.config.Deadline)
		}
		for j := range x.Limits {
			x.Limits[j].Owner, x.Limits[j].ToldBy = owner.Name, by.Name
		}
		limits = append(limits, x.Limits...)
	}
	cluster.Together(all, d)
	return limits, nil
}

// unexplained says why there is no explanation of a key: by, if there is one, answered
// without its reasons.
func unexplained(owner, by peer.Member, key string, deadline time.Duration) error {
	switch {
	case by.Instance != 0:
		return fmt.Errorf("%w: member %q (version %q) answered for %q without its reasons, or they were lost on the way through another member: a former version of the program has none, so upgrade all members",
			ErrUnexplained, by.Name, by.Version, key)
	case owner.Instance == 0:
		return fmt.Errorf("weir: %w: no member is known that owns %q: ask again, and see weir members", ErrUnanswered, key)
	default:
		return fmt.Errorf("weir: %w: member %q, which is %v, owns %q, and neither it nor its heir has answered within %v: ask again, and see weir members",
			ErrUnanswered, owner.Name, owner.State, key, deadline)
	}
}

// named returns the member of an instance, an empty one if it is not known.
func (m *member) named(i peer.Instance) peer.Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range m.members() {
		if o.Instance == i {
			return o
		}
	}
	return peer.Member{}
}

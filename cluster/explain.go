package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// Explain implements [engine.Decider]: it makes one decision of the members'
// explanations.
func (x *decider) Explain(ctx context.Context, q *engine.Question, d *limiter.Decision) (*limiter.Explanation, error) {
	now := x.member.Now()
	if err := x.enter(); err != nil {
		return nil, err
	}
	defer x.closing.RUnlock()
	told := make(chan []route.Explained, 1)
	x.member.core.Explain(&q.Charge, func(all []route.Explained) { told <- all })
	var all []route.Explained
	select {
	case all = <-told: // the deadline bounds it
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var limits []limiter.LimitExplanation
	for i := range all {
		one := &all[i]
		owner, by := x.member.census.named(one.Owner), x.member.census.named(one.By)
		if one.By == 0 || one.Mute {
			return nil, unexplained(owner, by, q.Name(i), x.member.config.Deadline)
		}
		heir := ""
		if _, _, at, _ := x.member.core.Claim(table.PartitionOf(q.Charge.Key(i))); at != 0 && at != one.Owner {
			heir = x.member.census.named(at).Name
		}
		for j := range one.Limits {
			l := &one.Limits[j]
			if l.Owner, l.ToldBy = owner.Name, by.Name; heir != "" {
				l.State = append(l.State, limiter.Field{Name: "copy", Value: "at " + heir})
			}
		}
		limits = append(limits, one.Limits...)
	}
	route.Together(all, d)
	return &limiter.Explanation{Now: now, Limits: limits}, nil
}

// unexplained returns the error for a key without explanation. by is the member that
// answered without reasons, if one did.
func unexplained(owner, by peer.Member, key string, deadline time.Duration) error {
	switch {
	case by.Instance != 0:
		return fmt.Errorf("%w: member %q (version %q) answered for %q without its reasons, or they were lost on the way "+
			"through another member: a former version of the program has none, so upgrade all members",
			weir.ErrUnexplained, by.Name, by.Version, key)
	case owner.Instance == 0:
		return fmt.Errorf("weir: %w: no member is known that owns %q: ask again, and see weir members", weir.ErrUnanswered,
			key)
	default:
		return fmt.Errorf("weir: %w: member %q, which is %v, owns %q, and neither it nor its heir has answered within %v: "+
			"ask again, and see weir members",
			weir.ErrUnanswered, owner.Name, owner.State, key, deadline)
	}
}

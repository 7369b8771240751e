package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cmd/weir/internal/replay"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/rules"
)

// node is what the commands need of a node.
type node interface {
	replay.Decider
	Explain(ctx context.Context, r limiter.Request) (*limiter.Explanation, error)
	Answer(r *limiter.Request, d *limiter.Decision) limiter.Answer
	Stats() weir.Stats
	Close() error
}

// openNode opens a node in this process with rules and a clock. Its table has the default
// bounds, since the share of a rule (max_share) is a part of them.
func openNode(ctx context.Context, f rulesFile, now func() time.Time) (node, error) {
	n, err := weir.Open(ctx, weir.Config{
		Rules: f.data, RulesName: f.name, Now: now,
		Secret: []byte("a trial"), // fixed for repeatability: no attacker chooses keys here
	})
	if err != nil {
		return nil, fmt.Errorf("rules file %s: %w", f.name, err)
	}
	return n, nil
}

// outline lists the rules and quotas of a set with all counts zero.
func outline(s *rules.Set) []replay.RuleResult {
	var out []replay.RuleResult
	add := func(r *limiter.Rule, quota bool) {
		rule := replay.RuleResult{Name: r.Name, Quota: quota, Shadow: r.Shadow}
		for _, l := range r.Limits {
			rule.Limits = append(rule.Limits, replay.LimitResult{Name: l.Name()})
		}
		out = append(out, rule)
	}
	for _, r := range s.Rules() {
		add(r.Rule, false)
	}
	for _, q := range s.Quotas() {
		add(q.Rule, true)
	}
	return out
}

func sizes(s *rules.Set) (rules, quotas, limits int) {
	for _, r := range s.Rules() {
		limits += len(r.Rule.Limits)
	}
	all := s.Quotas()
	for _, q := range all {
		limits += len(q.Rule.Limits)
	}
	return s.Len(), len(all), limits
}

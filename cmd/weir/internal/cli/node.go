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

// outline lists the rules of a set with all counts zero.
func outline(s *rules.Set) []replay.RuleResult {
	var out []replay.RuleResult
	for _, r := range s.Rules() {
		rule := replay.RuleResult{Name: r.Rule.Name, Shadow: r.Rule.Shadow}
		for _, l := range r.Rule.Limits {
			rule.Limits = append(rule.Limits, replay.LimitResult{Name: l.Name()})
		}
		out = append(out, rule)
	}
	return out
}

// sizes returns the number of rules and limits of a set.
func sizes(s *rules.Set) (rules, limits int) {
	for _, r := range s.Rules() {
		limits += len(r.Rule.Limits)
	}
	return s.Len(), limits
}

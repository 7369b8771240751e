package server

import (
	"context"
	"fmt"

	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/transport"
)

// reloadNow reads the rules file again and returns what is in force then. The error states
// why the old rules stay in force.
func (s *Server) reloadNow(ctx context.Context) (transport.Reloaded, error) {
	data, err := s.follower.ReloadNow(ctx)
	if err != nil {
		return transport.Reloaded{}, err
	}
	set, err := rules.Parse(s.config.RulesFile, data, rules.Options{Replication: s.config.Replication})
	if err != nil {
		return transport.Reloaded{}, err // not reached: it is in force
	}
	out := transport.Reloaded{RulesHash: fmt.Sprintf("%016x", set.Hash()), Rules: set.Len(),
		Warnings: []transport.RuleWarning{}}
	for _, w := range set.Warnings() {
		out.Warnings = append(out.Warnings, transport.RuleWarning{Line: w.Line, Column: w.Column, Rule: w.Rule, Text: w.Text,
			Instead: w.Instead})
	}
	return out, nil
}

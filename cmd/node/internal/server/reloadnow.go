package server

import (
	"context"
	"fmt"

	"github.com/weirlimit/weir/internal/console"
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
	return transport.Reloaded{RulesHash: fmt.Sprintf("%016x", set.Hash()), Rules: set.Len(),
		Warnings: console.WarningsOf(set)}, nil
}

package server

import (
	"slices"

	"github.com/weirlimit/weir/limiter"
)

// warnUnsettled logs that a rule limits concurrency and those who ask do not say when requests end, so that each of
// them takes its slot for as long as the hold lasts. With a permissions file it is for each caller to say, but web
// proxies never do.
func warnUnsettled(s *Server) {
	rule := ""
	for _, r := range s.node.Rules() {
		if slices.ContainsFunc(r.Rule.Limits, func(l *limiter.Limit) bool { return l.Algorithm() == limiter.Concurrency }) {
			rule = r.Rule.Name
			break
		}
	}
	if rule == "" {
		return
	}
	if !s.config.AllowRefunds && s.access == nil {
		s.config.Log.Warn("a rule limits how many requests are under way at a time, and clients may not settle them: each "+
			"takes its slot until its hold ends; "+
			"start the node with --allow-refunds", "rule", rule)
	}
	switch o := s.config.Auth; {
	case o == nil:
	case o.ID == "":
		s.config.Log.Warn("a rule limits how many requests are under way at a time, and those of web proxies have no id: "+
			"/v1/auth refuses each that the rule matches; limit them in the service, or by another algorithm", "rule", rule)
	default:
		s.config.Log.Warn("a rule limits how many requests are under way at a time, and no web proxy says when one ends: "+
			"each that /v1/auth allows takes its slot until its hold ends; limit them in the service, or by another algorithm",
			"rule", rule)
	}
}

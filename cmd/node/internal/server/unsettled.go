package server

import (
	"slices"

	"github.com/weirlimit/weir/limiter"
)

// warnUnsettled logs that a rule limits concurrency and clients may not say when their requests end, so that each of them
// takes its slot for as long as the hold lasts. With a permissions file that is for each caller to say.
func warnUnsettled(s *Server) {
	if s.config.AllowRefunds || s.access != nil {
		return
	}
	for _, r := range s.node.Rules() {
		if slices.ContainsFunc(r.Rule.Limits, func(l *limiter.Limit) bool { return l.Algorithm() == limiter.Concurrency }) {
			s.config.Log.Warn("a rule limits how many requests are under way at a time, and clients may not settle them: each takes its slot until its hold ends; "+
				"start the node with --allow-refunds", "rule", r.Rule.Name)
			return
		}
	}
}

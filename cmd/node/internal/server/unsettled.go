package server

import "github.com/weirlimit/weir/internal/console"

// warnUnsettled logs that a rule limits concurrency and those who ask do not say when requests end, so that each of
// them takes its slot for as long as the hold lasts. With a permissions file, callers that may not settle get no slot,
// but web proxies never do.
func (s *Server) warnUnsettled() {
	rule := console.Slots(s.node)
	if rule == "" {
		return
	}
	if !s.config.AllowRefunds && s.access == nil {
		s.config.Log.Warn(console.UnsettledText, "rule", rule)
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

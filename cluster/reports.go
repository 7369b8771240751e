package cluster

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	core "github.com/weirlimit/weir/internal/cluster"
	"github.com/weirlimit/weir/limiter"
)

// reportEvery is the interval of reports.
const reportEvery = limiter.Second

// reports logs what happened at a node since the last report. Only the rate and the failures may be used while it does.
type reports struct {
	member   *member
	rate     atomic.Uint64       // checks in the last second
	counted  uint64              // checks at the last report
	reported [core.Events]uint64 // events at the last report
	minority minorityNews
	failures failures
}

// Event implements [core.Observer]. It does nothing: the core counts events itself.
func (*reports) Event(core.Event, int) {}

// Problem implements [core.Observer]: it counts a failure. The next report logs it.
func (r *reports) Problem(what string, err error) {
	r.failures.add(what, err)
	var ignored *core.NotCredibleError
	if r.member.config.PeerRefused != nil && errors.As(err, &ignored) {
		r.failures.ignored.add(*ignored)
	}
}

// write logs once per reportEvery what happened to partitions.
func (r *reports) write() {
	m := r.member
	defer m.sched.After(reportEvery, r.write) // also after a panic
	checks := m.decider.checks.Load()
	r.rate.Store(checks - r.counted)
	r.counted = checks
	for e := range core.Events {
		n := m.core.Count(e)
		news := n - r.reported[e]
		if news == 0 {
			continue
		}
		r.reported[e] = n
		switch e {
		case core.EventTakeover:
			m.log.Warn("partitions were taken over, as their owner did not answer", "partitions", news)
		case core.EventRecovered:
			m.keeper.recovered(m.log, news)
		case core.EventEmptied:
			m.keeper.emptied(m.log, news)
		case core.EventFenced:
			m.log.Warn("another member has taken over partitions of this node", "partitions", news)
		case core.EventHandoff:
			m.log.Info("partitions were handed over", "partitions", news)
		case core.EventBroken:
			m.log.Error("partitions were dropped after an internal error: their heirs go on, or they start empty", "partitions",
				news)
		case core.EventGivenUp:
			m.log.Error("partitions had two internal errors within a minute: this node gives them up for a minute", "partitions",
				news)
		case core.EventLate:
			m.log.Warn("this node made no progress for a while: it was paused, or has too little CPU", "times", news)
		case core.EventFallback:
			m.log.Warn("checks were answered by policy, as neither owner nor heir did", "checks", news)
		default:
			m.log.Debug("partitions changed", "what", e.String(), "times", news)
		}
	}
	r.failures.report(m.log)
	r.ofIgnored(time.Now())
	m.ReportFull()
	r.inMinority()
	m.census.report()
}

// ofIgnored tells [Config.PeerRefused] of parts of members' frames that were ignored.
func (r *reports) ofIgnored(now time.Time) {
	for part, times := range r.failures.ignored.due(now) {
		from, name := "unknown", ""
		if sender, ok := r.member.census.byInstance(part.From); ok {
			from, name = sender.PeerAddr, fmt.Sprintf(" %q,", sender.Name)
		}
		r.member.config.PeerRefused(from,
			fmt.Sprintf("the member%s instance %s, sent an impossible value, and this part of its frames was ignored: %s, %d "+
				"times",
				name, part.From, part.What, times))
	}
}

// inMinority logs when this node is in a minority, and when that ends.
func (r *reports) inMinority() {
	m := r.member
	v := m.core.View()
	switch say, over := r.minority.step(m.sched.Now(), minority(v)); {
	case say:
		m.log.Warn("this node sees no more than half of the members: rules with on_unreachable: local apply a share of "+
			"their limits "+
			"until it sees more, or those that do not come back are forgotten (weir members forget)", "seen", len(v.Members),
			"members", v.Recent)
	case over:
		m.log.Info("this node sees more than half of the members again: it applies whole limits", "seen", len(v.Members),
			"members", v.Recent)
	}
}

package cluster

import (
	"fmt"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// minorityEvery is the least time between two log records of a minority.
const minorityEvery = limiter.Minute

// minorityNews decides when to log that a node is in a minority: after two reports in a
// row, since a node may see the minority for a moment while members stop together, and
// then once a minute. It is not safe for concurrent use.
type minorityNews struct {
	reports  int          // in a row that found the node in a minority
	loggedAt limiter.Tick // when the minority was last logged
	logged   bool         // the present minority was logged
}

// step records one report. say means: log the minority. over means: log its end.
func (n *minorityNews) step(now limiter.Tick, is bool) (say, over bool) {
	if !is {
		over = n.logged
		n.reports, n.logged = 0, false
		return false, over
	}
	n.reports++
	if n.reports < 2 || n.loggedAt != 0 && now-n.loggedAt < minorityEvery {
		return false, false
	}
	n.loggedAt, n.logged = now, true
	return true, false
}

// minority reports whether a node that is a member sees no more than half of the members
// that count. A node that is still joining does not know the others, so it is in none.
func minority(v *view.View) bool {
	self := v.Self()
	return self != nil && self.State != peer.Joining && v.Minority()
}

// Warnings implements [engine.Decider].
func (x *decider) Warnings() (all []string) {
	if err := x.member.membership.Expelled(); err != nil {
		all = append(all, err.Error())
	}
	if s := x.member.keeper.stats(); s != nil && s.Failing {
		all = append(all, "the data directory cannot be written: what is counted now is lost if all members end; the log "+
			"says why")
	}
	v := x.member.core.View()
	if !minority(v) {
		return all
	}
	return append(all, fmt.Sprintf("in a minority: this node sees %d of %d members, so rules with on_unreachable: local "+
		"apply %d/%d of their limits",
		len(v.Members), v.Recent, len(v.Members), v.Recent))
}

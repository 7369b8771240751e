package weir

import (
	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// Administered returns what the administration of a node needs beyond this API. It is for the program that serves it.
func Administered(n *Node) engine.Administered {
	c, _ := n.decider.(engine.Counters) // a backend has counters of its own
	return engine.Administered{Node: &n.node, Counters: c}
}

// ExportCounters implements [engine.Counters].
func (l *local) ExportCounters(_ int, f func(*table.Table, limiter.Tick)) (mine bool) {
	f(l.Table, l.Now())
	return true
}

// ImportCounter implements [engine.Counters].
func (l *local) ImportCounter(part int, of func(limiter.Tick) (table.Entry, bool), replace, dry bool) (engine.Imported,
	error) {
	did, _, err := engine.ImportInto(l.Table, l.Now(), part, of, replace, dry)
	return did, err
}

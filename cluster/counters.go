package cluster

import (
	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// ExportCounters implements [engine.Counters].
func (x *decider) ExportCounters(part int, f func(*table.Table, limiter.Tick)) (mine bool) {
	if x.enter() != nil {
		return false
	}
	defer x.closing.RUnlock()
	return x.member.core.ExportCounters(part, f)
}

// ImportCounter implements [engine.Counters].
func (x *decider) ImportCounter(part int, of func(limiter.Tick) (table.Entry, bool), replace,
	dry bool) (engine.Imported, error) {
	if err := x.enter(); err != nil {
		return engine.ImportedElsewhere, err
	}
	defer x.closing.RUnlock()
	return x.member.core.ImportCounter(part, of, replace, dry)
}

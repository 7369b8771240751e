package cluster

import (
	core "github.com/weirlimit/weir/internal/cluster"
	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// ExportCounters implements [engine.Counters].
func (m *member) ExportCounters(part int, f func(*table.Table, limiter.Tick)) (mine bool) {
	if m.enter() != nil {
		return false
	}
	defer m.closing.RUnlock()
	return core.ExportCounters(m.core, part, f)
}

// ImportCounter implements [engine.Counters].
func (m *member) ImportCounter(part int, of func(limiter.Tick) (table.Entry, bool), replace, dry bool) (engine.Imported,
	error) {
	if err := m.enter(); err != nil {
		return engine.ImportedElsewhere, err
	}
	defer m.closing.RUnlock()
	return core.ImportCounter(m.core, part, of, replace, dry)
}

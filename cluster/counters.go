package cluster

import (
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
	return m.core.ExportCounters(part, f)
}

// ImportCounter implements [engine.Counters].
func (m *member) ImportCounter(part int, of func(limiter.Tick) (table.Entry, bool), replace, dry bool) (engine.Imported,
	error) {
	if err := m.enter(); err != nil {
		return engine.ImportedElsewhere, err
	}
	defer m.closing.RUnlock()
	return m.core.ImportCounter(part, of, replace, dry)
}

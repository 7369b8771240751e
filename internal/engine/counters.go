package engine

import (
	"fmt"
	"strings"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/rules"
)

// Counters is implemented by deciders whose counters can be exported and imported. It is safe for concurrent use.
type Counters interface {
	// ExportCounters calls f with the counters of a partition at an instant, if this node decides about it; it reports
	// whether it does. No check of the partition is decided meanwhile. f must not call the decider, or change anything.
	ExportCounters(part int, f func(t *table.Table, at limiter.Tick)) (mine bool)
	// ImportCounter adds the counter that of returns for an instant, false if nothing of it counts any more. One that is
	// there already then denies whatever either denies, or is replaced. With dry no counter is imported. The look at the
	// one that is there takes off the holds that have ended, and renews what is lent, as any look does. The error wraps
	// [limiter.ErrInvalid] if the one that is there counts otherwise, by another window or algorithm: a merger would
	// forget what it has.
	ImportCounter(part int, of func(now limiter.Tick) (table.Entry, bool), replace, dry bool) (Imported, error)
}

// Imported is what became of a counter.
type Imported uint8

// What can become of it.
const (
	ImportedElsewhere Imported = iota // this node does not decide about it
	ImportedNothing                   // nothing of it counts any more
	ImportedAdded                     // there was none
	ImportedMerged                    // with the one that was there
	ImportedReplaced                  // the one that was there
)

// Administered is a node as its administration sees it.
type Administered struct {
	*Node
	Counters // nil if the decider has none
}

// TopOf returns the keys that were checked most and those that were denied most, of a tenant; with an empty one, of
// requests without a tenant.
func (a Administered) TopOf(tenant string, most int) (hottest, denied []table.TopKey) {
	label, prefix := arith.TenantLabel(tenant), rules.TenantPrefix(tenant)
	return a.Table.Top(most, func(of uint16, name string) bool {
		return of == label && strings.HasPrefix(name, prefix) // tenants may share a label
	})
}

// ImportInto does ImportCounter with a table, whose partition nobody else changes.
func ImportInto(t *table.Table, now limiter.Tick, part int, of func(limiter.Tick) (table.Entry, bool), replace,
	dry bool) (Imported, table.Entry, error) {
	e, some := of(now)
	if !some {
		return ImportedNothing, e, nil
	}
	did, mode := ImportedAdded, table.Merge
	var other *limiter.Limit
	t.ExportKey(part, e.Hi, now, func(have table.Entry) {
		if have.Lo == e.Lo && arith.NameID(have.Limit) == arith.NameID(e.Limit) {
			if did = ImportedMerged; arith.CountsID(have.Limit) != arith.CountsID(e.Limit) {
				other = have.Limit
			}
		}
	})
	if other != nil && !replace {
		return ImportedNothing, e, fmt.Errorf("%w: the counter that is there is of %v, and the line of %v: one has to go, "+
			"so import with replace, or leave the line out", limiter.ErrInvalid, other, e.Limit)
	}
	if replace {
		mode = table.Replace
		if did == ImportedMerged {
			did = ImportedReplaced
		}
	}
	if dry {
		return did, e, nil
	}
	return did, e, t.Import(part, now, []table.Entry{e}, mode)
}

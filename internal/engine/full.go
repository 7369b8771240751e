package engine

import (
	"fmt"
	"sync/atomic"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// fullEvery is the least time between two log records of one bound of the table, and how
// long a warning stays after a check met the bound.
const fullEvery = limiter.Minute

// fullNews is what the node has seen and logged of a bound of the table. Instants are
// those of the node's clock: the table's record has the clock of whoever charged, which
// with a backend is the backend's.
type fullNews struct {
	last   atomic.Pointer[table.Full] // the record that was seen last
	seen   atomic.Int64               // when it was seen
	at     atomic.Int64               // when a record was last logged; 0 if none was
	checks atomic.Int64               // how many checks had met the bound by then
}

// see returns when the node first saw the record f of a bound.
func (n *Node) see(b table.Bound, f *table.Full) limiter.Tick {
	news := &n.full[b]
	if news.last.Load() != f {
		news.seen.Store(int64(n.Now()))
		news.last.Store(f)
	}
	return limiter.Tick(news.seen.Load())
}

// ReportFull logs that checks have met a bound of the table, at most once a minute for
// each bound. If none has, it costs one load.
func (n *Node) ReportFull() {
	if n.Table.EverFull() {
		n.reportBounds()
	}
}

func (n *Node) reportBounds() {
	for b := range table.Bound(table.Bounds) {
		n.reportFull(b)
	}
}

func (n *Node) reportFull(b table.Bound) {
	f, news := n.Table.Full(b), &n.full[b]
	if f == nil {
		return
	}
	now, last := int64(max(n.see(b, f), 1)), news.at.Load()
	if last != 0 && now >= last && now-last < int64(fullEvery) || !news.at.CompareAndSwap(last, now) {
		return
	}
	s := n.Table.Stats()
	facts := []any{"rule", f.Rule, "checks", s.OverflowedBy[b] - news.checks.Swap(s.OverflowedBy[b])}
	what := "the table of counters is full: checks with new keys are " + fate(f)
	help := "raise MaxKeys or MaxBytes (--max-keys, --max-bytes), or give the rule that fills it a max_share"
	switch b {
	case table.BoundTenant:
		what, help = "a tenant has its share of the table of counters: its checks with new keys are "+fate(f),
			"raise MaxKeys or MaxBytes (--max-keys, --max-bytes), or give the tenant a max_share in the permissions file"
		facts = append(facts, "tenant", f.Tenant)
	case table.BoundShare:
		what, help = "a rule has used its max_share: its new keys are "+fate(f),
			"raise the max_share, or count by a key that clients do not choose"
	case table.BoundKey:
		what, help = "a key has as many counters as one key may have: checks with new limits of it are "+fate(f),
			"give each limit the same name in all requests"
	case table.BoundHolds:
		what, help = "a key has as many reservations as one key may have: further ones are denied",
			"settle reservations when their requests end, or let them hold, and be remembered, for a shorter time"
	default:
		facts = append(facts, "keys", s.Keys, "max_keys", n.maxKeys(), "bytes", s.Bytes, "max_bytes", s.MaxBytes)
	}
	n.Log.Warn(what+"; "+help, facts...)
}

// FullWarnings describes each bound of the table that a check met within the last minute.
func (n *Node) FullWarnings() (out []string) {
	if !n.Table.EverFull() {
		return nil
	}
	for b := range table.Bound(table.Bounds) {
		f := n.Table.Full(b)
		if f == nil || n.Now()-n.see(b, f) >= fullEvery {
			continue
		}
		switch s := n.Table.Stats(); b {
		case table.BoundTenant:
			out = append(out, fmt.Sprintf("tenant %q has its share of the table of counters (last met by rule %q): its checks "+
				"with new keys are %s", f.Tenant, f.Rule, fate(f)))
		case table.BoundShare:
			out = append(out, fmt.Sprintf("rule %q has used its max_share: its new keys are %s", f.Rule, fate(f)))
		case table.BoundKey:
			out = append(out, fmt.Sprintf("a key of rule %q has as many counters as one key may have: checks with new limits "+
				"of it are %s", f.Rule, fate(f)))
		case table.BoundHolds:
			out = append(out, fmt.Sprintf("a key of rule %q has as many reservations as one key may have: further ones are "+
				"denied", f.Rule))
		default:
			out = append(out, fmt.Sprintf("the table of counters is full (%d of %d keys, %d of %d bytes; last met by rule "+
				"%q): checks with new keys are %s",
				s.Keys, n.maxKeys(), s.Bytes, s.MaxBytes, f.Rule, fate(f)))
		}
	}
	return out
}

func (n *Node) maxKeys() int {
	if n.Tables.MaxKeys <= 0 {
		return table.DefaultMaxKeys
	}
	return n.Tables.MaxKeys
}

// fate says what becomes of checks that find no room.
func fate(f *table.Full) string {
	if f.Denied {
		return "denied"
	}
	return "allowed and not counted"
}

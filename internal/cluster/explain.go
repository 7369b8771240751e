package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// maxCounts bounds the counts of one key that are sent, over all its limits, so that an
// explanation takes about 16 KiB.
const maxCounts = 640

// explain explains a charge whose partitions are owned here, and locked.
func (d *decider) explain(t *turn, q *route.Request, parts []*partition, answer *limiter.Decision) {
	charge := d.shareOf(t, q.Charge)
	told := d.table.Explain(t.At, charge, answer)
	if charge != q.Charge {
		route.Relabel(q.Charge, answer)
	}
	for i := range told {
		told[i].Shorten(maxCounts / len(told))
		if l := answer.Limit(i); l.InForce != 0 {
			if text, never := strings.CutSuffix(told[i].Arithmetic, ": never"); never && !l.Never {
				told[i].Arithmetic = text + ": never by this share"
			}
			s, sees, when := shareIn(d, t, q.Charge.Key(l.Key)), "sees", ""
			if s.ended {
				sees, when = "saw", " a moment ago"
			}
			told[i].Limit = fmt.Sprintf("%s; in force: %s, as %s %s %d of %d members%s", l.Limit, told[i].Limit, d.name, sees,
				s.live, s.of, when)
		}
		if to := lentTo(t, d, charge.Key(answer.Limit(i).Key)); to != "" {
			told[i].State = append(told[i].State, limiter.Field{Name: "lent", Value: to})
		}
		answer.Limit(i).Owner = d.name
	}
	if len(parts) > 0 {
		answer.Source = d.sourceOf(t, parts, charge != q.Charge)
	}
	q.Reply.Reasons = told
}

// maxNamed bounds the members that an explanation names as those that have borrowed.
const maxNamed = 20

// lentTo returns who has borrowed how many units of a key, as "96 to b, 32 to clients"; "" if nobody has.
func lentTo(t *turn, d *decider, k *arith.Key) string {
	units, clients, rest := make(map[string]uint64), uint64(0), 0
	for _, h := range table.Lent(d.table, k) {
		if !borrowed(t, h.ID, func(i peer.Instance) { units[nameOf(t, i)] += h.Cost }) {
			clients += h.Cost
		}
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(units)) {
		if len(all) == maxNamed {
			rest++
			continue
		}
		all = append(all, fmt.Sprintf("%d to %s", units[name], name))
	}
	if rest > 0 {
		all = append(all, fmt.Sprintf("others to %d members", rest))
	}
	if clients > 0 {
		all = append(all, fmt.Sprintf("%d to clients", clients))
	}
	return strings.Join(all, ", ")
}

// sizeOf returns roughly how many bytes reasons take on the wire.
func sizeOf(told []limiter.LimitExplanation) (n int) {
	for i := range told {
		l := &told[i]
		n += 64 + len(l.Limit) + len(l.Arithmetic) + 24*len(l.Counts)
		for _, f := range l.State {
			n += 8 + len(f.Name) + len(f.Value)
		}
	}
	return n
}

func reasonsOut(id uint64, told []limiter.LimitExplanation) peer.Explanation {
	out := peer.Explanation{ID: id}
	for i := range told {
		l := &told[i]
		y := peer.LimitExplanation{Limit: l.Limit, Known: l.Known, Arithmetic: l.Arithmetic, Now: int64(l.Now)}
		for _, f := range l.State {
			y.State = append(y.State, peer.Field(f))
		}
		for _, w := range l.Counts {
			y.Counts = append(y.Counts, peer.WindowCount{Start: int64(w.Start), End: int64(w.End), Count: w.Count})
		}
		out.Limits = append(out.Limits, y)
	}
	return out
}

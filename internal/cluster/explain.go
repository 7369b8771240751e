package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// maxCounts bounds the counts of one key that are sent, over all its limits, so that an
// explanation takes about 16 KiB.
const maxCounts = 640

// explain explains a charge whose partitions are owned here, and locked.
func (d *decider) explain(t *turn, q *route.Request, parts []*partition, answer *limiter.Decision) {
	charge := d.shares.of(t, q.Charge)
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
			s, sees, when := d.shares.in(t, q.Charge.Key(l.Key)), "sees", ""
			if s.ended {
				sees, when = "saw", " a moment ago"
			}
			told[i].Limit = fmt.Sprintf("%s; in force: %s, as %s %s %d of %d members%s", l.Limit, told[i].Limit, d.name, sees,
				s.live, s.of, when)
		}
		k := charge.Key(answer.Limit(i).Key)
		if to := d.lentTo(t, k); to != "" {
			told[i].State = append(told[i].State, limiter.Field{Name: "lent", Value: to})
		}
		answer.Limit(i).Owner = d.name
	}
	if len(parts) > 0 {
		answer.Source = t.sourceOf(parts, charge != q.Charge)
	}
	q.Reply.Reasons = told
}

// maxNamed bounds the members that an explanation names as those that have borrowed.
const maxNamed = 20

// borrowing is what one has borrowed of a key, and until when.
type borrowing struct {
	units uint64
	until limiter.Tick
}

func (b borrowing) with(h *arith.Hold) borrowing {
	return borrowing{b.units + h.Cost, max(b.until, h.End)}
}

func (b borrowing) to(whom string) string {
	return fmt.Sprintf("%d to %s until %s", b.units, whom, b.until.Time().Format(time.TimeOnly))
}

// lentTo returns who has borrowed how many units of a key, and until when, as "96 to b until 10:32:05, 32 to clients
// until 10:32:06"; "" if nobody has.
func (d *decider) lentTo(t *turn, k *arith.Key) string {
	by, clients := make(map[string]borrowing), borrowing{}
	for _, h := range d.table.Lent(k) {
		if i, member := route.Borrower(t.view(), h.ID); member {
			name := t.view().NameOf(i)
			by[name] = by[name].with(&h)
		} else {
			clients = clients.with(&h)
		}
	}
	var all []string
	names := slices.Sorted(maps.Keys(by))
	for _, name := range names[:min(len(names), maxNamed)] {
		all = append(all, by[name].to(name))
	}
	if rest := len(names) - len(all); rest > 0 {
		all = append(all, fmt.Sprintf("others to %d members", rest))
	}
	if clients.units > 0 {
		all = append(all, clients.to("clients"))
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

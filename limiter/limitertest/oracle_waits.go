package limitertest

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// retryAfter returns the shortest wait until a limit admits n units, by trying: at each instant with those
// holds ended that are over then.
func (o *holdOracle) retryAfter(now Tick, l *oracleLimit, n uint64) Tick {
	due := o.due(math.MaxInt64)
	return leastWait(func(d Tick) bool {
		then := *l
		then.model = cloned(l.model)
		for _, e := range due {
			if e.limit == l && e.end <= now+d {
				e.limit = &then
				e.giveBack(e.cost, e.end)
			}
		}
		return then.admits(n, now+d)
	})
}

// ended is a charge of a hold at the end of that.
type ended struct {
	end Tick
	heldPart
}

// due returns what is given back when the holds end that are over at an instant, in the order in which it is.
func (o *holdOracle) due(at Tick) (due []ended) {
	for _, k := range o.keys {
		for _, i := range k.ids {
			for _, p := range i.parts {
				if i.held && i.end <= at && !i.keep {
					due = append(due, ended{i.end, p})
				}
			}
		}
	}
	slices.SortFunc(due, func(a, b ended) int {
		return cmp.Or(cmp.Compare(a.end, b.end), cmp.Compare(a.number, b.number))
	})
	return due
}

// cloned returns a copy of a model. A limit on concurrency changes by time alone.
func cloned(m model) model {
	switch m := m.(type) {
	case *fixedModel:
		c := *m
		c.counts = maps.Clone(m.counts)
		return &c
	case *calendarModel:
		c := *m
		c.counts = maps.Clone(m.counts)
		return &c
	case *firstHitModel:
		c := *m
		c.windows = slices.Clone(m.windows)
		return &c
	case *logModel:
		c := *m
		c.hits = slices.Clone(m.hits)
		return &c
	case *slidingModel:
		c := *m
		c.counts = maps.Clone(m.counts)
		return &c
	case *counterModel:
		c := *m
		c.counts = maps.Clone(m.counts)
		return &c
	case *bucketHistory:
		c := *m
		c.events = slices.Clone(m.events)
		switch s := m.bucketState.(type) {
		case *tokenModel:
			c.bucketState = new(*s)
		case *leakyModel:
			c.bucketState = new(*s)
		case *gcraModel:
			c.bucketState = new(*s)
		}
		return &c
	}
	return m
}

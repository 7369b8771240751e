package envoy

import "github.com/weirlimit/weir/limiter"

// batch asks the decider about several items at one instant, each by itself.
type batch struct {
	items    []*item
	requests []limiter.Request
	peeks    []bool
}

func (b *batch) add(it *item, cost uint64) { b.ask(it, cost, cost == 0) }

// ask adds the question whether an item has room for a cost, which is charged unless peek is
// set.
func (b *batch) ask(it *item, cost uint64, peek bool) {
	r := request(it)
	r.Cost = limiter.Units(int64(cost))
	b.items, b.requests, b.peeks = append(b.items, it), append(b.requests, r), append(b.peeks, peek)
}

// charge adds an item that is charged whether it is over its limit or not. What is left for several hits is
// asked first, as statistics tell those beyond the limit from those within.
func (b *batch) charge(it *item) {
	if it.hits > 1 {
		it.measuring = true
		b.add(it, 0)
		b.requests[len(b.requests)-1].ID = "" // it charges nothing
	}
	most := it.counter.Capacity() // of a bucket its burst
	b.add(it, min(it.hits, most))
	if it.hits > most {
		// More than the limit ever admits is over it, and leaves it over: what the
		// first part has not used up the second does.
		b.add(it, 1)
		b.requests[len(b.requests)-1].ID = more(it.id)
	}
}

// merge returns a batch that peeks at the items of all batches.
func merge(bs ...batch) (out batch) {
	for _, b := range bs {
		for _, it := range b.items {
			out.add(it, 0)
		}
	}
	return out
}

// after returns what the items after one charge to its counter.
func (b *batch) after(it *item) (units uint64) {
	for j := len(b.items) - 1; j >= 0 && b.items[j] != it; j-- {
		if next := b.items[j]; !b.peeks[j] && next.key == it.key && next.counter == it.counter {
			n, _ := b.requests[j].Cost.Value(0)
			units += n
		}
	}
	return units
}

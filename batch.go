package weir

import (
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/rules"
)

// upcoming is a request of a batch that is resolved and not decided yet.
type upcoming struct {
	charge limiter.Charge
	match  rules.Match
	err    error
}

// lookahead is the requests of a batch between the one that is decided and the one
// whose counters are being fetched from memory.
type lookahead [table.Ahead]upcoming

// batchHere decides a batch in this node's own table.
func (n *Node) batchHere(set *rules.Set, now limiter.Tick, rs []Request, ds []Decision) error {
	next, _ := n.lookaheads.Get().(*lookahead)
	if next == nil {
		next = new(lookahead)
	}
	defer n.lookaheads.Put(next)
	look := func(i int) {
		u := &next[i%table.Ahead]
		if u.match, u.err = set.Resolve(&rs[i], &u.charge); u.err == nil {
			n.table.Prefetch(&u.charge)
		}
	}
	for i := range min(table.Ahead-1, len(rs)) {
		look(i)
	}
	var bad BatchError
	for i := range rs {
		if last := i + table.Ahead - 1; last < len(rs) {
			look(last)
		}
		u := &next[i%table.Ahead]
		err := u.err
		if err == nil {
			err = n.decideResolved(set, now, &rs[i], &u.charge, u.match, &ds[i])
		} else {
			err = n.refused(err)
		}
		if err != nil {
			bad.add(i, &ds[i], err)
		}
	}
	return bad.orNil()
}

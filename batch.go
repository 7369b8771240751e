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
	var alike tally
	defer alike.tell(n.watch)
	for i := range rs {
		if last := i + table.Ahead - 1; last < len(rs) {
			look(last)
		}
		u := &next[i%table.Ahead]
		err := u.err
		if err == nil {
			err = n.decideResolved(set, now, &rs[i], &u.charge, u.match, &ds[i], &alike)
		} else {
			err = n.refused(err)
		}
		if err != nil {
			bad.add(i, &ds[i], err)
		}
	}
	return bad.orNil()
}

// tally is decisions of a batch that came after one another and are counted alike.
type tally struct {
	n       int
	rule    string
	source  limiter.Source
	allowed bool
	shadow  bool
}

// add counts a decision, and tells of those before it if it is not like them.
func (t *tally) add(o Observer, d *Decision) {
	if t.n > 0 && (d.Rule != t.rule || d.Source != t.source || d.Allowed != t.allowed || d.ShadowDenied != t.shadow) {
		t.tell(o)
	}
	if t.n == 0 {
		t.rule, t.source, t.allowed, t.shadow = d.Rule, d.Source, d.Allowed, d.ShadowDenied
	}
	t.n++
}

// tell has the observer know what was counted.
func (t *tally) tell(o Observer) {
	if t.n > 0 {
		o.Checked(t.n, t.rule, t.source, t.allowed, t.shadow)
		t.n = 0
	}
}

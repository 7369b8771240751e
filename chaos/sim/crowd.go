package sim

import (
	"fmt"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// crowdMaxKeys is how many counters each node may hold in a crowded run, crowdSize how
// many keys clients ask about beside those of every run. A table takes copies of one node up to
// twice its bound: all of these, and those of every run.
const (
	crowdMaxKeys = 44
	crowdSize    = 70
	crowdLimit   = 10
	crowdCost    = 6
)

// crowd is the keys that fill the tables of a crowded run.
type crowd struct {
	maxKeys int // of each node; 0: the default
	rule    *limiter.Rule
	keys    []*stranger
	full    int // checks that were denied because a table was full
	unkept  int // copies for which a table had no room: their owners wait, and policies answer
}

// stranger is one key of the crowd. Its limit admits one check.
type stranger struct {
	hash     arith.Hash
	admitted int
}

// newCrowd makes the keys of a crowd, in the partitions of a closed rule, and their rule.
func (w *World) newCrowd(rules map[string]*limiter.Rule) {
	w.crowd.maxKeys = crowdMaxKeys
	w.crowd.rule = w.newRule("crowd", crowdLimit, limiter.UnreachableClosed, limiter.ReplicationLag)
	rules["crowd"] = w.crowd.rule
	if w.rolled != nil {
		w.rolled["crowd"] = w.crowd.rule
	}
	var like []*key
	for _, k := range w.keys {
		if k.rule.Name == "closed" {
			like = append(like, k)
		}
	}
	for range crowdSize {
		of := like[w.rng.IntN(len(like))]
		w.crowd.keys = append(w.crowd.keys, &stranger{hash: arith.Hash{Hi: w.rng.Uint64(), Lo: of.hash.Lo}})
	}
}

// crowdIn has clients ask about the crowd for a span, and again afterwards.
func (w *World) crowdIn(span limiter.Tick) {
	for i := range 6 * crowdSize {
		w.after(w.between(0, 2*span), func() {
			if live := w.serving(); len(live) > 0 {
				w.askFor(w.crowd.keys[i%crowdSize], live[w.rng.IntN(len(live))])
			}
		})
	}
}

// askFor has a client ask a node about one key of the crowd, for more than half of its
// limit.
func (w *World) askFor(s *stranger, n *Node) {
	var c arith.Charge
	c.Add(arith.Key{Hash: s.hash, Rule: w.crowd.rule, Cost: crowdCost})
	d := new(limiter.Decision)
	n.do(func() {
		n.core.Begin(&c, d, 0, func() {
			switch {
			case !n.alive:
			case overflows(d):
				w.crowd.full++
			case d.Allowed:
				s.admitted++
			}
		})
	})
}

// check returns an error if a key of the crowd was admitted twice: or more often, if owner
// and heir of it may be lost together.
func (c *crowd) check(w *World, b bounds) error {
	for i, s := range c.keys {
		most := 1
		if b.losses {
			part := table.PartitionOf(&arith.Key{Hash: s.hash, Rule: c.rule})
			most = ((1+w.losses[part])*crowdLimit + w.outcome.takeovers(part)) / crowdCost
		}
		if s.admitted > most {
			return fmt.Errorf("key %d of the crowd: %d checks admitted, at most %d", i, s.admitted, most)
		}
	}
	return nil
}

// overflows reports whether a check was denied because a table was full.
func overflows(d *limiter.Decision) bool {
	for i := range d.Len() {
		if d.Limit(i).Overflow {
			return true
		}
	}
	return false
}

// waitsForRoom: a partition has an owner and an heir, and the member that should own it, or be its heir, had no
// room for a copy of late. The owner tries again every 3 s, so the partition moves once counters there have recovered.
// It may have no heir where its owner has more counters than one member may send.
func (w *World) waitsForRoom(id int) bool {
	for _, n := range w.live() {
		info, _ := n.core.Partition(id)
		if info.Role != peer.Owned {
			continue
		}
		v := n.core.View()
		want := w.node(v.Owner(uint16(id)))
		if want == n {
			want = w.node(v.Successor(uint16(id)))
		}
		has := 0
		for _, part := range w.parts {
			has += n.table.Count(part)
		}
		kept := info.Heir != 0 || has > 2*w.crowd.maxKeys
		return kept && want != nil && want.fullAt != 0 && w.now-want.fullAt < 4*limiter.Second
	}
	return false
}

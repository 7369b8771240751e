package cluster

import (
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// rejoining is the last end of a minority: this node saw live of so many members until at, by the counters'
// clock, and applies its share until a second later.
type rejoining struct {
	at, until limiter.Tick
	live, of  uint64
}

// rejoinFor is how long an owner that was in a minority applies its share once it sees more, unless it merges
// before what another owner had.
const rejoinFor = limiter.Second

// minority records how a minority began. While a cluster forms, this node sees new members some milliseconds before it
// can ask them. Such a minority loses no member and ends at once, and no other member has counted for this node.
type minority struct {
	at   limiter.Tick
	lost bool // this node sees fewer members than before
}

// viewChanged notes the beginning and the end of a minority.
func (d *decider) viewChanged(t *turn, old, v *view.View) {
	began := d.minority.Load()
	switch lost := len(v.Members) < len(old.Members); {
	case v.Minority() && (began == nil || !old.Minority()):
		d.minority.Store(&minority{t.Now, lost})
	case v.Minority() && lost && !began.lost:
		d.minority.Store(&minority{began.at, true})
	}
	if self := old.Self(); self == nil || self.State == peer.Joining {
		return // a joining member owns nothing
	}
	if len(old.Members) > 0 && old.Minority() && !v.Minority() && (began == nil || began.lost || t.Now-began.at >= rejoinFor) {
		d.rejoined.Store(&rejoining{t.At, t.Now + rejoinFor, uint64(len(old.Members)), uint64(old.Recent)})
	}
}

// seen returns by how many members, of how many, this node's share is: those that it sees in a minority, or saw in
// one that ended less than rejoinFor ago, which ended is then. of is 0 if no share applies. r is the last end of a minority; nil: there
// was none.
func (r *rejoining) seen(t *turn) (live, of uint64, ended *rejoining) {
	v := t.view()
	if v.Minority() {
		return uint64(len(v.Members)), uint64(v.Recent), nil
	}
	if r == nil || t.Now >= r.until {
		return 0, 0, nil
	}
	return r.live, r.of, r
}

// shareOf returns the charge with the limits that this node may apply: an available
// owner in a minority applies its share of them. So it does when the minority is over, until it
// has merged what an owner of the majority had, or that would have come. It returns k itself if nothing changes.
func (d *decider) shareOf(t *turn, k *limiter.Charge) *limiter.Charge {
	live, of, ended := d.rejoined.Load().seen(t)
	if of == 0 {
		return k
	}
	var out *limiter.Charge
	for i := range k.Len() {
		key := k.Key(i)
		if key.Rule.OnUnreachable != limiter.UnreachableLocal {
			continue
		}
		if p := d.parts.of(key); ended != nil && (p == nil || p.r.Own() == nil || p.r.Own().TookAfter(ended.at)) {
			continue
		}
		if out == nil {
			out = k.Clone()
		}
		out.Key(i).Rule = d.calls.Share(key.Rule, live, of)
	}
	if out == nil {
		return k
	}
	return out
}

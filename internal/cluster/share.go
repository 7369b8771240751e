package cluster

import (
	"sync/atomic"

	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
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

// shares is what part of limits this node applies while it sees few members, and why. It is safe for concurrent use.
type shares struct {
	parts    partitions
	calls    *route.Router
	few      few
	rejoined atomic.Pointer[rejoining]
	minority atomic.Pointer[minority]
}

// viewChanged notes the beginning and the end of a minority.
func (s *shares) viewChanged(t *turn, old, v *view.View) {
	s.few.viewChanged(t, old, v)
	began := s.minority.Load()
	switch lost := len(v.Members) < len(old.Members); {
	case v.Minority() && (began == nil || !old.Minority()):
		s.minority.Store(&minority{t.Now, lost})
	case v.Minority() && lost && !began.lost:
		s.minority.Store(&minority{began.at, true})
	}
	if self := old.Self(); self == nil || self.State == peer.Joining {
		return // a joining member owns nothing
	}
	if len(old.Members) > 0 && old.Minority() && !v.Minority() &&
		(began == nil || began.lost || t.Now-began.at >= rejoinFor) {
		s.rejoined.Store(&rejoining{t.At, t.Now + rejoinFor, uint64(len(old.Members)), uint64(old.Recent)})
	}
}

// share is by how many members, of how many, the share of a limit is that this node applies. of is 0 if it applies
// none. ended means that it saw so few a moment ago.
type share struct {
	live, of uint64
	ended    bool
}

// in returns the share that applies to a key of a rule under local: in a minority, of those that this node sees;
// where it looks and finds only a minority in reach, of those; and when a minority is over, of those that it saw, until
// it has merged what an owner of the majority had, or that would have come.
func (s *shares) in(t *turn, key *arith.Key) share {
	v := t.view()
	if v.Minority() {
		return share{live: uint64(len(v.Members)), of: uint64(v.Recent)}
	}
	if r := s.rejoined.Load(); r != nil && t.Now < r.until {
		if p := s.parts.of(key); p != nil && p.r.Own() != nil && !p.r.Own().TookAfter(r.at) {
			return share{live: r.live, of: r.of, ended: true}
		}
	}
	live, of := s.few.left(v, t.Now)
	return share{live: live, of: of}
}

// of returns the charge with the limits that this node may apply, see in. It returns k itself if
// nothing changes.
func (s *shares) of(t *turn, k *arith.Charge) *arith.Charge {
	var out *arith.Charge
	for i := range k.Len() {
		key := k.Key(i)
		if key.Rule.OnUnreachable != limiter.UnreachableLocal {
			continue
		}
		if !k.Peek {
			s.few.ask(t, t.view())
		}
		x := s.in(t, key)
		if x.of == 0 {
			continue
		}
		if out == nil {
			out = k.Clone()
		}
		out.Key(i).Rule = s.calls.Share(key.Rule, x.live, x.of)
	}
	if out == nil {
		return k
	}
	return out
}

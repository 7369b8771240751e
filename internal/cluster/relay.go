package cluster

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
)

// flush hands what a link has to the network, or, where the link is down or
// silent, to a member that may pass it on.
func (c *Core) flush(t *turn, l *link) {
	l.mu.Lock()
	l.awake = false
	up, suspect := l.up, l.suspect
	l.mu.Unlock()
	var relays []*link
	if !up || suspect {
		relays = c.relays(l)
	}
	l.mu.Lock()
	var carried []*peer.Frame
	switch {
	case !up:
		l.closeOpen()
		l.closeChecks()
		l.closeBulk()
		carried = slices.Concat(l.frames, l.asking, l.bulks)
		l.frames, l.asking, l.bulks, l.waits = nil, nil, nil, 0
	case suspect && len(relays) > 0:
		carried = l.detour()
	}
	for _, f := range carried {
		f.Got = l.got
	}
	l.mu.Unlock()
	if up {
		c.net.Wake(l.to)
	}
	if len(carried) > 0 {
		c.carry(t, relays, carried)
	}
}

// carry gives frames to members that are connected, to be passed on: to several,
// for whoever is asked may not be connected either; checks to one only. Where
// there is none they are lost, and those who asked something hear of it.
func (c *Core) carry(t *turn, relays []*link, frames []*peer.Frame) {
	for _, f := range frames {
		most := maxRelays
		if len(f.Checks)+len(f.Refunds) > 0 {
			most = 1
		}
		sent := 0
		for _, r := range relays {
			if r.carry(f) {
				sent++
				c.net.Wake(r.to)
			}
			if sent == most {
				break
			}
		}
		if sent > 0 {
			c.event(EventRelayed, -1)
			continue
		}
		lost := func(id uint64) { // 0: nobody waits
			if o := c.ops.get(id); o != nil {
				o.replied(t, f.To, &peer.Reply{ID: id, Status: peer.Lost, Owner: peer.Epoch{Instance: f.To}})
			}
		}
		for i := range f.Checks {
			lost(f.Checks[i].ID)
		}
		for i := range f.Refunds {
			lost(f.Refunds[i].ID)
		}
	}
}

// carry has this member pass a frame on; it returns false where there is no room, or
// no connection any more.
func (l *link) carry(f *peer.Frame) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.up:
		return false
	case slices.Contains(l.carried, f): // it was asked to before another was, which failed
		return true
	case len(l.carried) >= maxRelayed:
		return false
	}
	l.carried = append(l.carried, f)
	return true
}

// carryOn gives frames on that a member was to pass on and has not been given: to
// those that they are for, if they are in reach again, else to other members.
func (c *Core) carryOn(t *turn, frames []*peer.Frame) {
	for _, f := range frames {
		if c.over(f) {
			continue
		}
		to := c.link(f.To)
		relays := c.relays(to)
		to.mu.Lock()
		direct := to.up && (!to.suspect || len(relays) == 0) && to.accept(f)
		if direct {
			t.wake(to)
		}
		to.mu.Unlock()
		if !direct {
			c.carry(t, relays, []*peer.Frame{f})
		}
	}
}

// accept takes over a frame that somebody else was to pass on; it returns false where
// there is no room. l.mu is held.
func (l *link) accept(f *peer.Frame) bool {
	if len(f.Checks)+len(f.Refunds) == 0 {
		return l.queue(f.Clone()) // others may have it too
	}
	if len(l.asking) >= maxFrames {
		return false
	}
	l.asking = append(l.asking, f)
	return true
}

// over tells whether nobody waits any more for what a frame asks.
func (c *Core) over(f *peer.Frame) bool {
	for i := range f.Checks {
		if c.ops.get(f.Checks[i].ID) != nil {
			return false
		}
	}
	return len(f.Checks) > 0 && len(f.Refunds) == 0
}

// relays returns the links that may pass something on: those that are up and
// not suspect. The member that brought something from there comes first, then
// another one each time.
func (c *Core) relays(l *link) (out []*link) {
	l.mu.Lock()
	via := l.via
	l.mu.Unlock()
	v := c.view.Load()
	n := len(v.Members)
	from := int(c.relayHand.Add(1))
	for i := range n {
		m := v.Members[(from+i)%n].Instance
		if m == l.to || m == c.self || v.Members[(from+i)%n].State == peer.Leaving {
			continue
		}
		r := c.link(m)
		r.mu.Lock()
		ok := r.up && !r.suspect && !r.leaving
		r.mu.Unlock()
		switch {
		case !ok:
		case m == via:
			out = slices.Insert(out, 0, r)
		default:
			out = append(out, r)
		}
	}
	return out
}

// detour returns what is to take another way because the connection is suspect:
// control messages take both, for the duplicate is harmless; checks only the
// other, for they must not be executed twice. l.mu is held.
func (l *link) detour() (carried []*peer.Frame) {
	if l.open != nil && !l.open.Empty() {
		l.closeOpen()
		if n := len(l.frames); n > 0 {
			carried = append(carried, l.frames[n-1].Clone())
		}
	}
	l.closeChecks()
	carried = append(carried, l.asking...)
	l.asking = nil
	return carried
}

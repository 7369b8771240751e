package cluster

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
)

// flush tells the network that a link has frames. If the link is down or silent, it
// gives them to members that may relay them.
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

// carry gives frames to connected members to relay. A frame goes to up to maxRelays of
// them, since each may lack a connection itself, but a frame with checks to one only. If
// there is no relay the frame is lost, and the operations that wait for it are told.
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
		lost := func(id uint64) { // id 0 means that no operation waits
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

// carry gives a frame to this member to relay. It reports false if there is no room, or
// no connection any more.
func (l *link) carry(f *peer.Frame) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.up:
		return false
	case slices.Contains(l.carried, f): // it has the frame already, and a second relay failed
		return true
	case len(l.carried) >= maxRelayed:
		return false
	}
	l.carried = append(l.carried, f)
	return true
}

// carryOn takes care of frames that a relay was to get and did not: they are sent
// directly if their member is in reach again, otherwise to other relays.
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

// accept queues a frame that a relay was to get for direct sending. It reports false if
// there is no room. l.mu is held.
func (l *link) accept(f *peer.Frame) bool {
	if len(f.Checks)+len(f.Refunds) == 0 {
		return l.queue(f.Clone()) // other relays may have the same frame
	}
	if len(l.asking) >= maxFrames {
		return false
	}
	l.asking = append(l.asking, f)
	return true
}

// over reports whether a frame has only checks, and no operation waits for any of them.
func (c *Core) over(f *peer.Frame) bool {
	for i := range f.Checks {
		if c.ops.get(f.Checks[i].ID) != nil {
			return false
		}
	}
	return len(f.Checks) > 0 && len(f.Refunds) == 0
}

// relays returns the links that may relay frames to l's member: they are up, not
// suspect, and their members are not leaving. The member that last relayed a frame from
// there comes first. The order of the others rotates.
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

// detour returns the frames to send by a relay because the connection is suspect.
// Control messages are sent both ways, as duplicates are harmless. Checks and refunds
// are sent only by the relay, as they must not be executed twice. l.mu is held.
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

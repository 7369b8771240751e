package cluster

import (
	"slices"

	"github.com/weirlimit/weir/peer"
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
		l.frames, l.asking, l.bulks = nil, nil, nil
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
		for _, r := range relays[:min(most, len(relays))] {
			sent += r.carry(f)
			c.net.Wake(r.to)
		}
		if sent > 0 {
			c.event(EventRelayed, -1)
			continue
		}
		lost := func(id uint64) {
			if o := c.ops.get(id); o != nil {
				o.replied(t, f.To, &peer.Reply{Status: peer.Lost, Owner: peer.Epoch{Instance: f.To}})
			}
		}
		for i := range f.Checks {
			lost(f.Checks[i].ID)
		}
		for i := range f.Refunds {
			lost(f.Refunds[i].ID) // 0: nobody waits
		}
	}
}

// carry has this member pass a frame on; it returns 0 where there is no room, or no
// connection any more.
func (l *link) carry(f *peer.Frame) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.up || len(l.carried) >= maxRelayed {
		return 0
	}
	l.carried = append(l.carried, f)
	return 1
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

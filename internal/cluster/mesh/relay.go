package mesh

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// maxRelays is how many relays get one frame.
const maxRelays = 3

// flush tells the network that a link has frames. If the link is down or silent, it
// gives them to members that may relay them.
func (w *Writer) flush(l *link) {
	l.mu.Lock()
	l.awake = false
	up, suspect := l.up.Load(), l.line.suspect
	l.mu.Unlock()
	var relays carriers
	if !up || suspect {
		relays = w.mesh.relays(l)
	}
	l.mu.Lock()
	var carried []*peer.Frame
	switch {
	case !up:
		carried = l.out.all()
	case suspect && relays.take(false):
		carried = l.out.detour(relays.take(true))
	}
	for _, f := range carried {
		f.Got = l.line.got
	}
	l.mu.Unlock()
	if up {
		w.mesh.config.Wake(l.to)
	}
	if len(carried) > 0 {
		w.carry(relays, carried)
	}
}

// carriers are the links that may relay frames to a member: those to members in the view, in the order in which they
// are asked, and one to a member that is not in it; nil if there is none.
type carriers struct {
	seen   []*link
	unseen *link
}

// take reports whether one of them takes a frame, asks one with requests, that a connection could carry, too, though it
// is suspect: whoever is not in the view is worse for a request than that.
func (r *carriers) take(asks bool) bool { return len(r.seen) > 0 || !asks && r.unseen != nil }

// of returns who is given a frame to relay, the first ones first. Who is not in the view may have ended, and nobody
// has noticed on the connection. So it gets requests last, which go to one relay only. What it has carried must be
// answered, so it gets everything else first.
func (r *carriers) of(asks bool) []*link {
	switch {
	case r.unseen == nil:
		return r.seen
	case asks:
		return append(slices.Clip(r.seen), r.unseen)
	default:
		return append([]*link{r.unseen}, r.seen...)
	}
}

// carry gives frames to connected members to relay. A frame goes to up to maxRelays of
// them, since each may lack a connection itself, but a frame with requests to one only.
// If there is no relay the frame is lost, and the callers that wait for it are told.
func (w *Writer) carry(relays carriers, frames []*peer.Frame) {
	for _, f := range frames {
		asks, most := len(f.Checks)+len(f.Refunds) > 0, maxRelays
		if asks {
			most = 1
		}
		sent := 0
		for _, r := range relays.of(asks) {
			if r.carry(f, w.mesh.config.Now()) {
				sent++
				w.mesh.config.Wake(r.to)
			}
			if sent == most {
				break
			}
		}
		if sent > 0 {
			w.mesh.config.Relayed()
			continue
		}
		for i := range f.Checks {
			w.lose(f.Checks[i].ID, f.To)
		}
		for i := range f.Refunds {
			w.lose(f.Refunds[i].ID, f.To)
		}
	}
}

// lose records that a request could not be delivered. Nobody waits for the number 0.
func (w *Writer) lose(id uint64, to peer.Instance) {
	if id != 0 {
		w.lost = append(w.lost, Lost{ID: id, To: to})
	}
}

// carry gives a frame to this member to relay. It reports false if there is no room, or
// no connection any more.
func (l *link) carry(f *peer.Frame, now limiter.Tick) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.up.Load():
		return false
	case slices.Contains(l.out.carried, f): // it has the frame already, and a second relay failed
		return true
	case len(l.out.carried) >= maxRelayed:
		return false
	}
	l.out.carried = append(l.out.carried, f)
	if l.carriesSince == 0 && len(f.Checks)+len(f.Refunds) > 0 {
		l.carriesSince = now
	}
	return true
}

// Redirect takes care of what a member that went down was to relay. Frames of this node
// are sent directly if their member is in reach again, otherwise to other relays. The
// senders of other frames learn that their requests are lost.
func (w *Writer) Redirect(s Stranded) {
	for _, f := range s.carried {
		if w.mesh.over(f) {
			continue
		}
		to := w.mesh.link(f.To)
		relays, asks := w.mesh.relays(to), len(f.Checks)+len(f.Refunds) > 0
		to.mu.Lock()
		direct := to.up.Load() && (!to.line.suspect || !relays.take(asks)) && to.out.accept(f)
		if direct {
			w.wake(to)
		}
		to.mu.Unlock()
		if !direct {
			w.carry(relays, []*peer.Frame{f})
		}
	}
	for _, f := range s.relayed {
		w.reportLost(f)
	}
}

// over reports whether a frame has only checks, and nobody waits for any of them.
func (m *Mesh) over(f *peer.Frame) bool {
	for i := range f.Checks {
		if m.config.Waiting(f.Checks[i].ID) {
			return false
		}
	}
	return len(f.Checks) > 0 && len(f.Refunds) == 0
}

// relays returns the links that may relay frames to l's member: they are up, not
// suspect, and their members are not leaving. The member that last relayed a frame from
// there comes first, and is one of them even if it is not in the view: it may have started a moment ago, and
// what it has carried must be answered. The order of the others rotates. Those from which nothing has come within
// freshFor come last: nothing may have been sent to one that has ended since. If all are
// suspect, it returns the one that is silent for the shortest time, if l is silent for
// longer: one packet that is late must not leave a request to a connection that is cut.
func (m *Mesh) relays(l *link) (out carriers) {
	l.mu.Lock()
	via, silentSince := l.via, l.line.lacksAt
	if !l.up.Load() {
		silentSince = 0
	}
	l.mu.Unlock()
	var late *link
	v := m.config.View()
	n := len(v.Members)
	fresh := 0 // so many of those seen
	from := int(m.rotation.Add(1))
	for i := range n {
		o := &v.Members[(from+i)%n]
		if o.Instance == l.to || o.Instance == m.config.Self || o.State == peer.Leaving {
			continue
		}
		r := m.link(o.Instance)
		switch relaying, since, heard := r.relaying(m.config.Now()); {
		case !relaying:
		case since > silentSince:
			late, silentSince = r, since
		case since != 0:
		case !heard && o.Instance == via:
			out.seen = slices.Insert(out.seen, fresh, r)
		case !heard:
			out.seen = append(out.seen, r)
		case o.Instance == via:
			out.seen = slices.Insert(out.seen, 0, r)
			fresh++
		default:
			out.seen = slices.Insert(out.seen, fresh, r)
			fresh++
		}
	}
	if r := m.links.Load().byID[via]; r != nil && !v.Has(via) {
		if relaying, since, _ := r.relaying(m.config.Now()); relaying && since == 0 {
			out.unseen = r
		}
	}
	if !out.take(false) && late != nil {
		out.seen = []*link{late}
	}
	return out
}

// relaying reports whether the member may relay frames, since when the connection to it is silent, 0 if it is not
// suspect, and whether something has come from it within freshFor. No member confirms what it is to relay. So one is
// suspect, too, from which nothing has come since it was given requests to relay: neither an answer nor that they are
// lost.
func (l *link) relaying(now limiter.Tick) (ok bool, silentSince limiter.Tick, heard bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch since := l.carriesSince; {
	case l.line.suspect:
		silentSince = l.line.lacksAt
	case since != 0 && now-since > max(suspectAfter, 3*l.line.rtt):
		silentSince = since
	}
	return l.up.Load() && !l.leaving, silentSince, now-l.heardAt < freshFor
}

// Relay forwards a frame of another member to the member it is for. A frame is relayed
// once only. If there is no connection, or no room, the sender learns that its requests are
// lost, and also if the connection is suspect: it may ask another member. A frame without
// requests waits for such a connection, since nobody sends a reply again.
func (w *Writer) Relay(f *peer.Frame) {
	if f.Relayed {
		return
	}
	ok := false
	if l := w.mesh.links.Load().byID[f.To]; l != nil {
		l.mu.Lock()
		size, asks := weight(f), len(f.Checks)+len(f.Refunds) > 0
		ok = l.up.Load() && !(asks && l.line.suspect) && len(l.out.relayed) < maxRelayed &&
			l.out.relayedSize+size <= maxRelayedSize
		if ok {
			g := f.Clone()
			g.Relayed, g.Via = true, w.mesh.config.Self
			l.out.relayed = append(l.out.relayed, g)
			l.out.relayedSize += size
			w.wake(l)
		}
		l.mu.Unlock()
	}
	if !ok {
		w.reportLost(f)
	}
}

// reportLost tells the sender of a frame that its requests were not forwarded, so that it
// can ask another member.
func (w *Writer) reportLost(f *peer.Frame) {
	if len(f.Checks)+len(f.Refunds) == 0 {
		return
	}
	w.write(f.From, 40*(len(f.Checks)+len(f.Refunds)), false, false, func(_ *draft, g *peer.Frame) {
		lost := func(id uint64) {
			g.Replies = append(g.Replies, peer.Reply{ID: id, Status: peer.Lost, Owner: peer.Epoch{Instance: f.To}})
		}
		for i := range f.Checks {
			lost(f.Checks[i].ID)
		}
		for i := range f.Refunds {
			if f.Refunds[i].ID != 0 {
				lost(f.Refunds[i].ID)
			}
		}
	})
}

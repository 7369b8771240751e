package gossip

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/peer"
)

// fate is why a member is not live.
type fate uint8

const (
	// dead: it stopped answering. It counts as a member until it comes back, or
	// left after all, or an operator forgets it.
	dead fate = iota
	// forgotten by an operator. If it comes back it is a member again.
	forgotten
	// left gracefully. That run never comes back.
	left
)

const (
	// maxGone bounds the members that are remembered as dead, forgotten or left.
	maxGone = 1024
	// keepForgotten and keepLeft are for how long those are remembered, so that a
	// node that was cut off does not bring the dead back. A member that came back
	// and died again meanwhile must not stay forgotten, hence the shorter time; a
	// run that left is never live again, so it may be remembered for long.
	keepForgotten, keepLeft = 10 * time.Minute, 24 * time.Hour
)

// gone is a member that is not live.
type gone struct {
	about
	fate  fate
	since time.Time
}

// after reports whether what g says is newer, or, of one run, more final than
// what h says.
func (g *gone) after(h *gone) bool {
	return cmp.Or(cmp.Compare(g.started, h.started), cmp.Compare(g.Instance, h.Instance), cmp.Compare(g.fate, h.fate)) > 0
}

// roster is who is live and who is gone, by name. This node itself is not in it.
// It has no lock and no clock.
//
// Live is what memberlist says. Gone is what this node saw and what others
// told, and of two opinions about one name the later run's, or the more final,
// holds, so that all nodes that told each other agree.
type roster struct {
	self peer.Instance
	name string
	live map[string]about
	gone map[string]gone
	// ghosts are names that came and went without anybody vouching for them, and when:
	// memberlist keeps them for half a minute.
	ghosts map[string]time.Time
}

// maxNames bounds the names that memberlist may have at a time, and keepGhost is for how
// long one counts that nobody vouched for.
const (
	maxNames  = 2 * MaxMembers
	keepGhost = time.Minute
)

// strange reports whether a name is one more than there may be: it is not live, nor known
// to be a member's, and there are too many like it.
func (r *roster) strange(name string, now time.Time) bool {
	if _, ok := r.live[name]; ok || name == r.name {
		return false
	}
	if _, ok := r.gone[name]; ok {
		return false
	}
	if _, ok := r.ghosts[name]; ok || len(r.live)+len(r.ghosts) < maxNames {
		return false
	}
	r.layGhosts(now)
	return len(r.live)+len(r.ghosts) >= maxNames
}

func (r *roster) layGhosts(now time.Time) {
	for name, at := range r.ghosts {
		if now.Sub(at) >= keepGhost {
			delete(r.ghosts, name)
		}
	}
}

func newRoster(name string, self peer.Instance) *roster {
	return &roster{self: self, name: name, live: map[string]about{}, gone: map[string]gone{}, ghosts: map[string]time.Time{}}
}

// alive takes in that a member is live, or says something else of itself. It
// reports whether that changed anything.
func (r *roster) alive(a about) bool {
	if a.Name == r.name {
		return false
	}
	if g, ok := r.gone[a.Name]; ok {
		if g.fate == left && g.Instance == a.Instance {
			return false // said before it left, heard after
		}
		delete(r.gone, a.Name)
	}
	old, was := r.live[a.Name]
	r.live[a.Name] = a
	return !was || old != a
}

// lost takes in that memberlist holds a member for dead, or gone. One that nobody vouches
// for is not remembered.
func (r *roster) lost(name string, now time.Time, vouched func(*gone) bool) bool {
	a, ok := r.live[name]
	if !ok {
		return false
	}
	delete(r.live, name)
	if g := (gone{about: a, fate: dead, since: now}); vouched(&g) {
		r.keep(g)
	} else {
		r.ghosts[name] = now
	}
	return true
}

// merge takes in what this node or another says of a member that is gone. It
// reports whether that is news.
func (r *roster) merge(g gone, now time.Time) bool {
	if g.Name == r.name {
		return false
	}
	if a, ok := r.live[g.Name]; ok {
		// Only who leaves knows better than memberlist, and only of that run.
		if g.fate != left || g.Instance != a.Instance {
			return false
		}
		delete(r.live, g.Name)
		r.keep(g)
		return true
	}
	if old, ok := r.gone[g.Name]; ok && !g.after(&old) {
		return false
	}
	if r.stale(&g, now) {
		return false
	}
	return r.keep(g)
}

// forget makes a dead member forgotten, and returns what to tell others.
func (r *roster) forget(name string, now time.Time) (gone, error) {
	if _, ok := r.live[name]; ok || name == r.name {
		return gone{}, ErrAlive
	}
	g, ok := r.gone[name]
	if !ok || g.fate != dead {
		return gone{}, ErrUnknown
	}
	g.fate, g.since = forgotten, now
	r.gone[name] = g
	return g, nil
}

// keep remembers a member that is gone. At the bound the one that has been
// forgotten or has left for longest makes room; if all are dead, the new one is
// not remembered.
func (r *roster) keep(g gone) bool {
	if _, ok := r.gone[g.Name]; !ok && len(r.gone) >= maxGone {
		oldest := ""
		for name, o := range r.gone {
			if o.fate != dead && (oldest == "" || o.since.Before(r.gone[oldest].since)) {
				oldest = name
			}
		}
		if oldest == "" {
			return false
		}
		delete(r.gone, oldest)
	}
	r.gone[g.Name] = g
	return true
}

func (r *roster) stale(g *gone, now time.Time) bool {
	age := now.Sub(g.since)
	return g.fate == forgotten && age > keepForgotten || g.fate == left && age > keepLeft
}

// expire drops what need not be remembered any longer, and the dead for whom nobody
// vouches any more.
func (r *roster) expire(now time.Time, vouched func(*gone) bool) {
	r.layGhosts(now)
	for name, g := range r.gone {
		if r.stale(&g, now) || g.fate == dead && !vouched(&g) {
			delete(r.gone, name)
		}
	}
}

// members returns the live members and the dead, and self, sorted by name.
func (r *roster) members(self peer.Member) []peer.Member {
	out := make([]peer.Member, 0, len(r.live)+len(r.gone)+1)
	out = append(out, self)
	for _, a := range r.live {
		out = append(out, a.Member)
	}
	for _, g := range r.gone {
		if g.fate == dead {
			m := g.Member
			m.State = peer.Dead
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b peer.Member) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// departed returns all who are gone, for telling others.
func (r *roster) departed() []gone {
	out := make([]gone, 0, len(r.gone))
	for _, g := range r.gone {
		out = append(out, g)
	}
	return out
}

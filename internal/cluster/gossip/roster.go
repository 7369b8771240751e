package gossip

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/peer"
)

// fate is the reason why a member is not live.
type fate uint8

const (
	// dead: it stopped answering. It counts as a member until it comes back, turns out
	// to have left, or an operator forgets it.
	dead fate = iota
	// forgotten: an operator has forgotten it. If it comes back it is a member again.
	forgotten
	// left: it left gracefully. That run never comes back.
	left
)

const (
	// maxGone bounds the members that are remembered as dead, forgotten or left.
	maxGone = 1024
	// keepForgotten and keepLeft are how long those are remembered, so that a node that
	// was cut off does not bring the dead back. keepForgotten is shorter because a
	// member that came back and died again meanwhile must not stay forgotten. A run that
	// left is never live again, so keepLeft may be long.
	keepForgotten, keepLeft = 10 * time.Minute, 24 * time.Hour
)

// gone is a member that is not live: why, and since when.
type gone struct {
	about
	fate  fate
	since time.Time
}

// known returns what must be so for the record to be true.
func (g *gone) known() peer.Known {
	return peer.Known{Name: g.Name, Instance: g.Instance, Gone: g.fate != dead}
}

// after reports whether g is newer than h or, of the same run, more final.
func (g *gone) after(h *gone) bool {
	return cmp.Or(cmp.Compare(g.started, h.started), cmp.Compare(g.Instance, h.Instance), cmp.Compare(g.fate, h.fate)) > 0
}

// roster holds the members that are live and those that are gone, by name, without this
// node. It is not safe for concurrent use and has no clock.
//
// live is what memberlist reports. gone is what this node saw and what others reported.
// Of two reports about one name the later run's, or the more final one, wins, so nodes
// that exchanged them agree.
type roster struct {
	name string
	live map[string]about
	gone map[string]gone
	// ghosts are names that came and went without being vouched for, and when they went:
	// memberlist keeps them for half a minute.
	ghosts map[string]time.Time
}

// maxNames bounds the names that memberlist may have at a time. keepGhost is how long a
// ghost counts.
const (
	maxNames  = 2 * MaxMembers
	keepGhost = time.Minute
)

// strange reports whether a name is too many: it is not live, not known to be a
// member's, and there are maxNames already.
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

func newRoster(name string) *roster {
	return &roster{name: name, live: map[string]about{}, gone: map[string]gone{},
		ghosts: map[string]time.Time{}}
}

// alive records that a member is live, or that its metadata changed. It reports whether
// that changed the roster.
func (r *roster) alive(a about) bool {
	if a.Name == r.name {
		return false
	}
	if g, ok := r.gone[a.Name]; ok {
		if g.fate == left && g.Instance == a.Instance {
			return false // sent before it left and received after
		}
		delete(r.gone, a.Name)
	}
	old, was := r.live[a.Name]
	r.live[a.Name] = a
	return !was || old != a
}

// lost records that memberlist reports a member as dead or gone. A member that is not
// vouched for is not remembered.
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

// merge records what this node or another reports of a member that is gone. It reports
// whether that is news.
func (r *roster) merge(g gone, now time.Time) bool {
	if g.Name == r.name {
		return false
	}
	if a, ok := r.live[g.Name]; ok {
		// Only a member that leaves knows better than memberlist, and only about that
		// run.
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

// forget marks a dead member as forgotten, and returns the record for the others.
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

// keep remembers a member that is gone. At the bound, the one that was forgotten or left
// longest ago makes room. If all are dead, the new one is not remembered.
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

// expire drops what need not be remembered any longer, and dead members that are no
// longer vouched for.
func (r *roster) expire(now time.Time, vouched func(*gone) bool) {
	r.layGhosts(now)
	for name, g := range r.gone {
		if r.stale(&g, now) || g.fate == dead && !vouched(&g) {
			delete(r.gone, name)
		}
	}
}

// members returns the live members, the dead ones and self, sorted by name.
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

// departed returns all members that are gone, in no particular order.
func (r *roster) departed() []gone {
	return slices.Collect(maps.Values(r.gone))
}

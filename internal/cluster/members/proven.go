package members

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
)

// A member says over its link which other members there are. It may lie: names that it
// invents would make a minority of all others. So a name counts if this node has met it on a link, or
// if more than half of the members say so that could know. A node that starts hears of dead members
// only so, and tells them on. Two nodes that restart one after the other must not forget a dead one,
// and what one member invented must not count since a node that has just started told it on.
// So whoever knows a name by one member's word says whose.

// maxUnproven bounds the names that this node has heard of from one member and has not met.
const maxUnproven = 256

// teller is a member that says that another is one. source is the only member that it knows it
// from; "" if it has met it, or knows it from several.
type teller struct{ name, source string }

// teller returns the name of the member that sends a frame over its own link; "" if it has not said
// it, or if the frame was relayed: a relay may write whatever it wants.
func (r *Registry) teller(from peer.Instance, all []peer.Known, direct bool) string {
	if !direct {
		return ""
	}
	for i := range all {
		if all[i].Instance == from {
			return all[i].Name
		}
	}
	for name, a := range r.known {
		if run := a.run(from); run != nil && run.met || a.live && a.instance == from {
			return name
		}
	}
	return ""
}

// unproven returns how many names are known by the word of a member and were not met. r.mu is held.
func (r *Registry) unproven(by string) (n int) {
	for _, a := range r.known {
		if !a.met && !a.live && slices.ContainsFunc(a.runs[:], func(x run) bool { return x.says(by) >= 0 }) {
			n++
		}
	}
	return n
}

// says returns the index of a member among those that tell of an instance, -1 if it does not.
func (x *run) says(by string) int {
	return slices.IndexFunc(x.told, func(t teller) bool { return t.name == by })
}

// tell records who says that an instance is a member: itself, or another.
func (a *record) tell(k peer.Known, itself bool, by string) {
	x := a.run(k.Instance)
	switch {
	case x == nil:
	case itself:
		x.met, a.met = true, true
	case by == "":
	case x.says(by) >= 0:
		x.told[x.says(by)].source = k.Source
	case len(x.told) < maxUnproven:
		x.told = append(x.told, teller{by, k.Source})
	}
}

// proven reports whether a name is known to be a member's. r.mu is held.
func (r *Registry) proven(name string) bool {
	a := r.known[name]
	return a != nil && (a.met || a.live || r.outvotes(name, a.told()))
}

// told returns who says of any instance of a name that it is a member.
func (a *record) told() (all []teller) {
	for i := range a.runs {
		for _, t := range a.runs[i].told {
			if !slices.ContainsFunc(all, func(o teller) bool { return o.name == t.name }) {
				all = append(all, t)
			}
		}
	}
	return all
}

// outvotes reports whether those that tell of a name are more than half of the members that could
// say so: those, and all in the view that this node has met. r.mu is held.
func (r *Registry) outvotes(name string, told []teller) bool {
	votes, others := 0, 0
	for _, t := range told {
		if t.name == name || t.name == r.self || r.expelled.has(t.name) {
			continue
		}
		if o := r.known[t.source]; t.source == "" || t.source == r.self || o == nil || !o.live {
			votes++
		}
		if o := r.known[t.name]; o == nil || !o.live || !o.met {
			others++
		}
	}
	if votes == 0 {
		return false
	}
	for o, a := range r.known {
		if a.live && a.met && o != name && o != r.self && !r.expelled.has(o) {
			others++
		}
	}
	return 2*votes > others
}

// source returns the only member that this node knows a name from; "" if it has met it or knows it
// from several. r.mu is held.
func (r *Registry) source(name string) string {
	a := r.known[name]
	if a == nil || a.met || a.live {
		return ""
	}
	if told := a.told(); len(told) == 1 {
		return told[0].name
	}
	return ""
}

// unsay forgets what a member that is expelled said of others. r.mu is held.
func (r *Registry) unsay(by string) {
	for name, a := range r.known {
		told := false
		for i := range a.runs {
			if k := a.runs[i].says(by); k >= 0 {
				a.runs[i].told = slices.Delete(slices.Clone(a.runs[i].told), k, k+1)
				told = true
			}
		}
		if told && !a.met && !a.live && len(a.told()) == 0 {
			delete(r.known, name)
		}
	}
}

package members

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
)

// A member says over its link which other members there are. It may lie: names that it
// invents would make a minority of all others. So a name counts if this node has met it on a link, or
// if more than half of the members say so that could know. A node that starts hears of dead members
// only so, and tells them on. Two nodes that restart one after the other must not forget a dead one,
// and what one member invented must not count since others told it on, to each other or back.
// So whoever knows a name by others' word says whose, and of two words that one member had a part in
// one counts.

// maxUnproven bounds the names that this node has heard of from one member and has not met.
const maxUnproven = 256

// teller is a member that says that another is one. path are those on whose word alone it says so, see [peer.Known].
type teller struct {
	name string
	path []string
}

// any reports whether f is true of any member that had a part in it, has whether a member had.
func (t *teller) any(f func(name string) bool) bool {
	return f(t.name) || slices.ContainsFunc(t.path, f)
}

func (t *teller) has(name string) bool { return t.any(func(o string) bool { return o == name }) }

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
		x.told[x.says(by)].path = slices.Clone(k.Path)
	case len(x.told) < maxUnproven:
		x.told = append(x.told, teller{by, slices.Clone(k.Path)})
	}
}

// proven reports whether a name is known to be a member's. r.mu is held.
func (r *Registry) proven(name string) bool {
	a := r.known[name]
	return a != nil && (a.met || a.live || r.outvotes(name, a.told()))
}

// told returns who says of any instance of a name that it is a member.
func (a *record) told() (all words) {
	for i := range a.runs {
		for _, t := range a.runs[i].told {
			if !slices.ContainsFunc(all, func(o teller) bool { return o.name == t.name }) {
				all = append(all, t)
			}
		}
	}
	return all
}

// words are what members say of one name.
type words []teller

// witnesses returns those no two of which a same member had a part in, but not what is said by the member of that name,
// by self or by who is expelled: whatever one member invents is one of them.
func (w words) witnesses(name, self string, expelled expulsions) (all []teller) {
	w = slices.Clone(w)
	slices.SortStableFunc(w, func(a, b teller) int { return len(a.path) - len(b.path) })
	for _, t := range w {
		if t.name == self || t.has(name) || t.any(expelled.has) {
			continue
		}
		shared := func(part string) bool {
			return slices.ContainsFunc(all, func(o teller) bool { return o.has(part) })
		}
		if !t.any(shared) {
			all = append(all, t)
		}
	}
	return all
}

// outvotes reports whether those that tell of a name are more than half of the members that could
// say so: those, and all in the view that this node has met. r.mu is held.
func (r *Registry) outvotes(name string, told []teller) bool {
	votes, others := len(words(told).witnesses(name, r.self, r.expelled)), 0
	if votes == 0 {
		return false
	}
	for _, t := range told {
		o := r.known[t.name]
		if (o == nil || !o.live || !o.met) && t.name != name && t.name != r.self && !r.expelled.has(t.name) {
			others++
		}
	}
	for o, a := range r.known {
		if a.live && a.met && o != name && o != r.self && !r.expelled.has(o) {
			others++
		}
	}
	return 2*votes > others
}

// Told returns how many names do not count though a member in the view says that they are members.
func Told(r *Registry) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, a := range r.known {
		if a.live || a.gone || r.proven(name) || r.expelled.has(name) {
			continue
		}
		if slices.ContainsFunc(a.told(), func(t teller) bool {
			by := r.known[t.name]
			return by != nil && by.live && !t.any(r.expelled.has)
		}) {
			n++
		}
	}
	return n
}

// path returns on whose word alone this node knows a name: nobody's if it has met it, or if several say so that do not
// have it from each other. What is in the view by others' word alone is still that. Of a longer path it returns the
// last members. r.mu is held.
func (r *Registry) path(name string) []string {
	a := r.known[name]
	if a == nil || a.met {
		return nil
	}
	all := a.told().witnesses(name, r.self, r.expelled)
	if len(all) != 1 {
		return nil
	}
	path := []string{all[0].name}
	for _, o := range all[0].path {
		if o != r.self && len(path) < maxPath {
			path = append(path, o)
		}
	}
	return path
}

// unsay forgets what a member that is expelled said of others, also where others told it on. r.mu is held.
func (r *Registry) unsay(by string) {
	for name, a := range r.known {
		told := false
		for i := range a.runs {
			if x := &a.runs[i]; slices.ContainsFunc(x.told, func(t teller) bool { return t.has(by) }) {
				x.told = slices.DeleteFunc(slices.Clone(x.told), func(t teller) bool { return t.has(by) })
				told = true
			}
		}
		if told && !a.met && !a.live && len(a.told()) == 0 {
			delete(r.known, name)
		}
	}
}

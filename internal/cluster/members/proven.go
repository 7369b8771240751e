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

// teller returns whose words those in a frame are: those of the member that sends it, and of the relay, which may write
// whatever it wants, 0: none. The name is empty if this node knows neither's.
func (c *census) teller(from, via peer.Instance, all []peer.Known) (t teller) {
	t.name = c.known.named(from, all)
	switch relay := c.known.named(via, nil); {
	case relay == "":
	case t.name == "":
		t.name = relay
	default:
		t.path = []string{relay}
	}
	return t
}

type names map[string]*record

// named returns the name of an instance that says it in a frame, or that this node has met; "" if neither is so.
func (n names) named(i peer.Instance, all []peer.Known) string {
	for k := range all {
		if all[k].Instance == i {
			return all[k].Name
		}
	}
	for name, a := range n {
		if run := a.run(i); run != nil && run.met || a.seen && a.instance == i {
			return name
		}
	}
	return ""
}

// unproven returns how many names are known by the word of a member and were not met.
func (c *census) unproven(by string) (n int) {
	for _, a := range c.known {
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

// tellLeft records who says that an instance leaves, has left or was forgotten: itself, or another. It returns whether
// it is new.
func (a *record) tellLeft(k peer.Known, itself bool, by teller) (news bool) {
	x, _ := a.reported(k.Instance)
	news = !x.gone()
	by.path = slices.Concat(by.path, k.Path)
	switch i := slices.IndexFunc(x.toldLeft, func(t teller) bool { return t.name == by.name }); {
	case itself:
		x.left = true
	case i >= 0:
		x.toldLeft[i] = by
	case len(x.toldLeft) < maxUnproven:
		x.toldLeft = append(x.toldLeft, by)
	}
	return news
}

// proven reports whether a name is known to be a member's.
func (c *census) proven(name string) bool {
	a := c.known[name]
	return a != nil && (a.met || a.live || c.outvotes(name, a.told()))
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
// say so: those, and all in the view that this node has met.
func (c *census) outvotes(name string, told []teller) bool {
	votes, others := len(words(told).witnesses(name, c.self, c.expelled)), 0
	if votes == 0 {
		return false
	}
	for _, t := range told {
		o := c.known[t.name]
		if (o == nil || !o.live || !o.met) && t.name != name && t.name != c.self && !c.expelled.has(t.name) {
			others++
		}
	}
	for o, a := range c.known {
		if a.live && a.met && o != name && o != c.self && !c.expelled.has(o) {
			others++
		}
	}
	return 2*votes > others
}

// Told returns how many names do not count though a member in the view says that they are members.
func (r *Registry) Told() (n int) {
	c := r.lock()
	defer r.mu.Unlock()
	for name, a := range c.known {
		if a.live || a.gone || c.proven(name) || c.expelled.has(name) {
			continue
		}
		if slices.ContainsFunc(a.told(), func(t teller) bool {
			by := c.known[t.name]
			return by != nil && by.live && !t.any(c.expelled.has)
		}) {
			n++
		}
	}
	return n
}

// path returns on whose word alone this node knows a name, or that an instance has left: nobody's if it has met it or
// was told by it, or if several say so that do not have it from each other. What is in the view by others' word alone
// is still that. Of a longer path it returns the last members.
func (c *census) path(k peer.Known) []string {
	switch a := c.known[k.Name]; {
	case a == nil:
		return nil
	case k.Gone:
		return a.leftBy(k.Instance).path("", c.self, c.expelled)
	case a.met:
		return nil
	default:
		return a.told().path(k.Name, c.self, c.expelled)
	}
}

// leftBy returns who says that an instance has left; nobody if it said so itself, or an operator did.
func (a *record) leftBy(i peer.Instance) words {
	if x := a.run(i); x != nil && !x.left {
		return x.toldLeft
	}
	return nil
}

// path returns the path of the only witness; none if there are several. See [words.witnesses].
func (w words) path(name, self string, expelled expulsions) []string {
	all := w.witnesses(name, self, expelled)
	if len(all) != 1 {
		return nil
	}
	path := []string{all[0].name}
	for _, o := range all[0].path {
		if o != self && len(path) < maxPath {
			path = append(path, o)
		}
	}
	return path
}

// unsay forgets what a member that is expelled said of others, also where others told it on: who is gone by its word
// alone counts again.
func (c *census) unsay(by string) {
	for name, a := range c.known {
		void, told := func(t teller) bool { return t.has(by) }, false
		for i := range a.runs {
			x := &a.runs[i]
			if slices.ContainsFunc(x.told, void) {
				x.told, told = slices.DeleteFunc(slices.Clone(x.told), void), true
			}
			if slices.ContainsFunc(x.toldLeft, void) {
				x.toldLeft, told = slices.DeleteFunc(slices.Clone(x.toldLeft), void), true
				a.gone = a.gone && (a.instance != x.instance || x.gone() || c.expelled.has(name))
			}
		}
		if told && !a.met && !a.live && !a.gone && len(a.told()) == 0 {
			delete(c.known, name)
		}
	}
}

package members

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// staleAfter is how long a dead member counts for available partitions. keepGone is how
// long this node remembers that a member left or was forgotten, because others may not
// have heard of it.
const (
	staleAfter = 10 * limiter.Minute
	keepGone   = 24 * 60 * limiter.Minute
)

// arrivesWithin is how long a member that starts has to enter the view before it counts for
// available partitions: from when it was heard of, or answered on its link last. Gossip needs
// a second at most to find one that is in reach. One that said that it leaves has as long to be
// known as gone, or as another instance, from when it left the view.
const arrivesWithin = 2 * limiter.Second

// maxNames bounds the names that a registry remembers. maxNameLen is the longest name,
// in bytes.
const (
	maxNames   = 1024
	maxNameLen = 128
)

// Registry remembers the members by name, dead ones included: a dead member counts until
// it leaves or is forgotten. A live name is always accepted. Other names are accepted
// while there are fewer than maxNames names, live ones included; at that bound a name
// that does not count makes room. It is safe for concurrent use.
type Registry struct {
	mu     sync.Mutex
	census census
	banned atomic.Pointer[map[peer.Instance]bool] // the instances of those expelled; nil: none
}

// census is a registry without its lock.
type census struct {
	self     string // the name of this node
	known    names
	expelled expulsions
	// said are the members that this node's own operator threw out, also where a word of another member has let them in
	// again.
	said expulsions
}

// NewRegistry returns a registry without names, of the node of that name.
func NewRegistry(self string) *Registry {
	return &Registry{census: census{self: self, known: make(names)}}
}

// lock locks the registry, and returns what it knows.
func (r *Registry) lock() *census {
	r.mu.Lock()
	return &r.census
}

type record struct {
	instance peer.Instance
	gone     bool         // it left or was forgotten
	live     bool         // it is in the view
	since    limiter.Tick // when it stopped being live, or was heard of
	arrives  bool         // this instance starts: it has not been in the view yet
	seen     bool         // this instance was in the view
	met      bool         // an instance of it was in the view, or introduced itself on its link
	joining  bool         // this instance was not active yet when it was last heard of
	recalled bool         // it was read from the disk, and nothing was heard of it since
	wire     uint16       // version of the frames of the instance that was last in the view

	// next is an instance that starts under this name while it is not known yet that the one
	// before has left. nextJoins says that it is joining.
	next      peer.Instance
	nextJoins bool

	// runs are the last instances that links reported under this name, newest first.
	runs [maxRuns]run
	// leaving is the instance that said over its own link that it leaves, at leavingAt.
	leaving   peer.Instance
	leavingAt limiter.Tick
}

// run is an instance of a name. Each has its own marks: if a name had one, reports of two instances that have
// left would take it from each other, each would be news again, and would be passed on without end.
type run struct {
	instance peer.Instance
	met      bool     // it introduced itself on its link
	told     []teller // who says that it is a member
	left     bool     // it said on its link that it leaves, or this node's operator had it forgotten
	ended    bool     // it said on its link that it has left: it does not count once it is out of the view
	toldLeft []teller // who says that it leaves, is gone or was forgotten
}

// gone reports whether a link reported the instance as leaving, gone or forgotten, and that is not void.
func (x *run) gone() bool { return x.left || len(x.toldLeft) > 0 }

// believedLeaving is how long it is believed of a member that it leaves because it said so:
// longer than leaving takes.
const believedLeaving = leaveWithin + 5*limiter.Second

// maxRuns is how many instances of a name are remembered as reported by links. Two may
// exist at a time: one that ends and one that starts. Reports of earlier ones may be on their way.
const maxRuns = 8

// run returns what links reported of an instance of this name, nil if nothing.
func (a *record) run(i peer.Instance) *run {
	k := slices.IndexFunc(a.runs[:], func(r run) bool { return r.instance == i })
	if i == 0 || k < 0 {
		return nil
	}
	return &a.runs[k]
}

// reported records that a link reports an instance of this name, and returns whether it is new.
func (a *record) reported(i peer.Instance) (x *run, news bool) {
	if x = a.run(i); x != nil {
		return x, false
	}
	copy(a.runs[1:], a.runs[:])
	a.runs[0] = run{instance: i}
	return &a.runs[0], true
}

// Set records the members that are joining, active or leaving, this node included, and
// those that left gracefully. It returns the number of members by name that count: known
// for closed partitions, recent for the others.
func (r *Registry) Set(members []peer.Member, left []peer.Known, now limiter.Tick) (known, recent int) {
	c := r.lock()
	defer r.mu.Unlock()
	for name, a := range c.known {
		switch {
		case a.live:
			a.live, a.since = false, now
		case a.gone && now-a.since >= keepGone:
			delete(c.known, name)
		}
	}
	for i := range members {
		m := &members[i]
		c.room(m.Name)
		next := record{instance: m.Instance, live: true, seen: true, met: true, joining: m.State == peer.Joining,
			wire: m.Wire}
		if a := c.known[m.Name]; a != nil {
			next.runs, next.leaving, next.leavingAt = a.runs, a.leaving, a.leavingAt
			next.met = a.met || !a.live && len(a.told()) == 0 // else it is there by others' word alone, and it goes with that
			if a.next != m.Instance {
				next.next, next.nextJoins = a.next, a.nextJoins
			}
		}
		c.known[m.Name] = &next
	}
	for _, k := range left {
		c.hear(k, false, now)
	}
	return c.count(now)
}

// Hear records what a member says about members over its link. It returns what is new
// and must be passed on, and the counts that [Registry.Set] returns. A member that
// reports itself as gone is leaving, but has not left yet, unless it says so. If it then reports that it joins, it
// has not left when it ends: it counts on, as a dead one. via is the member that relayed the report, 0 if it came
// over the member's own link. Callers must leave out what [Valid] refuses.
func (r *Registry) Hear(from peer.Instance, all []peer.Known, via peer.Instance, now limiter.Tick) (spread []peer.Known,
	known, recent int) {
	c := r.lock()
	defer r.mu.Unlock()
	direct, by, room := via == 0, c.teller(from, via, all), 0
	if direct && by.name != "" {
		room = maxUnproven - c.unproven(by.name)
	}
	for _, k := range all {
		itself := direct && k.Instance == from
		if k.Gone && !itself && (by.name == "" || c.expelled.void(k.Path) || by.any(c.expelled.has)) {
			continue // nobody's word, or that of an expelled member
		}
		if !itself && c.known[k.Name] == nil {
			if room--; room < 0 {
				continue
			}
		}
		left := itself && k.Gone && k.Left
		leaves, counted := k.Instance == from && k.Gone && !left, c.counts(k.Name)
		k.Left = false // it passes that on as its own word
		if !leaves {
			c.hear(k, itself, now)
		}
		a := c.known[k.Name]
		news := false
		switch {
		case a == nil:
		case k.Gone:
			news = a.tellLeft(k, itself, by)
			if left {
				a.run(k.Instance).ended = true
			}
		default:
			if _, news = a.reported(k.Instance); direct {
				a.tell(k, itself, by.name)
			}
		}
		k.Path = c.path(k)
		switch {
		case a == nil:
		case c.expelled.has(k.Name):
			if news {
				r.banned.Store(c.banned())
			}
		case (news || !counted && !k.Gone) && !leaves && (k.Gone || c.counts(k.Name)):
			spread = append(spread, k)
		case direct && k.Instance == from && k.Joining && a.leaving == from:
			x := a.run(from)
			x.left, x.toldLeft = false, nil
		case leaves && direct && a.leaving != k.Instance:
			a.leaving, a.leavingAt = k.Instance, now
		}
	}
	known, recent = c.count(now)
	return spread, known, recent
}

// Valid reports whether a member's name and instance are valid: operators read names, so
// they must be printable. Those that told it on are kept, so they have the bounds of names.
func Valid(k *peer.Known) bool {
	return k.Instance != 0 && k.Name != "" && len(k.Name) <= maxNameLen && len(k.Path) <= maxPath &&
		!slices.ContainsFunc(k.Path, func(name string) bool { return len(name) > maxNameLen }) &&
		utf8.ValidString(k.Name) &&
		!strings.ContainsFunc(k.Name, func(r rune) bool { return !unicode.IsPrint(r) })
}

// hear records what this node's membership, or a link, says about a member. itself means
// that the member says so. A member that another one reports starts only if it is joining:
// otherwise it may be dead, or decide on another side of a split.
func (c *census) hear(k peer.Known, itself bool, now limiter.Tick) {
	have := c.known[k.Name]
	starts := itself || k.Joining
	switch {
	case c.expelled.has(k.Name):
	case have == nil && c.room(k.Name):
		c.known[k.Name] = &record{instance: k.Instance, gone: k.Gone, since: now, arrives: starts, joining: k.Joining}
	case have == nil:
	case have.instance != k.Instance && (have.live || !have.gone):
		switch {
		case !k.Gone && (itself || k.Joining && have.run(k.Instance) == nil):
			have.next, have.nextJoins = k.Instance, k.Joining
		case have.next == k.Instance && k.Gone:
			have.next = 0
		}
	case have.live:
	case have.instance == k.Instance:
		have.gone, have.recalled = have.gone || k.Gone, have.recalled && !k.Gone
		if have.gone && have.next != 0 {
			have.starting(peer.Known{Instance: have.next, Joining: have.nextJoins}, now)
			return
		}
		if starts && !have.seen && !have.arrives {
			have.arrives, have.since, have.joining = true, now, k.Joining
		}
	case !k.Gone:
		have.starting(k, now) // a later instance, which is not known to have left
	}
}

// starting records that a later instance of the name takes the place of one that has left. The name
// counts without a gap: if it counted less for a moment, half of the members that held to an
// owner before could be passed over as no majority.
func (a *record) starting(k peer.Known, now limiter.Tick) {
	a.recalled = false
	a.instance, a.gone, a.since, a.arrives, a.seen, a.joining = k.Instance, false, now, true, false, k.Joining
	a.next, a.nextJoins = 0, false
}

// room makes room for a name and reports whether there is any. At the bound, the name
// that has been gone longest is removed, or else one that does not count.
func (c *census) room(name string) bool {
	if _, ok := c.known[name]; ok || len(c.known) < maxNames {
		return true
	}
	oldest, at := "", limiter.Tick(0)
	for name, a := range c.known {
		if a.gone && !a.live && (oldest == "" || a.since < at || a.since == at && name < oldest) {
			oldest, at = name, a.since
		}
	}
	for name, a := range c.known {
		if oldest == "" && !a.live && !c.proven(name) {
			oldest = name // the map has none in particular first
		}
	}
	delete(c.known, oldest)
	return oldest != ""
}

// count returns how many members count. known are all names that have not left. recent
// leaves out members that start, those that have just departed, and those that have been dead for staleAfter. Only a
// majority may leave a member out: of the members counted at that step, more than half must have been alive
// when the dead member's time was over, or be alive now.
func (c *census) count(now limiter.Tick) (known, recent int) {
	live, starting, kept := 0, 0, 0
	var dead []limiter.Tick // when each died
	for name, a := range c.known {
		switch {
		case !a.live && !c.proven(name), c.expelled.has(name):
		case a.live:
			live++
		case a.starts(now), a.departs(now):
			starting++ // hardly on another side of a split
		case a.recalled:
			kept++ // it may have ended with all others: it counts for closed partitions alone
		case !a.gone:
			dead = append(dead, a.since)
		}
	}
	slices.Sort(dead)
	known = live + len(dead) + starting + kept
	recent = live + len(dead)
	for _, since := range dead {
		over := since + staleAfter
		later, _ := slices.BinarySearch(dead, over+1)
		alive := live + len(dead) - later // alive when that time was over, or now
		if now < over || 2*alive <= recent {
			break
		}
		recent--
	}
	return known, recent
}

// starts reports whether a member that is not in the view may still enter it in time.
func (a *record) starts(now limiter.Tick) bool {
	return a.awaited() && now-a.since < arrivesWithin
}

// departs reports whether a member has just left the view and said before, over its own link, that it
// leaves. It hands over first, and gossip takes a moment to tell that it has left or starts anew. One
// that counts on may start anew, too.
func (a *record) departs(now limiter.Tick) bool {
	return !a.live && !a.gone && a.leaving == a.instance &&
		now-a.leavingAt < believedLeaving && now-a.since < arrivesWithin
}

// awaited reports whether a member has started and has not been in the view yet.
func (a *record) awaited() bool { return a.arrives && !a.live && !a.gone }

// Awaited returns the members that start and that have not entered the view for half of
// arrivesWithin, by name: gossip should have found them by now.
func (r *Registry) Awaited(now limiter.Tick) []peer.Known {
	return r.list(func(a *record) (peer.Known, bool) {
		return peer.Known{Instance: a.instance}, a.awaited() && now-a.since >= arrivesWithin/2
	})
}

// Wire returns the version of the frames of the member of that name that was last in the view; if
// none was, own, that of this node.
func (r *Registry) Wire(name string, own uint16) uint16 {
	c := r.lock()
	defer r.mu.Unlock()
	if a := c.known[name]; a != nil && a.wire != 0 {
		return a.wire
	}
	return own
}

// Arrives records that a member that starts answers this node now, although it is not in
// the view yet: it is on no other side of a split.
func (r *Registry) Arrives(name string, i peer.Instance, now limiter.Tick) {
	c := r.lock()
	defer r.mu.Unlock()
	if a := c.known[name]; a != nil && a.instance == i && a.awaited() {
		a.since = now
	}
}

// Dead returns the members that count although they are not in the view, by name.
func (r *Registry) Dead() []peer.Known {
	return r.list(func(a *record) (peer.Known, bool) {
		return peer.Known{Instance: a.instance}, !a.live && !a.gone
	})
}

// All returns what to tell another member: all names known, sorted, and which of them are
// joining, in the view or on their way to it.
func (r *Registry) All(now limiter.Tick) []peer.Known {
	return r.list(func(a *record) (peer.Known, bool) {
		x := a.run(a.instance)
		left := x != nil && x.ended
		return peer.Known{Instance: a.instance, Gone: a.gone || left, Left: left,
			Joining: !left && a.joining && (a.live || a.starts(now))}, true
	})
}

// list returns what of makes of the records that it wants, by name.
func (r *Registry) list(of func(*record) (k peer.Known, wanted bool)) []peer.Known {
	c := r.lock()
	defer r.mu.Unlock()
	var out []peer.Known
	for name, a := range c.known {
		if k, wanted := of(a); wanted && (k.Gone || c.proven(name) && !c.expelled.has(name)) {
			k.Name = name
			k.Path = c.path(k)
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b peer.Known) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Count returns the present values of the counts that [Registry.Set] returns.
func (r *Registry) Count(now limiter.Tick) (known, recent int) {
	c := r.lock()
	defer r.mu.Unlock()
	return c.count(now)
}

// Met reports whether a link has reported that instance of a member's name.
func (r *Registry) Met(name string, i peer.Instance) bool {
	c := r.lock()
	defer r.mu.Unlock()
	a := c.known[name]
	if a == nil || c.expelled.has(name) {
		return false
	}
	said := a.run(i)
	return said != nil && (said.met || c.outvotes(name, said.told))
}

// Counts reports whether a member of that name counts, live or dead.
func (r *Registry) Counts(name string) bool {
	c := r.lock()
	defer r.mu.Unlock()
	return c.counts(name)
}

// counts is [Registry.Counts].
func (c *census) counts(name string) bool {
	a := c.known[name]
	return a != nil && (a.live || !a.gone && c.proven(name)) && !c.expelled.has(name)
}

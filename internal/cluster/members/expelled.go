package members

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// An operator throws a member out by its name: it is no member any more, has no link, counts
// for nothing, and what it says is ignored. Members tell each other, so that one operator
// suffices, and a member that starts anew hears of it. A member that turned hostile can say the same of others.
// So each word carries the names of all members that told it on, and is void while one of them
// is expelled: what it said ends with it, and what it replaced of this node's own operator's words is in force again.

const (
	// maxExpelled bounds the names that are remembered as expelled or readmitted, and
	// maxExpelledBy those by one member's word.
	maxExpelled, maxExpelledBy = 256, 64
	// maxPath is the longest way of a word from member to member.
	maxPath = 8
	// aheadMost is how far ahead of this node's clock another's may be.
	aheadMost = 24 * 60 * limiter.Minute
)

// ErrExpelledFull is returned by [Registry.Expel] at the bound of names.
var ErrExpelledFull = errors.New("too many members are expelled")

// Expel records that this node's operator throws a member out or, if back, lets it in again. It
// returns what to tell the other members.
func (r *Registry) Expel(name string, back bool, now limiter.Tick) ([]peer.Expulsion, error) {
	if !Valid(&peer.Known{Name: name, Instance: 1}) {
		return nil, fmt.Errorf("%w: %q is not a member's name", limiter.ErrInvalid, name)
	}
	c := r.lock()
	defer r.mu.Unlock()
	e := peer.Expulsion{Name: name, Back: back, Number: uint64(max(now, 1))}
	if have, ok := c.expelled[name]; ok {
		e.Number = max(e.Number, have.Number+1)
	} else if len(c.said) == maxExpelled || !c.expelled.room("") {
		return nil, fmt.Errorf("%w: %w: let one of %d in again first", limiter.ErrInvalid, ErrExpelledFull, maxExpelled)
	}
	if delete(c.said, name); !back {
		if c.said == nil {
			c.said = make(expulsions)
		}
		c.said[name] = e
	}
	again := c.putExpelled(e, now)
	r.banned.Store(c.banned())
	return append([]peer.Expulsion{e}, again...), nil
}

// HearExpelled records what a member says over its own link about members that were thrown
// out. It returns what is new and must be told on. self is this node's name, from the
// member's, "" if it has not said it.
func (r *Registry) HearExpelled(self, from string, all []peer.Expulsion, now limiter.Tick) (news []peer.Expulsion) {
	c := r.lock()
	defer r.mu.Unlock()
	for _, e := range all {
		e.Path = append(slices.Clone(e.Path), from)
		have, known := c.expelled[e.Name]
		switch {
		case e.Name == self, !credibleWord(&e, now), slices.Contains(e.Path, e.Name), c.expelled.void(e.Path):
			// nobody says of itself that it is let in again, and no member that it is out
			// decides about others
		case known && (e.Number < have.Number || e.Number == have.Number && len(e.Path) >= len(have.Path)):
		case !known && !c.expelled.room(from):
		default:
			if !known || e.Number > have.Number {
				news = append(news, e)
			}
			news = append(news, c.putExpelled(e, now)...)
			r.banned.Store(c.banned())
		}
	}
	return news
}

// credibleWord reports whether a word is valid: it may come from any member.
func credibleWord(e *peer.Expulsion, now limiter.Tick) bool {
	if len(e.Path) > maxPath || e.Number == 0 || e.Number > uint64(max(0, now)+aheadMost) ||
		!Valid(&peer.Known{Name: e.Name, Instance: 1}) {
		return false
	}
	return !slices.ContainsFunc(e.Path, func(name string) bool { return !Valid(&peer.Known{Name: name, Instance: 1}) })
}

// expulsions are those in force, by name.
type expulsions map[string]peer.Expulsion

// void reports whether a member that is expelled is on the path of a word.
func (x expulsions) void(path []string) bool {
	return slices.ContainsFunc(path, x.has)
}

func (x expulsions) has(name string) bool {
	e, ok := x[name]
	return ok && !e.Back
}

// putExpelled puts a word in force, and ends what a member that is expelled by it told of
// others. It returns words of this node's own operator that such a member had replaced, and that
// are in force again: others must be told.
func (c *census) putExpelled(e peer.Expulsion, now limiter.Tick) (again []peer.Expulsion) {
	if c.expelled == nil {
		c.expelled = make(expulsions)
	}
	c.expelled[e.Name] = e
	for more := !e.Back; more; {
		more = false
		for name, o := range c.expelled {
			if !c.expelled.void(o.Path) {
				continue
			}
			delete(c.expelled, name)
			more = !o.Back || more
			if own, ok := c.said[name]; ok {
				c.expelled[name] = own
				again, more = append(again, own), true
			}
		}
	}
	slices.SortFunc(again, wordsByName)
	for _, w := range append([]peer.Expulsion{e}, again...) {
		if w.Back {
			continue
		}
		c.unsay(w.Name)
		if a := c.known[w.Name]; a != nil {
			a.live, a.gone, a.since, a.next = false, true, now, 0
		}
	}
	return again
}

func wordsByName(a, b peer.Expulsion) int { return strings.Compare(a.Name, b.Name) }

// room makes room for a name by the word of a member, or of this node's own operator if
// from is "". A name that was let in again makes room and, for the operator, one by another's
// word.
func (x expulsions) room(from string) bool {
	by := 0
	for _, e := range x {
		if from != "" && len(e.Path) > 0 && e.Path[len(e.Path)-1] == from {
			by++
		}
	}
	if by >= maxExpelledBy {
		return false
	}
	if len(x) < maxExpelled {
		return true
	}
	for _, name := range slices.Sorted(maps.Keys(x)) {
		if e := x[name]; e.Back || from == "" && len(e.Path) > 0 {
			delete(x, name)
			return true
		}
	}
	return false
}

// banned returns the instances of expelled names, nil if there are none.
func (c *census) banned() *map[peer.Instance]bool {
	all := make(map[peer.Instance]bool)
	for name := range c.expelled {
		if a := c.known[name]; a != nil && c.expelled.has(name) {
			all[a.instance] = true
			for _, run := range a.runs {
				all[run.instance] = true
			}
		}
	}
	delete(all, 0)
	if len(all) == 0 {
		return nil
	}
	return &all
}

// Banned reports whether an instance is of a member that is expelled. It takes no lock.
func (r *Registry) Banned(i peer.Instance) bool {
	b := r.banned.Load()
	return b != nil && (*b)[i]
}

// Expelled reports whether a member is expelled.
func (r *Registry) Expelled(name string) bool {
	c := r.lock()
	defer r.mu.Unlock()
	return c.expelled.has(name)
}

// Expulsions returns all that other members are to be told, sorted by name.
func (r *Registry) Expulsions() []peer.Expulsion {
	c := r.lock()
	defer r.mu.Unlock()
	out := slices.Collect(maps.Values(c.expelled))
	slices.SortFunc(out, wordsByName)
	return out
}

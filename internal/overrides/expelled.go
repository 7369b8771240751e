package overrides

import (
	"slices"
	"strings"
	"time"
)

// void reports whether a member that is expelled set an entry or told it on.
func (b *Book) void(e *Entry) bool {
	if len(b.out) == 0 || e.ToldBy == "" {
		return false
	}
	path := strings.Split(e.Path+"\n"+e.ToldBy, "\n")
	return slices.ContainsFunc(path, func(name string) bool { return b.out[name] })
}

// Expelled says which members are expelled: what they set, or told on, is void, and what it replaced of the decisions
// that were made here is in force again. It returns the overrides that ended, and those to be told to the others.
func (b *Book) Expelled(names map[string]bool, now time.Time) (ended, again []Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	more := false
	for name := range names {
		more = more || !b.out[name]
	}
	if b.out = names; !more {
		return nil, nil
	}
	for k, e := range b.of {
		if b.void(&e) {
			delete(b.of, k)
			if e.inForce(now) {
				ended = append(ended, e)
			}
		}
	}
	for k, e := range b.said {
		if _, known := b.of[k]; !known && e.Until.After(now) {
			b.of[k] = e
			again = append(again, e)
		}
	}
	ended = append(ended, b.trim(now)...)
	slices.SortFunc(ended, byKey)
	slices.SortFunc(again, byKey)
	return ended, again
}

// say puts a decision that is made here.
func (b *Book) say(e Entry) {
	b.put(e)
	if b.said == nil {
		b.said = map[key]Entry{}
	}
	if b.said[e.key()] = e; len(b.said) > 2*MaxActive {
		oldest := e
		for _, o := range b.said {
			if o.Number < oldest.Number {
				oldest = o
			}
		}
		delete(b.said, oldest.key())
	}
}

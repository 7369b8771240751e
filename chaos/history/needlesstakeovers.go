package history

import (
	"fmt"
	"maps"
	"slices"
)

// NeedlessTakeovers returns a key that was taken from its owner in a run in which none was to be: each
// member was heard, by itself or through a third one, so that nobody had a reason to take
// anything over. What happens near something that stood still is excused, and so is that
// the owner is given the key back.
func (c judges) NeedlessTakeovers() []error {
	if !c.Allows.NoTakeover {
		return nil
	}
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.Once {
			continue // such keys are asked about for too short a time to tell who owns them
		}
		keys := c.byKey(r.Name)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			home := home(key, keys[key])
			for _, t := range takeovers(key, keys[key], nil) {
				if t.from == home && !c.stalled(t.after, t.before) {
					return []error{fmt.Errorf("%s, key %s: taken from %s, which decided it until %v, by %s, from %v on, although "+
						"nobody was out of reach of all others, and nothing stood still",
						r.Name, key, t.from, t.after.Duration(), t.to, t.before.Duration())}
				}
			}
		}
	}
	return nil
}

// home is who decided a key in the end, and most of its checks: it owns the key, and not
// for the time being only. It is "" where nobody did both.
func home(key string, ops []Op) string {
	decided, most, last := make(map[string]int), 0, Op{}
	for _, o := range ops {
		if name := owner(&o, key); o.Counted() && name != "" {
			decided[name]++
			most = max(most, decided[name])
			if o.Return >= last.Return {
				last = o
			}
		}
	}
	if name := owner(&last, key); decided[name] == most {
		return name
	}
	return ""
}

package members

import (
	"maps"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// Restore records the members of before this node ended: they count for closed partitions, until they are back, are
// gone or are forgotten. It leaves out what is not valid, and takes the place of an earlier Restore.
func (r *Registry) Restore(all []peer.Known, now limiter.Tick) {
	c := r.lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(c.known, func(_ string, a *record) bool { return a.recalled })
	for i := range all {
		if k := &all[i]; Valid(k) && !k.Gone && k.Name != c.self && c.known[k.Name] == nil && c.room(k.Name) {
			a := &record{instance: k.Instance, since: now, met: len(k.Path) == 0, recalled: true}
			c.known[k.Name] = a
			if !a.met { // it was another's word, and stays that
				a.reported(k.Instance)
				a.tell(peer.Known{Instance: k.Instance, Path: k.Path[1:]}, false, k.Path[0])
			}
		}
	}
}

// Forget stops counting a dead member. It returns what to tell the other members, and
// false if there was no dead member of that name.
func (r *Registry) Forget(name string) (peer.Known, bool) {
	c := r.lock()
	defer r.mu.Unlock()
	a := c.known[name]
	if a == nil || a.live || a.gone {
		return peer.Known{}, false
	}
	a.gone, a.recalled = true, false
	x, _ := a.reported(a.instance)
	x.left = true
	return peer.Known{Name: name, Instance: a.instance, Gone: true}, true
}

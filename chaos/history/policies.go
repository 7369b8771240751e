package history

import (
	"fmt"
	"slices"
)

// place is where a fallback table is: it ends with the run of its node.
type place struct{ node, run int }

// share returns what the policy of one node admits of a rule by itself, as a rule.
func (h *History) share(r *Rule) Rule {
	if r.Policy == "open" {
		return *r
	}
	share := *r
	share.Limit, share.Burst = max(1, r.Limit/(h.Nodes-h.Left)), 0
	if r.Burst > 0 {
		share.Burst = r.Share(h.Nodes - h.Left)
	}
	return share
}

// policies: what a node's policy admits by itself is its share, for each run of
// the node.
func (c *analysis) policies() []error {
	var out []error
	for i := range c.Rules {
		r := &c.Rules[i]
		for key, ops := range c.byKey(r.Name) {
			by := make(map[place][]Op)
			for _, o := range admissions(ops, (*Op).ByPolicy) {
				by[place{o.Node, o.Run}] = append(by[place{o.Node, o.Run}], o)
			}
			if r.Several && r.Policy != "closed" {
				if err := c.together(r, key, ops); err != nil {
					out = append(out, err)
				}
				continue
			}
			share := c.share(r)
			for at, in := range by {
				if err := ownShare(r, &share, key, at, in); err != nil {
					out = append(out, err)
				}
			}
		}
	}
	return out
}

// ownShare returns what one node's policy admitted beyond its share, which is nothing
// where a rule is closed: a check of several keys is denied as soon as nobody can be
// asked for one of them.
func ownShare(r, share *Rule, key string, at place, in []Op) (err error) {
	sweep(share, in, func(admitted, most int, _, _ Micros) {
		if r.Policy == "closed" {
			most = 0
		}
		if err == nil && admitted > most {
			err = fmt.Errorf("%s, key %s: the policy of node %d admitted %d in one window by itself, at most %d", r.Name, key,
				at.node, admitted, most)
		}
	})
	return err
}

// together: a check of several keys that a policy admitted was counted in the node's
// fallback table for those keys whose owners it could not ask, and by the owners for
// the others, and its answer does not say which. So of a key owners and policies
// together may admit what owners may, and a share for each node that answered so.
func (c *analysis) together(r *Rule, key string, ops []Op) (err error) {
	over := c.changes(key, ops)
	share := c.share(r)
	in := admissions(ops, func(*Op) bool { return true })
	sweep(r, in, func(admitted, promised int, from, until Micros) {
		if err != nil || admitted <= promised {
			return
		}
		most := int(c.times(r, from, until)*float64(promised)) + c.cost(r, over, from, until)*c.each(r)
		var asked []place
		for i := range in {
			o := &in[i]
			if at := (place{o.Node, o.Run}); o.ByPolicy() && o.Call >= from && o.Return <= until && !slices.Contains(asked, at) {
				asked = append(asked, at)
				most += share.within(until - from)
			}
		}
		if admitted > most {
			err = fmt.Errorf("%s, key %s: %d admitted by owners, heirs and policies in one window, from %v to %v, at most %d",
				r.Name, key, admitted, from.Duration(), until.Duration(), most)
		}
	})
	return err
}

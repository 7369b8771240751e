package weir

import (
	"context"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/rules"
)

// namer names the keys of one request.
func namer(set *rules.Set, r *Request, c *limiter.Charge) func(dst []byte, i, k int) []byte {
	return func(dst []byte, _, k int) []byte { return set.AppendKeyName(dst, r, c.Key(k), nil) }
}

// namerOf names the i-th key of one request.
func (n *Node) namerOf(r *Request, c *limiter.Charge) func(i int) string {
	set := n.rules.Load()
	return func(i int) string { return string(set.AppendKeyName(nil, r, c.Key(i), nil)) }
}

// decideThere has the backend decide a request.
func (n *Node) decideThere(ctx context.Context, set *rules.Set, now limiter.Tick, r *Request, d *Decision, peek bool) error {
	var c limiter.Charge
	m, err := set.Resolve(r, &c)
	if err != nil {
		return n.refused(err)
	}
	c.Peek = peek
	if err := n.backend.Decide(ctx, now, []*limiter.Charge{&c}, []*Decision{d}, namer(set, r, &c)); err != nil {
		return n.refused(err)
	}
	n.decidedThere(m, d)
	return nil
}

// decidedThere completes a decision of the backend's.
func (n *Node) decidedThere(m rules.Match, d *Decision) {
	if d.Rule == "" {
		d.Rule = m.Rule
	}
	if n.watch != nil {
		n.watch.Checked(1, d.Rule, d.Source, d.Allowed, d.ShadowDenied)
	}
}

// batchThere has the backend decide those requests of a batch that can be decided,
// in their order.
func (n *Node) batchThere(ctx context.Context, set *rules.Set, now limiter.Tick, rs []Request, ds []Decision) error {
	var bad BatchError
	charges, matches := make([]limiter.Charge, len(rs)), make([]rules.Match, len(rs))
	cs, out, index := make([]*limiter.Charge, 0, len(rs)), make([]*Decision, 0, len(rs)), make([]int, 0, len(rs))
	for i := range rs {
		var err error
		if matches[i], err = set.Resolve(&rs[i], &charges[i]); err != nil {
			bad.add(i, &ds[i], n.refused(err))
			continue
		}
		cs, out, index = append(cs, &charges[i]), append(out, &ds[i]), append(index, i)
	}
	name := func(dst []byte, i, k int) []byte {
		return set.AppendKeyName(dst, &rs[index[i]], cs[i].Key(k), nil)
	}
	if err := n.backend.Decide(ctx, now, cs, out, name); err != nil {
		return n.refused(err)
	}
	for at, d := range out {
		n.decidedThere(matches[index[at]], d)
	}
	return bad.orNil()
}

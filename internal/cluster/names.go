package cluster

import (
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// A node that keeps a key in its lists of top keys does not know what people call
// it, unless it was asked itself: hashes travel, and no strings. It says so in its
// reply, and who asked sends the name once. Nothing waits for it, and a name that is
// lost is asked for again.

// maxNameBytes bounds a name: each byte of a key's values may be escaped as three.
const maxNameBytes = 4 * limiter.MaxKeyBytes

// SetName tells whoever decided a check the name of one of its keys, without that
// of a limit, after a check that asked for it by [limiter.Charge.Unnamed].
func (c *Core) SetName(k *limiter.Key, name []byte) {
	p := c.part(k)
	if p == nil || len(name) > maxNameBytes {
		return
	}
	to := peer.Instance(p.to.Load())
	if to == c.self {
		c.table.SetName(k, name)
		return
	}
	n := peer.Name{Hi: k.Hash.Hi, Lo: k.Hash.Lo, Closed: k.Rule.Class() == limiter.Closed, Text: string(name)}
	t := c.begin()
	defer t.end()
	c.send(t, to, 32+len(name), false, func(_ *link, f *peer.Frame) {
		if len(f.Names) < maxChecks {
			f.Names = append(f.Names, n)
		}
	})
}

// deliverNames takes in the names of keys. Those that are in no list change nothing.
func (c *Core) deliverNames(f *peer.Frame) {
	for i := range f.Names {
		n := &f.Names[i]
		if len(n.Text) > maxNameBytes {
			continue
		}
		k := limiter.Key{Hash: limiter.Hash{Hi: n.Hi, Lo: n.Lo}, Rule: new(limiter.Rule)}
		if n.Closed {
			k.Rule.OnUnreachable = limiter.UnreachableClosed
		}
		c.table.SetName(&k, []byte(n.Text))
	}
}

// gatherUnnamed notes the keys whose names the parts' owners lack.
func (s *several) gatherUnnamed() {
	s.charge.Unnamed = 0
	for _, r := range s.parts {
		for j, i := range r.keys {
			s.charge.Unnamed |= r.charge.Unnamed >> j & 1 << i
		}
	}
}

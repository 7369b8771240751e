package cluster

import (
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// A node that keeps a key in its lists of top keys does not know the key's name unless
// the request came to it directly, because members exchange hashes and no strings. Its
// reply says that the name is missing, and the asker then sends the name once. Nothing
// waits for the name, and a name that is lost is asked for again.

// maxNameBytes bounds a name in bytes: each byte of a key's values may be escaped as
// three.
const maxNameBytes = 4 * limiter.MaxKeyBytes

// SetName tells the owner of a key the key's name, without that of a limit, and this node's
// own lists, which have the key if leases decide checks of it here. It is called
// after a check that asked for the name by [arith.Charge.Unnamed]. Longer names than
// maxNameBytes are ignored.
func (c *Core) SetName(k *arith.Key, name []byte) {
	p := c.partitions.of(k)
	if p == nil || len(name) > maxNameBytes {
		return
	}
	c.table.SetName(k, name)
	to := peer.Instance(p.to.Load())
	if to == c.self {
		return
	}
	n := peer.Name{Hi: k.Hash.Hi, Lo: k.Hash.Lo, Closed: k.Rule.Class() == limiter.Closed, Text: string(name)}
	t := c.begin()
	defer t.end()
	t.Out.Name(to, n)
}

// names stores the names of keys. Names of keys that are in no list have no
// effect.
func (in *intake) names(f *peer.Frame) {
	for i := range f.Names {
		n := &f.Names[i]
		if len(n.Text) > maxNameBytes {
			continue
		}
		k := arith.Key{Hash: arith.Hash{Hi: n.Hi, Lo: n.Lo}, Rule: new(limiter.Rule)}
		if n.Closed {
			k.Rule.OnUnreachable = limiter.UnreachableClosed
		}
		in.table.SetName(&k, []byte(n.Text))
	}
}

package gossip

import "errors"

// What memberlist calls may panic: an answer of another node may be what made it. It is
// dropped then, and gossip goes on. Locks are released by those who took them.

// errDefect is why a node is kept out whose account made this node panic.
var errDefect = errors.New("gossip: an internal error, of which the node's log has the details")

// catch ends a panic. It is deferred, directly.
func (g *Gossip) catch() {
	if g.cfg.Panicked == nil {
		return
	}
	if v := recover(); v != nil {
		g.cfg.Panicked(v)
	}
}

// catchErr is catch for what returns an error, which becomes one.
func (g *Gossip) catchErr(err *error) {
	if g.cfg.Panicked == nil {
		return
	}
	if v := recover(); v != nil {
		g.cfg.Panicked(v)
		*err = errDefect
	}
}

// catch ends a panic that a packet or a stream caused. It is deferred, directly.
func (g *guard) catch() {
	if g.panicked == nil {
		return
	}
	if v := recover(); v != nil {
		g.panicked(v)
	}
}

// catchErr is the same for a stream, of which nothing more is read then. It is deferred,
// directly.
func (s *stream) catchErr(err *error) {
	if s.panicked == nil {
		return
	}
	if v := recover(); v != nil {
		s.panicked(v)
		*err = errDefect
	}
}

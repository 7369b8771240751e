package gossip

import "errors"

// Callbacks of memberlist may panic because of another node's input. The input is then
// dropped, and gossip continues. Locks are released by the functions that took them.

// errDefect is the reason for refusing a node whose data made this node panic.
var errDefect = errors.New("gossip: an internal error, of which the node's log has the details")

// catch recovers from a panic. It must be deferred directly.
func (c *Config) catch() {
	if c.Panicked == nil {
		return
	}
	if v := recover(); v != nil {
		c.Panicked(v)
	}
}

// catchErr is catch for functions that return an error, which it sets.
func (c *Config) catchErr(err *error) {
	if c.Panicked == nil {
		return
	}
	if v := recover(); v != nil {
		c.Panicked(v)
		*err = errDefect
	}
}

// catch recovers from a panic that a packet or a stream caused. It must be deferred
// directly.
func (g *guard) catch() {
	if g.panicked == nil {
		return
	}
	if v := recover(); v != nil {
		g.panicked(v)
	}
}

// catchErr is catch for a stream; nothing more is read from it then. It must be deferred
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

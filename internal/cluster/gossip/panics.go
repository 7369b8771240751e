package gossip

import "errors"

// Callbacks of memberlist may panic because of another node's input. The input is then
// dropped, and gossip continues. Locks are released by the functions that took them.

// errDefect is the reason for refusing a node whose data made this node panic. Nothing more is read from a
// stream that caused a panic.
var errDefect = errors.New("gossip: an internal error, of which the node's log has the details")

// catcher is told of panics; nil recovers from none. Its methods must be deferred directly.
type catcher func(v any)

func (c catcher) catch() {
	if c == nil {
		return
	}
	if v := recover(); v != nil {
		c(v)
	}
}

// catchErr is catch for functions that return an error, which it sets.
func (c catcher) catchErr(err *error) {
	if c == nil {
		return
	}
	if v := recover(); v != nil {
		c(v)
		*err = errDefect
	}
}

package peerlink

import (
	"errors"

	"github.com/weirlimit/weir/internal/peer"
)

// errDefect is why a connection ended that panicked at this side. It says nothing of the
// cause, as the other side may be told.
var errDefect = errors.New("an internal error, of which the node's log has the details")

// catch ends a panic, and then calls then with an error. It is deferred, directly.
func (l *Links) catch(then func(error)) {
	if l.config.Panicked == nil {
		return
	}
	if v := recover(); v != nil {
		l.config.Panicked(v)
		then(errDefect)
	}
}

// up tells [Frames] that a member can be reached. The error is that it panicked.
func (l *Links) up(i peer.Instance) (err error) {
	defer l.catch(func(defect error) { err = defect })
	l.config.Frames.Up(i)
	return nil
}

// down tells [Frames] that a member cannot be reached. Of a panic there is nothing more to
// say: the connection is over.
func (l *Links) down(i peer.Instance) {
	defer l.catch(func(error) {})
	l.config.Frames.Down(i)
}

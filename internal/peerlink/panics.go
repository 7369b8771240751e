package peerlink

import (
	"errors"

	"github.com/weirlimit/weir/internal/peer"
)

// errDefect is the reason of a connection that ended by a panic at this side. The other
// side may see it, so it does not tell the cause.
var errDefect = errors.New("an internal error: the node's log has the details")

// catch recovers from a panic and then calls then with an error. It must be deferred
// directly.
func (l *Links) catch(then func(error)) {
	if l.config.Panicked == nil {
		return
	}
	if v := recover(); v != nil {
		l.config.Panicked(v)
		then(errDefect)
	}
}

// up reports to [Frames] that a member can be reached. It returns an error after a
// panic.
func (l *Links) up(i peer.Instance) (err error) {
	defer l.catch(func(defect error) { err = defect })
	l.config.Frames.Up(i)
	return nil
}

// down reports to [Frames] that a member cannot be reached. A panic is only reported:
// the connection is over anyway.
func (l *Links) down(i peer.Instance) {
	defer l.catch(func(error) {})
	l.config.Frames.Down(i)
}

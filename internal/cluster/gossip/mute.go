package gossip

import (
	"errors"
	"strings"
)

// Mute returns an error, with the address, if in the latest round something at an address
// to join by took the connection and ended it, or let it be, without an answer: then a
// node may be there that is overloaded or attacked. Otherwise it returns nil. It takes no
// lock.
func (g *Gossip) Mute() error {
	if err := g.join.mute.Load(); err != nil {
		return *err
	}
	return nil
}

// keepMute records that someone took a connection and said nothing.
func (j *joiner) keepMute(text string) {
	err := errors.New(plain(text))
	j.mute.Store(&err)
	j.keepSilence(err)
}

// isReset reports whether an exchange failed because the other side broke it off.
func isReset(text string) bool {
	return strings.Contains(text, "connection reset") || strings.Contains(text, "broken pipe")
}

// isMute reports whether an exchange failed because the other side ended the connection,
// or let it be, without an answer.
func isMute(text string) bool {
	return strings.Contains(text, "EOF") || strings.Contains(text, "i/o timeout")
}

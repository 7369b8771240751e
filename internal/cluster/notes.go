package cluster

import (
	"github.com/weirlimit/weir/internal/peer"
)

// SendNote sends a note to a member. It reports false if the member is not in direct reach.
func (c *Core) SendNote(to peer.Instance, n peer.Note) bool {
	if len(n.Text) > peer.MaxNoteBytes {
		return false
	}
	t := c.begin()
	defer t.end()
	return t.Out.SendNote(to, n)
}

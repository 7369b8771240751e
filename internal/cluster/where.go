package cluster

import (
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// Owner returns the member that a check of these keys would be sent to now, this
// node itself included, 0 if none is known. It reports false where the keys have
// several owners; the first one's is returned.
func (c *Core) Owner(k *limiter.Charge) (to peer.Instance, one bool) { return c.destination(k) }

// Summary is what a node holds, in all.
type Summary struct {
	// Owned, Heirs, Copies and Sealed count partitions by what the node is to
	// them; it is nothing to the others.
	Owned, Heirs, Copies, Sealed int
	// Unsettled are those that are not as the view calls for.
	Unsettled int
	// Withheld are replies that wait for an heir, Parked checks that wait for a
	// partition to be settled.
	Withheld, Parked int
	// Waiting are checks and other operations that wait for other members, Queued
	// frames that wait until one takes them, and Fallback the counters of policies.
	Waiting, Queued, Fallback int
	// Pending are requests of other members that wait here, Staged is how many bytes of
	// snapshots are here that are not complete.
	Pending int
	Staged  int64
	// Links counts the instances for which something is kept that is to be said to them.
	Links int
	// Lag is how long the oldest withheld reply has waited. Unacknowledged is the
	// largest cost that a key has answered and its heir not acknowledged.
	Lag            limiter.Tick
	Unacknowledged uint64
}

// Summary returns what the node holds. It looks at every partition, and takes
// some 0.2 ms.
func (c *Core) Summary() (s Summary) {
	v := c.view.Load()
	for _, p := range c.parts {
		info, _ := c.Partition(int(p.id))
		switch info.Role {
		case peer.Owned:
			s.Owned++
		case peer.Sealed:
			s.Sealed++
		case peer.Heir:
			s.Heirs++
		case peer.Copy:
			s.Copies++
		}
		if !p.settled(v) {
			s.Unsettled++
		}
		s.Withheld += info.Withheld
		s.Parked += info.Parked
		s.Lag = max(s.Lag, info.WaitedFor)
		s.Unacknowledged = max(s.Unacknowledged, info.Unacknowledged)
	}
	s.Waiting = c.ops.waiting()
	s.Pending, s.Staged = int(c.pending.Load()), c.staged.Load()
	links := c.links.Load().list
	s.Links = len(links)
	for _, l := range links {
		s.Queued += l.queued()
	}
	if c.fallback != nil {
		s.Fallback = c.fallback.Stats().Keys
	}
	return s
}

// Shares returns the part of the partitions, 0 to 1, that each member should
// own.
func (v *View) Shares() map[peer.Instance]float64 {
	counts := make(map[peer.Instance]int)
	for p := range uint16(table.Partitions) {
		if i := v.owner(p); i != 0 {
			counts[i]++
		}
	}
	out := make(map[peer.Instance]float64, len(counts))
	for i, n := range counts {
		out[i] = float64(n) / table.Partitions
	}
	return out
}

// RingOwner returns the index in Members of who should own a partition of the ring,
// in either class; -1 for nobody.
func (v *View) RingOwner(p int) int {
	if i := v.owner(uint16(p)); i != 0 {
		for at := range v.Members {
			if v.Members[at].Instance == i {
				return at
			}
		}
	}
	return -1
}

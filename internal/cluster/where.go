package cluster

import (
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/lease"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Owner returns the member that a check of these keys would be sent to now, see
// [route.Router.Owner].
func (c *Core) Owner(k *arith.Charge) (to peer.Instance, one bool) { return c.calls.Owner(k) }

// Summary counts what a node holds.
type Summary struct {
	// Owned, Heirs, Copies and Sealed are the numbers of partitions in which the node
	// has that role. In all others it holds nothing.
	Owned, Heirs, Copies, Sealed int
	// Unsettled is the number of partitions that are not as the view calls for.
	Unsettled int
	// Withheld is the number of replies that wait for an heir; one that waits in several
	// partitions counts in each. Parked is the number of requests that wait until a
	// partition's owner is known.
	Withheld, Parked int
	// Waiting is the number of checks and other operations that wait for other members.
	// Queued is the number of frames that wait for a member to take them. Fallback is
	// the number of counters that policies decide by.
	Waiting, Queued, Fallback int
	// Leases are what owners have lent this node, or may have. LeasesLost is, by rule, how many units were lent to it that
	// it did not use, and that an owner may have charged all the same, since it did not hear of that in time.
	Leases     []lease.Lent
	LeasesLost map[string]uint64
	// Pending is the number of requests of other members that wait here. Staged is the
	// size in bytes of incomplete snapshots.
	Pending int
	Staged  int64
	// Links is the number of instances to which this node keeps a link.
	Links int
	// Lag is how long the oldest withheld reply has waited. Unacknowledged is the
	// largest number of units that one key has answered and its heir has not
	// acknowledged.
	Lag            limiter.Tick
	Unacknowledged uint64
}

// Summary returns what the node holds. It locks every partition in turn, once, and reads
// the clock once for all: it takes about 0.1 ms.
func (c *Core) Summary() (s Summary) {
	c.inspection.summarize(&s)
	s.Waiting, s.Leases, s.LeasesLost = c.calls.Waiting(), c.calls.Leases.List(), c.calls.Leases.Lost()
	s.Pending, s.Staged = int(c.decider.pending.Load()), c.staged.Load()
	s.Links, s.Queued = c.mesh.Size()
	if c.config.Fallback != nil {
		s.Fallback = c.config.Fallback.Stats().Keys
	}
	return s
}

// summarize counts what the partitions hold.
func (x *inspection) summarize(s *Summary) {
	at := replica.Step{Now: x.sched.Now(), View: x.view.Load()}
	for _, p := range x.parts {
		info, settled := p.look(&at)
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
		if !settled {
			s.Unsettled++
		}
		s.Withheld += info.Withheld
		s.Parked += info.Parked
		s.Lag = max(s.Lag, info.WaitedFor)
		s.Unacknowledged = max(s.Unacknowledged, info.Unacknowledged)
	}
}

// look returns what this node holds of a partition at a time, and whether that is as a view calls for.
func (p *partition) look(at *replica.Step) (info PartitionInfo, settled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.r.Info(at.Now), p.r.Settled(at)
}

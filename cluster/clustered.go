package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	core "github.com/weirlimit/weir/internal/cluster"
	"github.com/weirlimit/weir/internal/cluster/gossip"
	"github.com/weirlimit/weir/internal/cluster/members"
	"github.com/weirlimit/weir/internal/peer"
)

// HandOver implements [weir.Cluster].
func (m *member) HandOver(ctx context.Context) error {
	if m.Closed.Load() {
		return weir.ErrClosed
	}
	_, err := m.handover.run(ctx)
	return err
}

// Leave implements [weir.Cluster].
func (m *member) Leave(ctx context.Context) error {
	if m.Closed.Load() {
		return weir.ErrClosed
	}
	mine, err := m.handover.run(ctx)
	switch {
	case errors.Is(err, weir.ErrClosed):
		return err
	case !mine && ctx.Err() == nil:
		err = nil // HandOver has reported it
	}
	countsOn := m.membership.CountsOn()
	if m.core.Goodbye(countsOn); countsOn {
		m.log.Warn("this node left while it saw no more than half of the others: it counts as a dead member until it is "+
			"back, or until an operator forgets it",
			"if it will not be back", "weir members forget "+m.config.Name)
	} else if goodbye := m.gossip.Leave(goodbyeWithin); goodbye != nil && !errors.Is(goodbye, gossip.ErrClosed) {
		// This happens if all members leave at once. Nothing is lost: the others have
		// seen that this node is leaving, and its state is handed over.
		m.log.Info("some members were not told that this node leaves", "reason", goodbye)
	}
	if m.Closed.Swap(true) {
		return weir.ErrClosed
	}
	return errors.Join(err, m.end(true))
}

// Members implements [weir.Cluster].
func (m *member) Members() []weir.Member {
	m.census.mu.Lock()
	members := m.census.members()
	m.census.mu.Unlock()
	self, shutOut := m.membership.Self().Name, m.membership.Expelled() != nil
	shares := m.core.View().Shares()
	out := make([]weir.Member, len(members))
	for i := range members {
		o := &members[i]
		info := weir.Member{
			Name: o.Name, Address: o.GossipAddr, Instance: o.Instance.String(), State: o.State.String(),
			GRPCAddr: o.GRPCAddr, HTTPAddr: o.HTTPAddr, AdminAddr: o.AdminAddr, Version: o.Version, ZoneData: o.ZoneData,
			RulesHash: o.RulesHash,
		}
		if o.State != peer.Dead {
			info.Share = shares[o.Instance]
		}
		info.Unreachable = m.unreachable(o, self)
		info.SentFrames, info.SentBytes = m.links.Sent(o.Instance)
		if o.Name == self {
			s := m.core.Summary()
			if shutOut {
				info.State = stateExpelled
			}
			info.Self, info.Keys = true, m.Table.Stats().Keys
			info.Checks, info.ChecksPerSecond = m.decider.checks.Load(), m.reports.rate.Load()
			info.Lag, info.Unacknowledged = s.Lag.Duration(), s.Unacknowledged
		}
		out[i] = info
	}
	for _, name := range m.expelled() {
		out = append(out, weir.Member{Name: name, State: stateExpelled})
	}
	slices.SortStableFunc(out, func(a, b weir.Member) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// unreachable reports whether a member is known by gossip and has no connection to this
// node.
func (m *member) unreachable(o *peer.Member, self string) bool {
	return o.Name != self && o.State != peer.Dead && !m.core.Reaches(o.Instance)
}

// logProblem logs what keeps this node from holding what it should.
func (m *member) logProblem(p members.Problem) {
	whom := []any{"state", p.State.String(), "unsettled", p.Unsettled, "members", p.Others, "unreached", len(p.Unreached)}
	if len(p.Unreached) > 0 {
		whom = append(whom, "which", members.NameMembers(p.Unreached))
	}
	switch {
	case p.Awaited > 0:
		m.log.Warn("this node waits for other members before it begins a cluster with them (--expect): "+
			"start them, or correct what --join resolves to", "join", m.config.Join, "expect", m.config.Expect, "needed",
			p.Awaited, "met", p.Met, "sees", p.Others)
	case !p.Ready:
		m.log.Warn("this node sees others by gossip and has no connection to any, so it does not become ready: "+
			members.CheckPeerAddr, whom...)
	case p.Minority:
		m.log.Warn("this node is ready although not all partitions are settled, as it sees no more than half of the "+
			"members: "+
			"policies answer until it sees more, or those that do not come back are forgotten (weir members forget)", whom...)
	case len(p.Unreached) > 0:
		m.log.Warn("this node is ready although not all partitions are settled, as it has no connection to some members: "+
			members.CheckPeerAddr, whom...)
	default:
		m.log.Warn("this node is ready although not all partitions are settled: members may have too little CPU, or not "+
			"reach each other", whom...)
	}
}

// Stats implements [weir.Cluster].
func (m *member) Stats() (weir.ClusterStats, bool) {
	h := m.core.Summary()
	s := weir.ClusterStats{
		Members: map[string]int{}, Owned: h.Owned, Heirs: h.Heirs, Copies: h.Copies, Sealed: h.Sealed, Unsettled: h.Unsettled,
		Withheld: h.Withheld, Parked: h.Parked, Waiting: h.Waiting, Queued: h.Queued, Fallback: h.Fallback, Links: h.Links,
		Lag: h.Lag.Duration(), Unacknowledged: h.Unacknowledged, Events: map[string]uint64{},
	}
	m.census.mu.Lock()
	members := m.census.members()
	s.RulesDiffer, s.ZoneDataDiffers = m.census.rules.now != "", m.census.zones.now != ""
	m.census.mu.Unlock()
	_, s.ClockDifference = m.census.clockDifference()
	self := m.membership.Self()
	for i := range members {
		state := members[i].State.String()
		if o := &members[i]; o.Name == self.Name && m.membership.Expelled() != nil {
			state = stateExpelled
		} else if o.Name != self.Name && o.State != peer.Dead && !m.core.Met(o.Name, o.Instance) {
			state = "unmet"
		}
		s.Members[state]++
		if m.unreachable(&members[i], self.Name) {
			s.Unreachable++
		}
	}
	if n := len(m.expelled()); n > 0 {
		s.Members[stateExpelled] += n
	}
	v := m.core.View()
	s.Minority, s.Counted = minority(v), v.Recent
	s.Share = v.Shares()[self.Instance]
	for e := range core.Events {
		s.Events[e.String()] = m.core.Count(e)
	}
	s.Store = m.keeper.stats()
	s.Events["peer_refused"] = m.links.RefusedTLS()
	if c := m.protection.certificates; c != nil {
		s.CertificateBegins, s.CertificateExpires = c.Validity()
		s.AuthorityBegins, s.AuthorityExpires = c.AuthoritiesValidity()
	}
	return s, true
}

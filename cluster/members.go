package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// onMembers processes the members that gossip reports now, which may be newer than the
// call.
func (m *member) onMembers([]peer.Member) {
	m.mu.Lock()
	ready := m.ready
	m.mu.Unlock()
	if !ready {
		return // it is called again when everything is set up
	}
	m.taking.Lock()
	defer m.taking.Unlock()
	members := m.gossip.Members()
	for i := range members {
		if members[i].Name == m.config.Name {
			m.mu.Lock()
			m.at = members[i].GossipAddr
			m.mu.Unlock()
		}
	}
	m.membership.Update(members) // Update calls listed
}

// listed gives the members that the membership lists to the links, which keep
// connections to all of them, and to the methods that people see.
func (m *member) listed() {
	m.mu.Lock()
	ready := m.ready
	m.mu.Unlock()
	if !ready {
		return
	}
	m.listing.Lock()
	defer m.listing.Unlock()
	members := m.membership.Listed()
	m.links.SetMembers(members)
	m.mu.Lock()
	m.all = slices.CompactFunc(members, func(a, b peer.Member) bool { return a.Name == b.Name })
	m.mu.Unlock()
	m.compareRules()
}

// compareRules records whether members have different rules. Nodes that gossip reports
// and that no link has shown are not members yet.
func (m *member) compareRules() {
	m.mu.Lock()
	defer m.mu.Unlock()
	self := m.config.Name
	m.differ = rulesOf(slices.DeleteFunc(m.members(), func(o peer.Member) bool { return o.Name != self && !m.core.Met(o.Name, o.Instance) }))
}

// reportRules logs whether members have different rules, if that has changed since the
// last report.
func (m *member) reportRules() {
	m.mu.Lock()
	differ := m.differ
	same := differ == m.differed
	m.differed = differ
	m.mu.Unlock()
	switch {
	case same:
	case differ != "":
		m.log.Warn("members have different rules: each decides by its own for the keys that it owns; give all the same, "+
			"and the same program, since its time zone database counts for calendars", "hashes", differ, "time_zones", limiter.ZoneDataVersion())
	default:
		m.log.Info("all members have the same rules")
	}
}

// members returns all known members, this node included as it is now. m.mu is held.
func (m *member) members() []peer.Member {
	self := m.membership.Self()
	self.GossipAddr = m.at
	out := slices.Clone(m.all)
	i, _ := slices.BinarySearchFunc(out, self.Name, func(o peer.Member, name string) int {
		switch {
		case o.Name < name:
			return -1
		case o.Name > name:
			return 1
		}
		return 0
	})
	return slices.Insert(out, i, self)
}

// rulesOf describes the rules of members if they differ; otherwise it returns "".
func rulesOf(members []peer.Member) string {
	var of []string
	var first uint64 // hash of the first member that is not dead
	differ := false
	for i := range members {
		m := &members[i]
		if m.State == peer.Dead {
			continue
		}
		if len(of) == 0 {
			first = m.RulesHash
		}
		of = append(of, fmt.Sprintf("%s %016x", m.Name, m.RulesHash))
		differ = differ || m.RulesHash != first
	}
	if !differ {
		return ""
	}
	return strings.Join(of, ", ")
}

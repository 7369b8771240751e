package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/cluster"
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
	m.links.Recheck(false)
	m.mu.Lock()
	m.all = slices.CompactFunc(members, func(a, b peer.Member) bool { return a.Name == b.Name })
	m.mu.Unlock()
	m.compare()
}

// difference is how members differ in something; "" if they do not.
type difference struct{ now, reported string }

// news reports whether the difference is another one than at the last call.
func (d *difference) news() bool {
	was := d.reported
	d.reported = d.now
	return was != d.now
}

// compare records whether members have different rules or time zone databases. Nodes that
// gossip reports and that no link has shown are not members yet.
func (m *member) compare() {
	m.mu.Lock()
	defer m.mu.Unlock()
	self := m.config.Name
	met := slices.DeleteFunc(m.members(), func(o peer.Member) bool {
		return o.Name != self && !m.core.Met(o.Name, o.Instance)
	})
	m.rules.now = differing(met, rulesHash)
	m.zones.now = differing(met, zoneData)
}

// clockDifference returns the name of the member whose clock differs most from this node's, and by how much at least;
// "" if none is seen to differ.
func (m *member) clockDifference() (name string, by time.Duration) {
	of, d := m.core.ClockDifference()
	if of == 0 {
		return "", 0
	}
	name = of.String() // it is no member any more
	if o := m.core.View().Member(of); o != nil {
		name = o.Name
	}
	return name, d.Duration()
}

// reportDifferences logs whether members have different rules, time zone databases or clocks, if
// that has changed since the last report.
func (m *member) reportDifferences() {
	of, by := "", time.Duration(0)
	if m.core != nil {
		of, by = m.clockDifference()
	}
	m.mu.Lock()
	m.clocks.now = of
	newClocks := m.clocks.news()
	rules, zones := m.rules, m.zones
	newRules, newZones := m.rules.news(), m.zones.news()
	m.mu.Unlock()
	switch {
	case !newClocks:
	case of != "":
		m.log.Warn("the clock of another member differs from this node's: where windows begin at fixed instants, a key may "+
			"be granted its limit once more when its owner changes; synchronize the machines' clocks, then restart a node that "+
			"started with a wrong one: it does not follow its machine's", "member", of,
			"by_at_least", by.Round(time.Millisecond), "tolerated", cluster.ClocksDiffer.Duration())
	default:
		m.log.Info("no member's clock is seen to differ from this node's")
	}
	switch {
	case !newRules:
	case rules.now != "":
		m.log.Warn("members have different rules: each decides by its own for the keys that it owns; give all the same, "+
			"and the same program, since its time zone database counts for calendars", "hashes", rules.now, "time_zones",
			limiter.ZoneDataVersion())
	default:
		m.log.Info("all members have the same rules")
	}
	switch {
	case !newZones:
	case zones.now != "":
		m.log.Warn("members have different time zone databases: where zones have changed, windows of calendars depend on "+
			"the owner; "+
			"give all members the same program", "releases", zones.now)
	default:
		m.log.Info("all members have the same time zone database")
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

func rulesHash(m *peer.Member) string { return fmt.Sprintf("%016x", m.RulesHash) }
func zoneData(m *peer.Member) string  { return m.ZoneData }

// differing describes what members that are not dead have, if it differs; otherwise it
// returns "". A member that does not tell is left out.
func differing(members []peer.Member, of func(*peer.Member) string) string {
	var all []string
	first, differ := "", false
	for i := range members {
		m := &members[i]
		has := of(m)
		if m.State == peer.Dead || has == "" {
			continue
		}
		if len(all) == 0 {
			first = has
		}
		all = append(all, m.Name+" "+has)
		differ = differ || has != first
	}
	if !differ {
		return ""
	}
	return strings.Join(all, ", ")
}

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/cluster"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// census is the members of a cluster as this node knows them, and how they differ. It is safe for concurrent use.
type census struct {
	member *member

	taking  sync.Mutex // held while members of gossip are processed; taken before listing
	listing sync.Mutex // held while links get the members; taken before mu

	mu    sync.Mutex
	ready bool          // all parts of the member are there
	at    string        // this node's gossip address
	all   []peer.Member // all other known members; of two with one name, the one that counts
	// rules and zones are how the rules of members, and their time zone databases, differ. clocks is the member whose
	// clock does.
	rules, zones, clocks difference
}

// begin is called when all parts of the member are there.
func (c *census) begin() {
	c.mu.Lock()
	c.ready = true
	c.mu.Unlock()
	c.take(nil)
}

// take processes the members that gossip reports now, which may be newer than the
// call.
func (c *census) take([]peer.Member) {
	c.mu.Lock()
	ready := c.ready
	c.mu.Unlock()
	if !ready {
		return // it is called again when everything is set up
	}
	c.taking.Lock()
	defer c.taking.Unlock()
	members := c.member.gossip.Members()
	for i := range members {
		if members[i].Name == c.member.config.Name {
			c.mu.Lock()
			c.at = members[i].GossipAddr
			c.mu.Unlock()
		}
	}
	c.member.membership.Update(members) // Update calls list
}

// list gives the members that the membership lists to the links, which keep
// connections to all of them, and to the methods that people see.
func (c *census) list() {
	c.mu.Lock()
	ready := c.ready
	c.mu.Unlock()
	if !ready {
		return
	}
	c.listing.Lock()
	defer c.listing.Unlock()
	members := c.member.membership.Listed()
	c.member.links.SetMembers(members)
	c.member.links.Recheck(false)
	c.mu.Lock()
	c.all = slices.CompactFunc(members, func(a, b peer.Member) bool { return a.Name == b.Name })
	c.mu.Unlock()
	c.compare()
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
func (c *census) compare() {
	c.mu.Lock()
	defer c.mu.Unlock()
	self := c.member.config.Name
	met := slices.DeleteFunc(c.members(), func(o peer.Member) bool {
		return o.Name != self && !c.member.core.Met(o.Name, o.Instance)
	})
	c.rules.now = differing(met, rulesHash)
	c.zones.now = differing(met, zoneData)
}

// clockDifference returns the name of the member whose clock differs most from this node's, and by how much at least;
// "" if none is seen to differ.
func (c *census) clockDifference() (name string, by time.Duration) {
	of, d := c.member.core.ClockDifference()
	if of == 0 {
		return "", 0
	}
	name = of.String() // it is no member any more
	if o := c.member.core.View().Member(of); o != nil {
		name = o.Name
	}
	return name, d.Duration()
}

// report logs whether members have different rules, time zone databases or clocks, if
// that has changed since the last report.
func (c *census) report() {
	log := c.member.log
	of, by := "", time.Duration(0)
	if c.member.core != nil {
		of, by = c.clockDifference()
	}
	c.mu.Lock()
	c.clocks.now = of
	newClocks := c.clocks.news()
	rules, zones := c.rules, c.zones
	newRules, newZones := c.rules.news(), c.zones.news()
	c.mu.Unlock()
	switch {
	case !newClocks:
	case of != "":
		log.Warn("the clock of another member differs from this node's: where windows begin at fixed instants, a key may "+
			"be granted its limit once more when its owner changes; synchronize the machines' clocks, then restart a node that "+
			"started with a wrong one: it does not follow its machine's", "member", of,
			"by_at_least", by.Round(time.Millisecond), "tolerated", cluster.ClocksDiffer.Duration())
	default:
		log.Info("no member's clock is seen to differ from this node's")
	}
	switch {
	case !newRules:
	case rules.now != "":
		log.Warn("members have different rules: each decides by its own for the keys that it owns; give all the same, "+
			"and the same program, since its time zone database counts for calendars", "hashes", rules.now, "time_zones",
			limiter.ZoneDataVersion())
	default:
		log.Info("all members have the same rules")
	}
	switch {
	case !newZones:
	case zones.now != "":
		log.Warn("members have different time zone databases: where zones have changed, windows of calendars depend on "+
			"the owner; "+
			"give all members the same program", "releases", zones.now)
	default:
		log.Info("all members have the same time zone database")
	}
}

// members returns all known members, this node included as it is now. c.mu is held.
func (c *census) members() []peer.Member {
	self := c.member.membership.Self()
	self.GossipAddr = c.at
	out := slices.Clone(c.all)
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

// named returns the member with an instance; an empty one if it is not known.
func (c *census) named(i peer.Instance) peer.Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.members() {
		if o.Instance == i {
			return o
		}
	}
	return peer.Member{}
}

// byInstance returns another member.
func (c *census) byInstance(i peer.Instance) (peer.Member, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range c.all {
		if other.Instance == i {
			return other, true
		}
	}
	return peer.Member{}, false
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

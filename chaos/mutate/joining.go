package main

// ofJoining returns the protections of a cluster that begins, and of its gossip keys.
func ofJoining() []mutation {
	const states, whole = "./internal/cluster/members", "./cluster"
	return []mutation{
		{name: "join: a cluster begins with a majority", pkg: whole, test: "^TestJoinByName$/^3$/^empty$/^first_start$",
			edits: []edit{
				{"internal/cluster/members/membership.go", "	if m.awaited() > 0 {\n		return false\n	}\n", ""},
			}},
		{name: "join: half is no majority", pkg: states, test: "^TestExpectedMembers$", edits: []edit{
			{"internal/cluster/members/ready.go", "	majority := m.config.Expect/2 + 1\n",
				"	majority := (m.config.Expect + 1) / 2\n"},
		}},
		{name: "join: gossip alone makes no majority", pkg: states, test: "^TestExpectedMembersAreMet$", edits: []edit{
			{"internal/cluster/members/ready.go", "	n = 1\n", "	n = 1 + len(r.sighted)\n"},
		}},
		{name: "join: an active member is enough", pkg: states, test: "^TestExpectedMembers$", edits: []edit{
			{"internal/cluster/members/ready.go", "m.config.Expect == 0 || active ||",
				"m.config.Expect == 0 || active && n < 0 ||"},
		}},
		{name: "join: not without an heir", pkg: states, test: "^TestWhoCouldHaveNoHeirWaits$", edits: []edit{
			{"internal/cluster/members/membership.go", " && !m.roll.heirless(m.config.Core, now) &&", " &&"},
		}},
		{name: "join: who leaves will be no heir", pkg: states, test: "^TestWhoCouldHaveNoHeirWaits$", edits: []edit{
			{"internal/cluster/members/roll.go", " && !known.Leaves(k.Name, k.Instance, now)\n", "\n"},
		}},
		{name: "join: a name without an address may be a member's", pkg: "./internal/cluster/gossip",
			test: "^TestResolvedAddressesStay$", edits: []edit{
				{"internal/cluster/gossip/join.go", "		if len(j.resolved[seed]) == 0 {\n", "		if len(j.resolved[seed]) < 0 {\n"},
			}},
		{name: "join: no message of gossip with another version", pkg: "./internal/cluster/gossip",
			test: "^TestReplayedAndAltered$", edits: []edit{
				{"internal/cluster/gossip/guard.go", "!s.plain && !s.judgeSealed(b[:n]) {",
					"!s.plain && !s.judgeSealed(b[:n]) && n < 0 {"},
			}},
		{name: "join: what streams have sent has a bound", pkg: "./internal/cluster/gossip",
			test: "^TestBytesOfStreamsHaveABound$", edits: []edit{
				{"internal/cluster/gossip/guard.go", "g.streamed <= maxStreamed {", "g.streamed <= 2*maxStreamed {"},
			}},
		{name: "join: what no link confirms is told", pkg: "./internal/cluster/gossip",
			test: "^TestClaimsOfStrangersAreTold$", edits: []edit{
				{"internal/cluster/gossip/claims.go", "	for _, c := range due {\n", "	for _, c := range due[:0] {\n"},
			}},
		{name: "join: the gossip keys follow their file", pkg: whole, test: "^TestGossipKeysFollowTheirFile$", edits: []edit{
			{"cluster/keys.go", "		err = m.gossip.SetKeys(keys)\n", ""},
		}},
	}
}

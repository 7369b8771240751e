package main

// ofOwners returns those of who may own a partition, and with which state.
func ofOwners() []mutation {
	const replica = "./internal/cluster/replica"
	return []mutation{
		{name: "only the last owner may be missing", pkg: replica, test: "^TestTheLastResortOfClosed$", edits: []edit{
			{"internal/cluster/replica/seek.go", " && p.node.Peers.Counts(owner)", ""},
		}},
		{name: "a last resort gives way to a later copy", pkg: replica, test: "^TestALastResortBehindAnotherCopy$", edits: []edit{
			{"internal/cluster/replica/claim.go", "		case r.kind == peer.LastResort && p.behind(a):\n			p.abandon(t, 0)\n			return\n", ""},
		}},
	}
}

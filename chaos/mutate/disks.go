package main

// ofDisks returns those of what members read back from disks.
func ofDisks() []mutation {
	const replica, core = "./internal/cluster/replica", "./internal/cluster"
	const save, seek = "internal/cluster/replica/save.go", "internal/cluster/replica/seek.go"
	return []mutation{
		{name: "the floor of epochs is read back", pkg: replica, test: "^TestWhatIsReadBack$", edits: []edit{
			{save, "p.top = max(p.top, a.Top, a.Grant, a.Owner.Counter)", "_ = a.Top"},
		}},
		{name: "grants are read back", pkg: replica, test: "^TestWhatIsReadBack$", edits: []edit{
			{save, "	if a.Grant > p.grant {", "	if a.Grant > p.grant && a.Grant == 0 {"},
		}},
		{name: "what is read back is a copy", pkg: replica, test: "^TestWhatIsReadBack$", edits: []edit{
			{save, "	p.restored = p.role == peer.Copy\n	p.point(t)\n	return fits",
				"	p.role = peer.Heir\n	p.point(t)\n	return fits"},
		}},
		{name: "a closed partition waits for all disks", pkg: replica, test: "^TestACopyFromADiskPassesOverNobody$",
			edits: []edit{{seek, "!p.anyFromDisk(r) &&", "true &&"}}},
		{name: "an available partition waits for the others", pkg: replica,
			test: "^TestAnAvailablePartitionWaitsForTheOthers$", edits: []edit{
				{seek, "return !p.awaits(t, r) && ", "return "},
			}},
		{name: "a copy from a disk is kept for a while", pkg: replica, test: "^TestACopyFromADiskIsKept$", edits: []edit{
			{"internal/cluster/replica/learn.go", "p.epoch != p.mine && !p.FromDisk() &&", "p.epoch != p.mine &&"},
		}},
		{name: "a grant leaves when it lasts", pkg: core, test: "^TestAGrantLeavesWhenItLasts$", edits: []edit{
			{"internal/cluster/part.go", "if keeps == nil || !p.closed || !e.Answer.Granted {", "if true {"},
		}},
	}
}

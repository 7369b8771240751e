package main

// ofPanics returns those of what becomes of a panic in the core.
func ofPanics() []mutation {
	const sim, core = "./chaos/sim", "./internal/cluster"
	return []mutation{
		{name: "a panic ends at the partition", pkg: sim, test: "^TestPanicsEndNothing$", edits: []edit{
			{"internal/cluster/broken.go", "	if t.Panicked != nil {\n		if v := recover(); v != nil {\n			t.broke",
				"	if t.Panicked == nil {\n		if v := recover(); v != nil {\n			t.broke"},
		}},
		{name: "a panic ends at the partitions of a check", pkg: core, test: "^TestAPanicInACheckBreaksItsPartition$",
			edits: []edit{
				{"internal/cluster/broken.go", "	if t.Panicked != nil {\n		if x := recover()",
					"	if t.Panicked == nil {\n		if x := recover()"},
			}},
		{name: "broken state is dropped", pkg: core, test: "^TestAPanicBreaksThePartition$", edits: []edit{
			{"internal/cluster/replica/broken.go", "	p.node.Store.Drop(int(p.id))\n", ""},
		}},
		{name: "who waits for a broken partition is told", pkg: core, test: "^TestAPanicBreaksThePartition$", edits: []edit{
			{"internal/cluster/replica/broken.go", "	defer p.refuseAll(t, own, parked)\n",
				"	defer p.refuseAll(t, nil, parked)\n"},
		}},
		{name: "the heir of a broken owner takes over", pkg: sim, test: "^TestPanicsEndNothing$/^owners$", edits: []edit{
			{"internal/cluster/replica/broken.go", "	p.claiming.round = nil\n	p.takeOver(t)\n", ""},
		}},
		{name: "a partition that breaks again is given up", pkg: core, test: "^TestAPanicBreaksThePartition$", edits: []edit{
			{"internal/cluster/replica/broken.go", "	again := p.breakage.brokeAt != 0 && ", "	again := false && "},
		}},
		{name: "what is given up is taken up again", pkg: core, test: "^TestAPanicBreaksThePartition$", edits: []edit{
			{"internal/cluster/replica/broken.go", "		p.breakage.givenUp = false\n", ""},
		}},
		{name: "a state that may be half changed is not sent", pkg: core, test: "^TestAPanicInAStepKeepsItsEffects$",
			edits: []edit{
				{"internal/cluster/broken.go", "	t.step.Spoil()\n", ""},
			}},
		{name: "what was put off is done after a panic", pkg: core, test: "^TestAPanicEndsOneCall$", edits: []edit{
			{"internal/cluster/turn.go", "	defer t.Catch()\n	for t.pending()", "	for t.pending()"},
		}},
		{name: "a frame is whole after a panic", pkg: "./internal/cluster/mesh", test: "^TestAFrameIsWholeAfterAPanic$",
			edits: []edit{
				{"internal/cluster/mesh/writer.go", "			*f = before\n", "			_ = before\n"},
			}},
	}
}

package main

// ofLies returns the protections from what a hostile member says of counters and of owners.
func ofLies() []mutation {
	const cluster, table = "./internal/cluster", "./limiter/table"
	return []mutation{
		{name: "what a limit cannot hold is not believed", pkg: cluster, test: "^TestInflatedCountersEnd$", edits: []edit{
			{"limiter/table/import.go", "		arith.Believe(l, &in.state, now, mode == Merge)\n",
				"		arith.Believe(l, &in.state, now, false)\n"},
		}},
		{name: "an update of one key is believed no more", pkg: table, test: "^TestAnUpdateIsBelievedAsFar$", edits: []edit{
			{"limiter/table/move.go", "	if e.From != 0 {\n		arith.Believe", "	if e.From == 0 {\n		arith.Believe"},
		}},
		{name: "one member fills half of what is for others", pkg: table, test: "^TestANodeFillsAShare$", edits: []edit{
			{"limiter/table/sources.go", "u.keys.Load()+keys > maxOfSource(r.maxKeys) ||",
				"u.keys.Load()+keys > maxOfSource(2*r.maxKeys) ||"},
		}},
		{name: "what was sent denies no new key", pkg: table, test: "^TestANodeFillsAShare$", edits: []edit{
			{"limiter/table/move.go", "n, bytes := c.sent.slots+c.sent.ids, ", "n, bytes := 0*c.sent.slots, "},
		}},
		{name: "what is asked for counts", pkg: table, test: "^TestANodeFillsAShare$", edits: []edit{
			{"limiter/table/sources.go", "	s.from = 0\n	p.belongsSlot", "	p.sent(s, 1)\n	p.belongsSlot"},
		}},
		{name: "a block ends when a new one would", pkg: "./limiter/arith", test: "^TestWhatIsBelieved$", edits: []edit{
			{"limiter/arith/believed.go", "		s.Until, changed = most, true\n", "		changed = true\n"},
		}},
	}
}

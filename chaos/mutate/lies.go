package main

// ofLies returns the protections from what a hostile member says of counters and of owners.
func ofLies() []mutation {
	const cluster, table = "./internal/cluster", "./limiter/table"
	return []mutation{
		{name: "what a limit cannot hold is not believed", pkg: cluster, test: "^TestInflatedCountersEnd$", edits: []edit{
			{"limiter/table/import.go", "		limiter.Believe(l, &in.state, now, mode == Merge)\n", "		limiter.Believe(l, &in.state, now, false)\n"},
		}},
		{name: "an update of one key is believed no more", pkg: table, test: "^TestAnUpdateIsBelievedAsFar$", edits: []edit{
			{"limiter/table/move.go", "	if e.From != 0 {\n		limiter.Believe", "	if e.From == 0 {\n		limiter.Believe"},
		}},
		{name: "a block ends when a new one would", pkg: "./limiter", test: "^TestWhatIsBelieved$", edits: []edit{
			{"limiter/believed.go", "		s.Until, changed = most, true\n", "		changed = true\n"},
		}},
	}
}

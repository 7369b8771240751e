package main

// ofMerges returns those of counters that two owners charged and one of them merges.
func ofMerges() []mutation {
	return []mutation{
		{name: "an id that is merged is of the charge here", pkg: "./limiter/table", test: "^TestAMergedIDIsOfTheChargeHere$", edits: []edit{
			{"limiter/id.go", "	case s.Time == 0, from.Settled() && !settled:\n", "	case from.Time > s.Time, from.Settled() && !settled:\n"},
		}},
		{name: "an id that is merged is remembered as long as there", pkg: "./limiter/table", test: "^TestAMergedIDIsOfTheChargeHere$", edits: []edit{
			{"limiter/id.go", "		s.Time = max(s.Time, from.Time)\n", "		s.Time = max(s.Time, 0)\n"},
		}},
	}
}

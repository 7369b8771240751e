package main

// ofMerges returns those of counters that two owners charged and one of them merges.
func ofMerges() []mutation {
	return []mutation{
		{name: "an id that is merged is of the charge here", pkg: "./limiter/table", test: "^TestAMergedIDIsOfTheChargeHere$",
			edits: []edit{
				{"limiter/arith/id.go", "	case s.Time == 0, from.Settled() && !settled:\n",
					"	case from.Time > s.Time, from.Settled() && !settled:\n"},
			}},
		{name: "an id that is merged is remembered as long as there", pkg: "./limiter/table",
			test: "^TestAMergedIDIsOfTheChargeHere$", edits: []edit{
				{"limiter/arith/id.go", "		s.Time = max(s.Time, from.Time)\n", "		s.Time = max(s.Time, 0)\n"},
			}},
		{name: "what is settled here has no hold from elsewhere", pkg: "./limiter/table",
			test: "^TestASettledIDStaysSettledBesideAMergedHold$", edits: []edit{
				{"limiter/table/moveholds.go", "id != nil && isOver(id, &h) {\n			return h, false",
					"id != nil && h.Limit != 0 && isOver(id, &h) {\n			return h, false"},
			}},
		{name: "a hold from elsewhere ends when it is settled elsewhere", pkg: "./limiter/table",
			test: "^TestASettledIDStaysSettledBesideAMergedHold$", edits: []edit{
				{"limiter/table/moveholds.go", "id != nil && isOver(id, &h) {\n			return h.ID",
					"id != nil && h.Limit != 0 && isOver(id, &h) {\n			return h.ID"},
			}},
		{name: "a hold of another table is charged in full", pkg: "./limiter/table",
			test: "^TestAHoldOfAnotherTableIsChargedInFull$", edits: []edit{
				{"limiter/table/amend.go", "overdraw(now, k, m.here)", "overdraw(now, k, counted{units: m.was})"},
			}},
		{name: "what the larger counter has of a merged reservation is counted", pkg: "./limiter/table",
			test: "^TestAMergedHoldIsCountedOnce$", edits: []edit{
				{"limiter/table/moveholds.go", "h.Merge(by[at])", "h.Merge(0)"},
			}},
		{name: "each limit is charged what it lacks of a merged reservation", pkg: "./limiter/table",
			test: "^TestAMergedHoldIsCountedOnceByEachLimit$", edits: []edit{
				{"limiter/table/amend.go", "		n := k.Cost - min(k.Cost, has.of(arith.CountsID(l)))\n",
					"		n := k.Cost - min(k.Cost, has.units)\n"},
			}},
		{name: "and gives back what it has beyond what was used", pkg: "./limiter/table",
			test: "^TestAMergedHoldIsCountedOnceByEachLimit$", edits: []edit{
				{"limiter/table/amend.go", "		n := has.of(h.Limit)\n", "		n := has.units\n"},
			}},
		{name: "a merged reservation that is counted in full keeps its limit", pkg: "./limiter/table",
			test: "^TestAMergedHoldIsCountedOnceByEachLimit$", edits: []edit{
				{"limiter/arith/back.go", "	if h.Limit == 0 {\n		return h.since", "	if h.Uncounted() {\n		return h.since"},
			}},
		{name: "merged reservations share what is counted", pkg: "./limiter/table",
			test: "^TestMergedHoldsShareWhatIsCounted$", edits: []edit{
				{"limiter/table/moveholds.go", "by[at] -= h.Merge(by[at])", "h.Merge(by[at])"},
			}},
		{name: "a merged reservation brings what was counted where it was merged before", pkg: "./limiter/table",
			test: "^TestMergedHoldsShareWhatIsCounted$", edits: []edit{
				{"limiter/arith/back.go", "min(h.Counted(), more)", "min(h.Cost, more)"},
			}},
		{name: "a reservation that is counted nowhere keeps its limit", pkg: "./limiter/table",
			test: "^TestAMergedHoldThatIsSettledElsewhereIsCharged$", edits: []edit{
				{"limiter/arith/back.go", "since{level{lo: limit},", "since{level{lo: limit & 0},"},
			}},
		{name: "a merge leaves the hold of a shadow rule", pkg: "./limiter/table",
			test: "^TestAMergeLeavesTheHoldOfAShadowRule$", edits: []edit{
				{"limiter/table/moveholds.go", "return id.Settled() && (!h.Spared() ||", "return id.Settled() && (h != nil ||"},
			}},
		{name: "what only a fenced owner has settled is left out", pkg: "./chaos/sim",
			test: "^TestAReservationEndsWhileAnOwnerIsCutOff$", edits: []edit{
				{"limiter/table/import.go", "		case mode == Merge && p.settledAlone(e, held):\n",
					"		case now < 0 && p.settledAlone(e, held):\n"},
			}},
		{name: "copies have what was settled", pkg: "./limiter/table", test: "^TestWhatOnlyTheOtherHasSettledIsLeftOut$",
			edits: []edit{
				{"limiter/table/import.go", "		case mode == Merge && p.settledAlone(e, held):\n",
					"		case p.settledAlone(e, held):\n"},
			}},
		{name: "what a policy may have settled is not left out", pkg: "./limiter/table",
			test: "^TestWhatOnlyTheOtherHasSettledIsLeftOut$", edits: []edit{
				{"limiter/table/moveholds.go", "	return p.number >= Partitions && ", "	return "},
			}},
		{name: "what the other has settled is not left out while it is held", pkg: "./limiter/table",
			test: "^TestWhatOnlyTheOtherHasSettledIsLeftOut$", edits: []edit{
				{"limiter/table/moveholds.go", " == arith.SettledID && !held[idAt{p.table.order.of(e.Hi), e.Lo}]\n",
					" == arith.SettledID\n"},
			}},
		{name: "ids that are not settled are not left out", pkg: "./limiter/table",
			test: "^TestWhatOnlyTheOtherHasSettledIsLeftOut$", edits: []edit{
				{"limiter/table/moveholds.go", " arith.IDParts(&e.State) == arith.SettledID && ", " "},
			}},
	}
}

package main

// ofQuotas returns those of quotas on which several rules draw, and of calendar windows.
func ofQuotas() []mutation {
	const file, sim, examples = "./rules", "./chaos/sim", "./cluster"
	return []mutation{
		{name: "quota: a draw has its own cost", pkg: file, test: "^TestDrawsHaveTheirOwnCosts$", edits: []edit{
			{"rules/quota.go", "		if w.costs != nil && ", "		if false && "},
		}},
		{name: "quota: all rules have one counter", pkg: examples, test: "^TestExamples$/^memory$/^units.yaml$", edits: []edit{
			{"rules/quota.go", "w.quota.charge(r, c, units, first)", "u.counters.charge(r, c, units, first)"},
		}},
		{name: "quota: draws of several rules are one", pkg: file, test: "^TestDrawsOfSeveralRulesAreOne$", edits: []edit{
			{"rules/quota.go", "k.Rule == rule && ", "k == nil && "},
		}},
		{name: "quota: draws of several rules are added", pkg: file, test: "^TestDrawsOfSeveralRulesAreOne$", edits: []edit{
			{"rules/quota.go", "uint64(k.Cost)+uint64(cost)", "uint64(cost)"},
		}},
		{name: "quota: a denial by the rule costs nothing", pkg: examples, test: "^TestExamples$/^memory$/^units.yaml$", edits: []edit{
			{"limiter/decide.go", "		charge = together\n", "		charge = l.Allowed\n"},
		}},
		{name: "quota: a denial by another owner is taken back", pkg: sim, test: "^TestSharedQuotaThroughACrash$", edits: []edit{
			{"internal/cluster/route/fanout.go", "		if !charge {\n			undo |= 1 << k\n		}\n", ""},
		}},
		{name: "calendar: a month is that of the zone", pkg: sim, test: "^TestMonthBeginsDuringACrash$", edits: []edit{
			{"limiter/calendar/calendar.go", "	return max(local-p.offset, p.from)\n", "	return max(local-0*p.offset, p.from-farthest)\n"},
		}},
		{name: "calendar: the first instant after a gap", pkg: "./limiter/calendar", test: "^TestEveryMoveOfTheClocks$", edits: []edit{
			{"limiter/calendar/calendar.go", "	return max(local-p.offset, p.from)\n", "	return local - p.offset\n"},
		}},
		{name: "calendar: the last day of shorter months", pkg: examples, test: "^TestCalendarsByHand$/^memory$", edits: []edit{
			{"limiter/calendar/calendar.go", "AnchorDay)-1, last)", "AnchorDay)-1, last+30)"},
		}},
		{name: "calendar: a window begins once", pkg: sim, test: "^TestMonthBeginsDuringACrash$", edits: []edit{
			{"limiter/calendar.go", "s.A == 0 || Tick(start) > s.Time {", "s.A == 0 || Tick(start) >= s.Time {"},
		}},
		{name: "calendar: the owner has the zone of the request", pkg: examples, test: "^TestZonesOfRequestsAcrossMembers$", edits: []edit{
			{"internal/cluster/mesh/dictionary.go", "			own, _ = own.In(r.Zone)\n", "			own, _ = own.In(\"\")\n"},
		}},
		{name: "calendar: Redis has the bounds of its clock", pkg: "./redisstore", test: "^TestCalendarsByAWrongClock$", edits: []edit{
			{"redisstore/lua/calendar.lua", "  away = true\n", "  away = false\n"},
		}},
		{name: "calendar: Redis has the windows of the zone", pkg: examples, test: "^TestCalendarsByHand$/^redis$", edits: []edit{
			{"redisstore/params.go", "strconv.AppendInt(b, int64(at), 10)", "strconv.AppendInt(b, int64(at-at%limiter.Day), 10)"},
		}},
	}
}

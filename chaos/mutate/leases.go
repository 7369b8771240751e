package main

// ofLeases returns those of what owners lend.
func ofLeases() []mutation {
	const table, core = "./limiter/table", "./internal/cluster"
	return []mutation{
		{name: "lent units count as charged now", pkg: table, test: "^TestLeasesAdmitNothingTwice$", edits: []edit{
			{"limiter/table/lent.go", "	earlier := func(h *arith.Hold) bool { return h.Lent && h.At < now }\n",
				"	earlier := func(h *arith.Hold) bool { return h.Lent && h.At < 0 }\n"},
		}},
		{name: "a lease that nobody gives back is charged at its end", pkg: table, test: "^TestLeasesAdmitNothingTwice$",
			edits: []edit{
				{"limiter/table/holds.go", "			loans{b}.charge(e.at, e.end)\n", "			_ = e.end\n"},
			}},
		{name: "a lease is charged when it is given back", pkg: table, test: "^TestLeasesAdmitNothingTwice$", edits: []edit{
			{"limiter/table/holds.go", "		loans{b}.renew(now)\n	}\n}\n", "	}\n}\n"},
		}},
		{name: "an heir knows what is lent", pkg: table, test: "^TestLeasesAdmitNothingTwice$", edits: []edit{
			{"limiter/table/lent.go", "	if (loans{b}).any() && !slices.Contains(*k, at) {\n",
				"	if (loans{b}).any() && !slices.Contains(*k, at) && b.s.from == 1 {\n"},
		}},
		{name: "a reset keeps what is lent", pkg: table, test: "^TestAResetKeepsWhatIsLent$", edits: []edit{
			{"limiter/table/keys.go", "		return loans{p.ledgerOf(k)}.stay(s, l, now)\n", "		return false\n"},
		}},
		{name: "a copy renews what is lent", pkg: table, test: "^TestACopyKeepsWhatIsLent$", edits: []edit{
			{"limiter/table/lent.go", "		l.renew(now)\n		return !l.any()\n",
				"		if !p.table.copies[p.number].on {\n			l.renew(now)\n		}\n		return !l.any()\n"},
		}},
		{name: "what is lent follows a new limit", pkg: table, test: "^TestWhatIsLentCountsUnderANewLimit$", edits: []edit{
			{"limiter/table/lent.go", "			h.Limit = arith.CountsID(l)\n", "			h.Limit = arith.CountsID(old)\n"},
		}},
		{name: "what another table has lent is charged", pkg: table, test: "^TestWhatIsLentIsMerged$", edits: []edit{
			{"limiter/table/lent.go", "		b.overdraw(&lent[i], now)\n", "		_ = lent[i]\n"},
		}},
		{name: "a lease without room is denied", pkg: table, test: "^TestNoRoomForALease$", edits: []edit{
			{"limiter/table/ids.go", "(t.overflow == OverflowDeny || id.Lent)", "t.overflow == OverflowDeny"},
		}},
		{name: "a lease leaves when the heir has it", pkg: core, test: "^TestALeaseWaitsForTheHeir$", edits: []edit{
			{"internal/cluster/replica/owner.go", "guarded && (lent || ", "guarded && (lent && false || "},
		}},
		{name: "a withheld lease is not within D", pkg: core, test: "^TestALeaseWaitsForTheHeir$", edits: []edit{
			{"internal/cluster/replica/withheld.go", "	if charge.ID != nil && charge.ID.Lent && !o.isolated(t) {\n",
				"	if false {\n"},
		}},
		{name: "a lease begins when it is asked for", pkg: core, test: "^TestAHolderAdmits$", edits: []edit{
			{"internal/cluster/route/leases.go", "	l.owner = d.Limit(0).Owner\n",
				"	l.owner, l.until, l.untilAt = d.Limit(0).Owner, l.until+hotFor, l.untilAt+hotFor\n"},
		}},
		{name: "a lease ends", pkg: core, test: "^TestAHolderAdmits$", edits: []edit{
			{"internal/cluster/route/leases.go", "return l.returned || t.Now >= l.until || t.At >= l.untilAt",
				"return l.returned"},
		}},
		{name: "a node that leaves gives back", pkg: core, test: "^TestLeasesThatAreNotUsed$", edits: []edit{
			{"internal/cluster/core.go", "		c.calls.Leases.End(&t.Turn)\n", ""},
		}},
		{name: "a receipt of a lease is good once", pkg: core, test: "^TestAHolderAdmits$", edits: []edit{
			{"internal/cluster/route/leases.go", " || l.refunded[r.Once] {\n", " {\n"},
		}},
		{name: "a member asks for a bounded lease", pkg: core, test: "^TestLeasesAreBounded$", edits: []edit{
			{"internal/cluster/credible.go",
				"(!h.Lent || h.Keep && q.Keys == 1 && !q.Peek && !q.Prepare && limiter.Tick(h.Span) <= arith.MaxLease)",
				"(!h.Lent || q.Keys == 1)"},
		}},
		{name: "an owner lends by rules that lend", pkg: core, test: "^TestLeasesAreBounded$", edits: []edit{
			{"internal/cluster/decide.go", "(arith.LeaseFor(q.Charge.Key(0).Rule) == 0 || d.shareOf", "(d.shareOf"},
		}},
	}
}

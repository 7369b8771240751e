package main

// ofLeases returns those of what owners lend.
func ofLeases() []mutation {
	const table, core, front, asks, held = "./limiter/table", "./internal/cluster", "./transport", "./client",
		"./internal/lease"
	const traces, lends = "./limiter/limitertest", "./internal/engine"
	return []mutation{
		{name: "lent units count as charged now", pkg: traces, test: "^TestLeasesAdmitNothingTwice$", edits: []edit{
			{"limiter/table/lent.go", "	if !b.renewTogether(now) {\n", "	if now < 0 {\n"},
		}},
		{name: "a lease that nobody gives back is charged at its end", pkg: traces, test: "^TestLeasesAdmitNothingTwice$",
			edits: []edit{
				{"limiter/table/holds.go", "			loans{b}.charge(e.at, e.end)\n", "			_ = e.end\n"},
			}},
		{name: "a lease is charged when it is given back", pkg: traces, test: "^TestLeasesAdmitNothingTwice$", edits: []edit{
			{"limiter/table/holds.go", "		loans{b}.renew(now)\n	}\n}\n", "	}\n}\n"},
		}},
		{name: "an heir knows what is lent", pkg: traces, test: "^TestLeasesAdmitNothingTwice$", edits: []edit{
			{"limiter/table/lent.go", "	if (loans{b}).any() && !slices.Contains(*k, at) {\n",
				"	if (loans{b}).any() && !slices.Contains(*k, at) && b.s.from == 1 {\n"},
		}},
		{name: "a reset keeps what is lent", pkg: table, test: "^TestAResetKeepsWhatIsLent$", edits: []edit{
			{"limiter/table/keys.go", "		lent := loans{p.ledgerOf(k)}.stay(s, l, now)\n", "		lent := false\n"},
		}},
		{name: "a copy renews what is lent", pkg: table, test: "^TestACopyKeepsWhatIsLent$", edits: []edit{
			{"limiter/table/lent.go", "		l.renew(now)\n		return !l.any()\n",
				"		if !p.table.copies[p.number].on {\n			l.renew(now)\n		}\n		return !l.any()\n"},
		}},
		{name: "what is lent comes while a table grows", pkg: table, test: "^TestWhatIsLentComesWhileATableGrows$",
			edits: []edit{
				{"limiter/table/import.go", "		defer func() { // once", "		p.ledger(&in).ends()\n		defer func() { return // once"},
			}},
		{name: "what is lent follows a new limit", pkg: table, test: "^TestWhatIsLentCountsUnderANewLimit$", edits: []edit{
			{"limiter/table/lent.go", "			h.Limit = arith.CountsID(l)\n", "			h.Limit = arith.CountsID(old)\n"},
		}},
		{name: "what another table has lent is charged", pkg: table, test: "^TestWhatIsLentIsMerged$", edits: []edit{
			{"limiter/table/lent.go", "		b.overdraw(&lent[i], now)\n", "		_ = lent[i]\n"},
		}},
		{name: "a lease without room is denied", pkg: table, test: "^TestNoRoomForALease$", edits: []edit{
			{"limiter/table/ids.go", "(t.room.overflow == OverflowDeny || id.Lent)", "t.room.overflow == OverflowDeny"},
		}},
		{name: "the rate of a slice is charged", pkg: table, test: "^TestSlicesAdmitNothingTwice$", edits: []edit{
			{"limiter/table/slices.go", "		b.of.p.overdrawSlot(s, l, h.At, n)\n", "		_ = n\n"},
			{"limiter/table/lent.go", "			b.of.p.overdrawSlot(f.s, f.limit, f.at, f.accrued)\n", ""},
		}},
		{name: "a slice is charged to its end", pkg: table, test: "^TestASliceIsChargedToItsEnd$", edits: []edit{
			{"limiter/table/lent.go", "	b.accrue(&h, at)\n", ""},
		}},
		{name: "a rate that changes is charged", pkg: table, test: "^TestARateThatChangesIsCharged$", edits: []edit{
			{"limiter/table/slices.go", "		if was > 0 && was != rate {", "		if was > 0 && was == 0 {"},
		}},
		{name: "what a slice may use within a window is lent", pkg: table, test: "^TestSlicesAdmitNothingTwice$",
			edits: []edit{{
				"limiter/table/slices.go", "; missing > 0 {\n", "; missing > 0 && rate == 0 {\n",
			}}},
		{name: "rates together are within the limit", pkg: table, test: "^TestSlicesAdmitNothingTwice$", edits: []edit{
			{"limiter/table/slices.go", "		return all - min(all, others)\n", "		return all\n"},
		}},
		{name: "a rate that is assigned stays", pkg: table, test: "^TestARateStaysWhenItsLimitFalls$", edits: []edit{
			{"limiter/table/slices.go", "	rate = max(rate, min(was, id.Rate))\n", "	rate = min(rate, id.Rate)\n"},
		}},
		{name: "what comes back at once is what comes back one by one", pkg: "./limiter/arith", test: "^TestGiveBackAll$",
			edits: []edit{{"limiter/arith/back.go", "		if back != (level{}) {\n			e :=",
				"		if h := HoldAt(holdWords, i); f(h) {\n			e :="}}},
		{name: "each bucket of a key gets it back once", pkg: table, test: "^TestSlicesAdmitNothingTwice$",
			edits: []edit{
				{"limiter/table/lent.go", "	if !b.renewTogether(now) {\n", "	if now > 0 {\n"},
				{"limiter/table/lent.go", "			done = append(done, h.Limit)\n", ""},
			}},
		{name: "leases that move together move as each does", pkg: table, test: "^TestRenewsTogetherAsEach$", edits: []edit{
			{"limiter/table/lent.go", "		b.of.p.overdrawSlot(f.s, f.limit, now, f.cost)\n",
				"		b.of.p.overdrawSlot(f.s, f.limit, f.at, f.cost)\n"},
		}},
		{name: "what one slice takes another has no more", pkg: table, test: "^TestARateMoves$", edits: []edit{
			{"limiter/table/slices.go", "				left[w.id] = w.units - n\n", "				left[w.id] = w.units\n"},
		}},
		{name: "what a rate leaves comes back", pkg: table, test: "^TestWhatARateLeavesComesBack$", edits: []edit{
			{"limiter/table/slices.go", "	case needs == have, needs < have && rate != was: ", "	case needs <= have: "},
		}},
		{name: "a slice is not settled", pkg: table, test: "^TestASliceIsNotSettled$", edits: []edit{
			{"limiter/table/amend.go", "			case has.sliced: ", "			case has.sliced && a.Lacks: "},
		}},
		{name: "a division knows what the table counts", pkg: "./internal/engine",
			test: "^TestADivisionKnowsWhatTheTableCounts$", edits: []edit{
				{"internal/engine/slice.go", "		if !h.Sliced || h.End <= now {\n", "		if h.Sliced || h.End <= now {\n"},
			}},
		{name: "a slice that is assigned nothing ends", pkg: "./internal/engine", test: "^TestALimitFallsUnderItsSlices$",
			edits: []edit{
				{"internal/engine/slice.go", "	if assigned == 0 { ", "	if counted == 0 { "},
			}},
		{name: "a denied slice takes no rate", pkg: "./internal/engine", test: "^TestADeniedSliceTakesNoRate$", edits: []edit{
			{"internal/engine/slice.go", "		by.of.Cut(k.Hash, id.ID, r.Assigned)\n", ""},
		}},
		{name: "a slice is fast if it is asked to be", pkg: "./internal/engine", test: "^TestAFastSliceLeavesItsRateAtOnce$",
			edits: []edit{{"internal/engine/slice.go", "Fast: id.Fast}", "Fast: false}"}}},
		{name: "a slice is strict if it is not", pkg: "./internal/engine", test: "^TestAFastSliceLeavesItsRateAtOnce$",
			edits: []edit{{"internal/engine/slice.go", "Fast: id.Fast}", "Fast: true}"}}},
		{name: "the owner hears that a slice is fast", pkg: "./cluster", test: "^TestFastSlicesAcrossMembers$",
			edits: []edit{{"internal/cluster/wire.go", ", hold.Rate, hold.Fast\n", ", hold.Rate, false\n"}}},
		{name: "fast slices are within their bound", pkg: "./internal/envoy/quota", test: "^TestFastSlicesAreBounded$",
			edits: []edit{
				{"internal/slices/division.go", "			beyond += d.holders[i].counts()\n", ""},
				{"limiter/table/slices.go", "		return all - min(all, others)\n", "		return all\n"},
			}},
		{name: "an heir knows what was assigned", pkg: "./internal/engine", test: "^TestAFastSliceLeavesItsRateAtOnce$",
			edits: []edit{
				{"internal/engine/slice.go", "		if !h.Sliced || h.End <= now {\n", "		if !h.Sliced || h.ID != id.ID {\n"},
				{"limiter/table/slices.go", "		return all - min(all, others)\n", "		return all\n"},
			}},
		{name: "a slice is renewed with its burst, by limits that count it", pkg: table, test: "^TestASliceIsRenewedAsItIs$",
			edits: []edit{
				{"limiter/table/slices.go", "		if !b.renewable(k, id.ID) {\n", "		if false {\n"},
			}},
		{name: "a lease is no slice", pkg: table, test: "^TestASliceByAnotherID$", edits: []edit{
			{"limiter/table/slices.go", "	if known && !e.held() {\n", "	if known && !e.standing().sliced {\n"},
		}},
		{name: "a slice accrues nothing back in time", pkg: table, test: "^TestASliceEndsBeforeTheLastLook$", edits: []edit{
			{"limiter/table/slices.go", " || now <= h.At {\n", " {\n"},
		}},
		{name: "nothing extends a slice", pkg: table, test: "^TestASliceByAnotherID$", edits: []edit{
			{"limiter/table/amend.go", "			case has.lent && a.Extend: ", "			case has.lent && a.Extend && a.Lacks: "},
		}},
		{name: "nothing extends a lease", pkg: table, test: "^TestNothingExtendsALease$", edits: []edit{
			{"limiter/table/amend.go", "			case has.lent && a.Extend: ", "			case has.lent && a.Extend && a.Lacks: "},
		}},
		{name: "a slice that is renewed leaves when the heir has it", pkg: core, test: "^TestASliceWaitsForTheHeir$",
			edits: []edit{{"limiter/table/slices.go", "		d.Repeated = false // it is renewed\n", ""}}},
		{name: "a lease leaves when the heir has it", pkg: core, test: "^TestALeaseWaitsForTheHeir$", edits: []edit{
			{"internal/cluster/replica/owner.go", "guarded && (lent || ", "guarded && (lent && false || "},
		}},
		{name: "a lease of a client is decided with others", pkg: core, test: "^TestALeaseOfAClientWaitsForTheHeir$",
			edits: []edit{{"internal/cluster/decide.go", "(charge.ID.Lent || r.Own().Awaits()", "(r.Own().Awaits()"}}},
		{name: "a withheld lease is not within D", pkg: core, test: "^TestALeaseWaitsForTheHeir$", edits: []edit{
			{"internal/cluster/replica/withheld.go", "	if charge.ID != nil && charge.ID.Lent && !o.isolated(t) {\n",
				"	if false {\n"},
		}},
		{name: "a lease begins when it is asked for", pkg: core, test: "^TestAHolderAdmits$", edits: []edit{
			{"internal/lease/holder.go", "	l.owner = d.Limit(0).Owner\n",
				"	l.owner, l.Until = d.Limit(0).Owner, Instant{l.Until.Now + hotFor, l.Until.At + hotFor}\n"},
		}},
		{name: "a lease ends", pkg: core, test: "^TestAHolderAdmits$", edits: []edit{
			{"internal/lease/holder.go", "return l.returned || t.Now >= l.Until.Now || t.At >= l.Until.At",
				"return l.returned"},
		}},
		{name: "a node that leaves gives back", pkg: core, test: "^TestLeasesThatAreNotUsed$", edits: []edit{
			{"internal/cluster/core.go", "		c.calls.Leases.End(&t.Turn)\n", ""},
		}},
		{name: "a receipt of a lease is good once", pkg: core, test: "^TestAHolderAdmits$", edits: []edit{
			{"internal/lease/refund.go", "	case l.refunded[f.Once] || ", "	case "},
		}},
		{name: "a member asks for a bounded lease", pkg: core, test: "^TestLeasesAreBounded$", edits: []edit{
			{"internal/cluster/credible.go",
				"(!h.Lent || h.Keep && q.Keys == 1 && !q.Peek && !q.Prepare && limiter.Tick(h.Span) <= arith.LongestLease(h.Rate))",
				"(!h.Lent || q.Keys == 1)"},
		}},
		{name: "no more comes back than was lent", pkg: front, test: "^TestLease$", edits: []edit{
			{"limiter/table/amend.go", "				k.Cost = min(k.Cost, m.was) ", "				_ = m.was "},
		}},
		{name: "rules lend unless they say otherwise", pkg: "./rules", test: "^TestLeases$", edits: []edit{
			{"rules/rules.go", "		Leases: def.leases.how == leasesAuto,\n",
				"		Leases: def.leases.at != nil && def.leases.how == leasesAuto,\n"},
		}},
		{name: "a client borrows by rules that lend", pkg: front, test: "^TestLease$", edits: []edit{
			{"rules/ids.go", "	case span == 0:\n", "	case span < 0:\n"},
		}},
		{name: "an owner waits for a client for a bounded time", pkg: front, test: "^TestLease$", edits: []edit{
			{"rules/ids.go", "	case c.ID.Hold > arith.LeaseWait*span:\n", "	case c.ID.Hold < 0:\n"},
		}},
		{name: "who borrows may check", pkg: front, test: "^TestWhoMayBorrow$", edits: []edit{
			{"internal/frontend/admit.go", "		return ActionCheck, true\n", "		return ActionCheck, false\n"},
		}},
		{name: "a message has a bounded number of leases", pkg: front, test: "^TestLeasesInAMessage$", edits: []edit{
			{"transport/lease.go", "err == nil && n.Checks > MaxLeases", "err == nil && n.Checks < 0"},
			{"transport/lease.go", "	case n > MaxLeases:\n", "	case n < 0:\n"},
		}},
		{name: "leases of a message last alike", pkg: asks, test: "^TestLeasesOfOneMessageLastAlike$", edits: []edit{
			{"client/leases.go", "place{of.owner(), r.Rule, span}}", "place{of.owner(), r.Rule, limiter.Second / 10}}"},
		}},
		{name: "a client looks at the wall clock", pkg: asks, test: "^TestLeasesLookAtTheWallClock$", edits: []edit{
			{"client/clocks.go", "passed < 0 || passed >= wallEvery", "passed < 0"},
		}},
		{name: "a client uses leases of its ring", pkg: asks, test: "^TestLeasesOfAnotherRing$", edits: []edit{
			{"client/leases.go", "if view != l.view || d.Len()", "if d.Len()"},
		}},
		{name: "a client that ends returns leases", pkg: asks, test: "^TestLeasesComeBack$", edits: []edit{
			{"client/leases.go", "			x.held.Close()\n", ""},
		}},
		{name: "a client that may not borrow stops asking", pkg: asks, test: "^TestLeasesThatAreRefused$", edits: []edit{
			{"client/leases.go", "		x.refusal(n).Store(int64(x.now().Now + lendsAgain))\n", "		_ = lendsAgain\n"},
		}},
		{name: "one node that lends nothing stops no other", pkg: asks, test: "^TestOneNodeThatLendsNothing$", edits: []edit{
			{"client/leases.go", "	return &n.refuses\n", "	return &x.refused\n"},
		}},
		{name: "a lease is by the rule in force here", pkg: held, test: "^TestWhichLeasesAreUsed$", edits: []edit{
			{"internal/lease/holder.go", "d.Limit(0).Rule == l.Key.Rule && ", ""},
		}},
		{name: "a lease is the owner's", pkg: held, test: "^TestWhichLeasesAreUsed$", edits: []edit{
			{"internal/lease/holder.go", "d.Source == limiter.SourceOwner && ", ""},
		}},
		{name: "a lease is not an override's", pkg: held, test: "^TestWhichLeasesAreUsed$", edits: []edit{
			{"internal/lease/holder.go", "!d.Repeated && !d.Overridden &&", "!d.Repeated &&"},
		}},
		{name: "a return ends leases alone", pkg: front, test: "^TestAReturnEndsALease$", edits: []edit{
			{"transport/lease.go", "	alike.Lent = true\n", "	alike.Lent = alike.Hold > 0\n"},
		}},
		{name: "an overridden rule lends nothing to clients", pkg: front, test: "^TestOverridesStopLeases$", edits: []edit{
			{"rules/override.go", "		o.rules[tenantRule{x.Tenant, x.Rule}] = true\n", ""},
		}},
		{name: "an override is of each spelling of its user", pkg: "./rules", test: "^TestOverridesOfSpellings$",
			edits: []edit{{"rules/override.go", "f |= p.fold", "f = 0"}}},
		{name: "the leases of a key are bounded", pkg: table, test: "^TestTheLeasesOfAKeyAreBounded$", edits: []edit{
			{"limiter/table/holds.go", ".count()+more > MaxLoans {", ".count()+more > 100*MaxLoans {"},
		}},
		{name: "an owner lends by rules that lend", pkg: core, test: "^TestLeasesAreBounded$", edits: []edit{
			{"internal/cluster/recall.go", "	case k.ID.Rate == 0 && hold > arith.LeaseWait*arith.LeaseFor(rule),",
				"	case k.ID.Rate == 0 && arith.LeaseFor(rule) > 0 && hold > arith.LeaseWait*arith.LeaseFor(rule),"},
		}},
		{name: "a member borrows for as long as the rule says", pkg: core, test: "^TestLeasesAreBounded$", edits: []edit{
			{"internal/cluster/recall.go", "	case k.ID.Rate == 0 && hold > arith.LeaseWait*arith.LeaseFor(rule),",
				"	case k.ID.Rate == 0 && arith.LeaseFor(rule) == 0,"},
		}},
		{name: "a client borrows what is worth it", pkg: lends, test: "^TestAClientBorrowsAPart$", edits: []edit{
			{"internal/engine/lend.go", "k.Cost < arith.LeastLent", "k.Cost < 1"},
		}},
		{name: "a client borrows a quarter of what is left", pkg: lends, test: "^TestAClientBorrowsAPart$", edits: []edit{
			{"internal/engine/lend.go", "k.Cost > left/4", "k.Cost > left"},
		}},
		{name: "a caller borrows half of what is left", pkg: lends, test: "^TestAClientBorrowsAPart$", edits: []edit{
			{"internal/engine/lend.go", "units > (left+units-k.Cost)/2", "units > left+units-k.Cost"},
		}},
		{name: "a caller leaves leases for others", pkg: lends, test: "^TestCallersLeaveLeases$", edits: []edit{
			{"internal/engine/lend.go", "entries > callerEntries", "false"},
		}},
		{name: "clients leave leases for members", pkg: lends, test: "^TestCallersLeaveLeases$", edits: []edit{
			{"internal/engine/lend.go", " || all > clientEntries {", " {"},
		}},
		{name: "clients leave a quarter for others", pkg: lends, test: "^TestAClientBorrowsAPart$", edits: []edit{
			{"internal/engine/lend.go", "allUnits > (left+allUnits-k.Cost)/4*3", "false"},
		}},
		{name: "owners know members from clients", pkg: core, test: "^TestClientsBorrowLess$", edits: []edit{
			{"internal/cluster/core.go", "	core.decider.slices.Member = func(", "	_ = func("},
		}},
		{name: "leases come back whatever their rule says now", pkg: front,
			test:  "^TestALeaseComesBackWhenItsRuleLendsNoMore$",
			edits: []edit{{"rules/ids.go", "r.Hold, nil; r.Hold > 0 {", "r.Hold, nil; true {"}}},
		{name: "the id of a lease is that of no reservation", pkg: front, test: "^TestAReturnEndsALease$", edits: []edit{
			{"rules/ids.go", "	if r.Lent {\n		return", "	if r.Lent && r.Hold < 0 {\n		return"},
		}},
		{name: "a check waits for what is lent", pkg: core, test: "^TestWhatIsLentIsRecalled$", edits: []edit{
			{"internal/cluster/decide.go", "if d.awaitsLent(t, q, charge, answer) {", "if false {"},
		}},
		{name: "what is given back wakes who waits for it", pkg: core, test: "^TestWhatIsLentIsRecalled$", edits: []edit{
			{"internal/cluster/amend.go", "			replica.GivenBack(t.inputs(), p.r.Own(), &key, k.ID.ID)\n",
				"			_ = replica.TickEvery\n"},
		}},
		{name: "nothing is lent while checks wait for it", pkg: core, test: "^TestWhatIsLentIsRecalled$", edits: []edit{
			{"internal/cluster/recall.go", "p != nil && p.r.Own().AwaitsLent(k.Key(0))", "p == nil"},
		}},
		{name: "who waits for what is recalled is not refused", pkg: core, test: "^TestWhoDoesNotGiveBack$", edits: []edit{
			{"internal/cluster/recall.go", "	d.table.Uncount(k, answer)\n", ""},
		}},
		{name: "nor is a denial that was not counted taken back", pkg: "./limiter/table",
			test: "^TestUncountLeavesOtherDenials$", edits: []edit{
				{"limiter/table/decide.go", "	if c.Peek || leadsOn(d) {\n		return // it", "	if c.Peek {\n		return // it"},
			}},
		{name: "who looks before it decides is not refused", pkg: "./limiter/table", test: "^TestPeeksAreNotRefused$",
			edits: []edit{
				{"limiter/table/decide.go", "d.ShadowDenied || c.Peek || leadsOn(d)", "d.ShadowDenied || leadsOn(d)"},
			}},
		{name: "a lease is recalled once", pkg: core, test: "^TestWhoDoesNotGiveBack$", edits: []edit{
			{"internal/cluster/replica/recall.go", "		return t.Now < r.until\n", "		return r.until > 0\n"},
		}},
		{name: "a lease that came back is forgotten", pkg: core + "/replica", test: "^TestRecalledLeasesAreForgotten$",
			edits: []edit{{"internal/cluster/replica/recall.go", "	delete(o.Waits.recalled, id)\n", ""}}},
		{name: "a recalled lease that is over is forgotten", pkg: core + "/replica",
			test: "^TestRecalledLeasesAreForgotten$", edits: []edit{
				{"internal/cluster/replica/recall.go", "return t.Now >= r.ends", "return t.Now >= r.ends && r.ends == 0"},
			}},
		{name: "recalled leases are bounded", pkg: core + "/replica", test: "^TestRecalledLeasesAreForgotten$",
			edits: []edit{{"internal/cluster/replica/recall.go", "len(o.recalled) < maxRecalled", "maxRecalled > 0"}}},
		{name: "what is lent is recalled for any rule", pkg: core, test: "^TestWhatIsLentIsRecalledForAnyRule$",
			edits: []edit{{"internal/cluster/recall.go", "		if p == nil {\n", "		if p == nil || !key.Rule.Leases {\n"}}},
		{name: "a denial for what is lent is not cached", pkg: core, test: "^TestADenialForWhatIsLent$", edits: []edit{
			{"internal/cluster/recall.go", "	q.Reply.Provisional = alone\n", "	_ = alone\n"},
		}},
		{name: "a denial says when what is lent comes back", pkg: table, test: "^TestWhenWhatIsLentComesBack$", edits: []edit{
			{"limiter/table/lent.go", "	return min(at, last)\n", "	return at\n"},
		}},
		{name: "a denial does not wait for slices", pkg: table, test: "^TestASliceDoesNotComeBack$", edits: []edit{
			{"limiter/table/lent.go", "CountsID(out.Limit) && !sliced[h.ID] {", "CountsID(out.Limit) {"},
		}},
		{name: "a denial does so if nothing else matters", pkg: table, test: "^TestWhenWhatIsLentComesBack$", edits: []edit{
			{"limiter/table/lent.go", " || max(out.Cost, 1) > out.Remaining+units {", " {"},
		}},
		{name: "a member that gives back forgets denials", pkg: core,
			test: "^TestADenialIsForgottenWhenALeaseIsGivenBack$", edits: []edit{
				{"internal/cluster/route/leases.go", "			x.c.denials.forget(charge) ", "			_ = charge "},
			}},
		{name: "leased checks are listed", pkg: core, test: "^TestLeasedChecksAreListed$", edits: []edit{
			{"internal/cluster/route/leases.go", "		c.config.Sample(charge)\n", "		_ = charge\n"},
		}},
		{name: "a node names the keys that its leases decide", pkg: core, test: "^TestLeasedChecksAreListed$", edits: []edit{
			{"internal/cluster/names.go", "	c.table.SetName(k, name)\n", ""},
		}},
		{name: "a lease ends with its window", pkg: held, test: "^TestALeaseEndsWithItsWindow$", edits: []edit{
			{"internal/lease/holder.go", "	l.endWithWindow(d)\n", ""},
		}},
		{name: "where a sliding window is nearly full leases end with its steps", pkg: held,
			test:  "^TestALeaseEndsWithAStep$",
			edits: []edit{{"internal/lease/hot.go", "	if step == 0 || left >=", "	if step >= 0 || left >="}}},
		{name: "after a recall no units are wanted in that step", pkg: held, test: "^TestALeaseEndsWithAStep$",
			edits: []edit{{"internal/lease/hot.go", "	e.notBefore = t.Now + span\n", "	e.notBefore = t.Now\n"}}},
		{name: "there are leases in the step after a recall", pkg: held, test: "^TestALeaseEndsWithAStep$",
			edits: []edit{{"internal/lease/hot.go", "LeaseStep(limit); step > 0 {\n", "LeaseStep(limit); step < 0 {\n"}}},
		{name: "a check of a lease is refunded at the owner", pkg: core, test: "^TestARefundAfterALease$", edits: []edit{
			{"internal/lease/refund.go", "	f.Epoch, f.Time = x.epoch, x.at\n", "	_ = f\n"},
		}},
		{name: "no more is refunded than a lease has used", pkg: core, test: "^TestARefundAfterALease$", edits: []edit{
			{"internal/lease/refund.go", " || k.Cost > x.left:", ":"},
		}},
		{name: "a refund waits for a lease that is given back", pkg: core, test: "^TestARefundWhileALeaseIsGivenBack$",
			edits: []edit{{"internal/lease/refund.go", "		l.late = append(l.late, Late{c.Clone(), r})\n", ""}}},
		{name: "a refund is sent to the holder", pkg: core, test: "^TestARefundByAnotherMember$", edits: []edit{
			{"internal/cluster/route/leases.go", "	t.Out.Refund(holder, c, true,", "	t.Out.Refund(0, c, true,"},
		}},
		{name: "an owner says when it charged a lease", pkg: core, test: "^TestAnOwnerRefundsWhatALeaseUsed$",
			edits: []edit{{"internal/cluster/amend.go", "		q.Outcome.At = t.At\n", ""}}},
		{name: "a lease ends by the wall clock", pkg: core, test: "^TestALeaseEndsWhileTheMachineIsSuspended$", edits: []edit{
			{"internal/cluster/route/leases.go", "	if x.c.config.Wall != nil {\n", "	if false {\n"},
		}},
		{name: "what was recalled is not used", pkg: core, test: "^TestAHolderGivesBackWhatIsRecalled$", edits: []edit{
			{"internal/lease/holder.go", "	l.returned = true\n	e := s.find(set, &l.Key)\n", "	e := s.find(set, &l.Key)\n"},
		}},
	}
}

package main

// ofQuotas returns those of quotas on which several rules draw, and of calendar windows.
func ofQuotas() []mutation {
	const file, sim, examples = "./rules", "./chaos/sim", "./cluster"
	return []mutation{
		{name: "quota: a draw has its own cost", pkg: file, test: "^TestDrawsHaveTheirOwnCosts$", edits: []edit{
			{"rules/quota.go", "		if w.costs != nil && ", "		if false && "},
		}},
		{name: "quota: all rules have one counter", pkg: examples, test: "^TestExamples$/^memory$/^units.yaml$",
			edits: []edit{
				{"rules/quota.go", "w.quota.charge(r, c, units, first)", "u.counters.charge(r, c, units, first)"},
			}},
		{name: "quota: draws of several rules are one", pkg: file, test: "^TestDrawsOfSeveralRulesAreOne$", edits: []edit{
			{"rules/quota.go", "k.Rule.Name == rule.Name && ", "k == nil && "},
		}},
		{name: "quota: draws of several rules are added", pkg: file, test: "^TestDrawsOfSeveralRulesAreOne$", edits: []edit{
			{"limiter/arith/charge.go", "min(k.Cost+cost, limiter.MaxUnits)", "cost"},
		}},
		{name: "quota: a draw stops at its part", pkg: examples, test: "^TestExamples$/^memory$/^priorities.yaml$",
			edits: []edit{
				{"rules/quota.go", "			k.Rule = w.parts.Of(k.Rule)\n", ""},
			}},
		{name: "quota: the lowest part counts", pkg: file, test: "^TestDrawsUpToAPart$", edits: []edit{
			{"rules/quota.go", "(have == 0 || have > w.upTo)", "(have == 0 || have < w.upTo)"},
		}},
		{name: "quota: a part changes no bucket", pkg: "./limiter", test: "^TestUpTo$", edits: []edit{
			{"limiter/identity.go", "	case TokenBucket, LeakyBucket, GCRA:\n		return l.full()\n",
				"	case TokenBucket, LeakyBucket, GCRA:\n		return l.ID\n"},
		}},
		{name: "quota: the owner knows the part", pkg: sim, test: "^TestConformance$/^Ceilings$", edits: []edit{
			{"internal/cluster/mesh/dictionary.go", "			own = b.parts.Of(part{own, r.UpTo, r.Onward})\n", ""},
		}},
		{name: "quota: Redis knows the part", pkg: "./redisstore", test: "^TestRedisConforms$/^Ceilings$", edits: []edit{
			{"redisstore/lua/prelude.lua", "tonumber(ceilings[i]) or p[4]", "p[4]"},
		}},
		{name: "alternatives: the next is tried", pkg: examples, test: "^TestExamples$/^memory$/^budgets.yaml$",
			edits: []edit{
				{"rules/alternative.go", "			next = s.alternatives[s.alternative+1]\n", ""},
			}},
		{name: "alternatives: each draws on its own", pkg: file, test: "^TestAlternatives$", edits: []edit{
			{"rules/quota.go", "w.any > 0 && w != mine", "w.any > 1 && mine != nil"},
		}},
		{name: "alternatives: what cannot count is none", pkg: ".", test: "^TestAlternativesThatCannotCount$", edits: []edit{
			{"rules/alternative.go", "case w.quota.counts(r):", "case true:"},
		}},
		{name: "alternatives: the last that can count leads nowhere", pkg: ".", test: "^TestAlternativesThatCannotCount$",
			edits: []edit{{"rules/quota.go", "w.ceil(c, w != last)", "w.ceil(c, last != nil)"}}},
		{name: "alternatives: nothing is lent", pkg: ".", test: "^TestAlternativesLendNothing$", edits: []edit{
			{"rules/alternative.go", "r.Hold == 0 && !r.Lent {", "r.Hold == 0 {"},
		}},
		{name: "alternatives: a check by one is not settled", pkg: ".", test: "^TestAlternativesLendNothing$", edits: []edit{
			{"settle.go", " || q.Charge.ID == nil {", " {"},
		}},
		{name: "alternatives: a check is observed once", pkg: ".", test: "^TestFirstQuotaThatAdmits$", edits: []edit{
			{"internal/engine/engine.go", "	if onward {\n", "	if false {\n"},
		}},
		{name: "alternatives: a receipt is of one", pkg: ".", test: "^TestFirstQuotaThatAdmits$", edits: []edit{
			{"rules/alternative.go", "Fields(r).Set ^= uint64(s.alternative) *", "Fields(r).Set ^= 0 *"},
		}},
		{name: "alternatives: what leads on is not listed", pkg: ".", test: "^TestDenialsThatLeadOnAreNotListed$",
			edits: []edit{
				{"rules/quota.go", "w.any > 0 && w.any < last", "false && w.any < last"},
			}},
		{name: "alternatives: the owner knows what leads on", pkg: "./internal/cluster/mesh",
			test: "^TestOnwardAcrossFrames$", edits: []edit{
				{"internal/cluster/mesh/dictionary.go", "if r.UpTo > 0 || r.Onward {", "if r.UpTo > 0 {"},
			}},
		{name: "alternatives: an id is refused", pkg: file, test: "^TestAlternativesTakeNoID$", edits: []edit{
			{"rules/ids.go", "	if h.any {\n", "	if false {\n"},
		}},
		{name: "quota: a denial by the rule costs nothing", pkg: examples, test: "^TestExamples$/^memory$/^units.yaml$",
			edits: []edit{
				{"limiter/arith/decide.go", "		charge = together\n", "		charge = l.Allowed\n"},
			}},
		{name: "quota: a denial by another owner is taken back", pkg: sim, test: "^TestSharedQuotaThroughACrash$",
			edits: []edit{
				{"internal/cluster/route/conclude.go", "		if !charge {\n			undo |= 1 << k\n		}\n", ""},
			}},
		{name: "calendar: a month is that of the zone", pkg: sim, test: "^TestMonthBeginsDuringACrash$", edits: []edit{
			{"limiter/calendar/calendar.go", "	return max(local-p.offset, p.from)\n",
				"	return max(local-0*p.offset, p.from-farthest)\n"},
		}},
		{name: "calendar: the first instant after a gap", pkg: "./limiter/calendar", test: "^TestEveryMoveOfTheClocks$",
			edits: []edit{
				{"limiter/calendar/calendar.go", "	return max(local-p.offset, p.from)\n", "	return local - p.offset\n"},
			}},
		{name: "calendar: the last day of shorter months", pkg: examples, test: "^TestCalendarsByHand$/^memory$",
			edits: []edit{
				{"limiter/calendar/calendar.go", "AnchorDay)-1, last)", "AnchorDay)-1, last+30)"},
			}},
		{name: "calendar: a window begins once", pkg: sim, test: "^TestMonthBeginsDuringACrash$", edits: []edit{
			{"limiter/arith/calendar.go", "s.A == 0 || limiter.Tick(start) > s.Time {",
				"s.A == 0 || limiter.Tick(start) >= s.Time {"},
		}},
		{name: "calendar: the owner has the zone of the request", pkg: examples, test: "^TestZonesOfRequestsAcrossMembers$",
			edits: []edit{
				{"internal/cluster/mesh/dictionary.go", "			own, _ = own.In(r.Choice)\n", "			own, _ = own.In(\"\")\n"},
			}},
		{name: "calendar: Redis has the bounds of its clock", pkg: "./redisstore", test: "^TestCalendarsByAWrongClock$",
			edits: []edit{
				{"redisstore/lua/calendar.lua", "  away = true\n", "  away = false\n"},
			}},
		{name: "calendar: Redis has the windows of the zone", pkg: examples, test: "^TestCalendarsByHand$/^redis$",
			edits: []edit{
				{"redisstore/params.go", "strconv.AppendInt(b, int64(at), 10)",
					"strconv.AppendInt(b, int64(at-at%limiter.Day), 10)"},
			}},
	}
}

// ofReceipts returns those of receipts of several owners, and of limits that change back.
func ofReceipts() []mutation {
	const sim, members, tables, redis = "./chaos/sim", "./cluster", "./limiter/table", "./redisstore"
	const suite = "./limiter/limitertest"
	return []mutation{
		{name: "receipt: a part has the ownership that charged it", pkg: sim,
			test: "^TestRefundsOfSeveralOwnersThroughACrash$", edits: []edit{
				{"internal/cluster/route/refunds.go", "			Epoch: p.Epoch, Time:", "			Time:"},
			}},
		{name: "receipt: a part has its own keys", pkg: sim, test: "^TestRefundsOfSeveralOwnersThroughACrash$", edits: []edit{
			{"internal/cluster/route/refunds.go", "charge: some(charge, p.Keys), receipt:", "charge: some(charge, 1), receipt:"},
		}},
		{name: "receipt: all parts are taken back", pkg: sim, test: "^TestRefundsOfSeveralOwnersThroughACrash$",
			edits: []edit{
				{"internal/cluster/route/refunds.go", "	for i := range parts {\n		p := &parts[i]\n",
					"	for i := range parts[:min(1, len(parts))] {\n		p := &parts[i]\n"},
			}},
		{name: "receipt: a part is void under another ownership", pkg: sim, test: "^TestRefundsOfSeveralOwnersThroughACrash$",
			edits: []edit{
				{"internal/cluster/replica/owner.go", "	return f.Epoch == o.Lineage() && f.Time >= o.at\n",
					"	return f.Time >= 0*o.at\n"},
			}},
		{name: "receipt: a part is used once", pkg: members, test: "^TestReceiptsOfSeveralOwners$", edits: []edit{
			{"internal/cluster/route/refunds.go", "Once: onceOf(f.Once, i)}\n", "Once: 0 * onceOf(f.Once, i)}\n"},
		}},
		{name: "receipt: a cancelled part is none", pkg: members, test: "^TestReceiptsOfSeveralOwners$", edits: []edit{
			{"internal/cluster/route/refunds.go", "	if f.Charged &^= undo; r.call.result.by",
				"	if f.Charged &^= 0 * undo; r.call.result.by"},
		}},
		{name: "receipt: of a limit that was left", pkg: tables, test: "^TestReceiptsOfLimitsThatChangeBack$", edits: []edit{
			{"limiter/table/void.go", "max(h.before, at.left, at.began)", "max(h.before, 0*at.left, at.began)"},
		}},
		{name: "receipt: from before a limit began", pkg: suite,
			test:  "^TestTableConforms$/^Transcripts$/^holds_rules_change$",
			edits: []edit{{"limiter/table/void.go", "at.left, at.began)", "at.left, 0*at.began)"}}},
		{name: "receipt: of the former limit, from later", pkg: tables,
			test: "^TestAReceiptOfTheFormerLimitFromLaterIsVoid$", edits: []edit{
				{"limiter/table/void.go", "next.began = now; latest > now {", "next.began = now; latest < now {"},
			}},
		{name: "receipt: of the former limit, in a later partition", pkg: tables,
			test: "^TestAReceiptOfTheFormerLimitOfALaterPartitionIsVoid$", edits: []edit{
				{"limiter/table/void.go", "|| of < h.at[key].began", "|| of < 0*h.at[key].began"},
			}},
		{name: "receipt: of no other partition", pkg: tables,
			test: "^TestAReceiptOfTheFormerLimitOfALaterPartitionIsVoid$", edits: []edit{
				{"limiter/table/void.go", "		is.part = int(part) + 1\n", "		is.part = 0 * int(part)\n"},
			}},
		{name: "redis: what is held has marks of its own", pkg: "./redisstore", test: "^TestManyChangesLeaveWhatIsHeld$",
			edits: []edit{
				{"redisstore/lua/adopt.lua", "parts[2], 1024, open)", "parts[2], 1, open)"},
			}},
		{name: "an attribute that a settlement names is not missing", pkg: suite,
			test: "^TestTranscriptsAreRight$/^holds_actual$", edits: []edit{
				{"rules/cost.go", "		r = limiter.WithActual(r)\n", ""},
			}},
		{name: "receipt: of a limit that others left for it", pkg: tables, test: "^TestReceiptsOfOtherLimitsStay$",
			edits: []edit{
				{"limiter/table/adopt.go", "left.note(old, l, rule,", "left.note(l, old, rule,"},
			}},
		{name: "receipt: of limits that count alike", pkg: tables, test: "^TestReceiptsOfLimitsThatChangeBack$",
			edits: []edit{
				{"limiter/identity.go", "	p := &l.P\n	switch p.Algorithm {\n	case TokenBucket,",
					"	p := &l.P\n	switch p.Algorithm {\n	case FixedWindow, SlidingCounter, SlidingLog, SlidingWindow, TokenBucket,"},
			}},
		{name: "receipt: a limit of requests voids none of rules", pkg: tables, test: "^TestLimitsOfOneKeyThatChange$",
			edits: []edit{
				{"limiter/table/void.go", "	if originOf(rule) == ofRequest || ", "	if "},
			}},
		{name: "receipt: a decider takes its own charges back", pkg: tables, test: "^TestReceiptsOfOtherLimitsStay$",
			edits: []edit{
				{"limiter/table/keys.go", "	return t.takeBack(now, c, r, true, partition)\n",
					"	return t.takeBack(now, c, r, false, partition)\n"},
			}},
		{name: "receipt: of a limit that was left, in Redis", pkg: redis, test: "^TestReceiptsOfLimitsThatChangeBack$",
			edits: []edit{
				{"redisstore/lua/refund.lua", "head[4] == 0 and (chosen or left(i))", "false"},
			}},
		{name: "receipt: of limits that count alike, in Redis", pkg: redis, test: "^TestReceiptsOfLimitsThatChangeBack$",
			edits: []edit{
				{"redisstore/lua/holds.lua", "  if f ~= 5 and f ~= 6 and (f ~= 3 or p[5] ~= 2) then\n", "  if false then\n"},
			}},
	}
}

package main

// ofHolds returns those of reservations in a cluster.
func ofHolds() []mutation {
	const cluster, table, sim = "./internal/cluster", "./limiter/table", "./chaos/sim"
	return []mutation{
		{name: "a check that is given up is not sent", pkg: "./client", test: "^TestACheckThatIsGivenUpIsNotSent$",
			edits: []edit{
				{"client/behind.go", "		at = slices.Index(b.node.queue, b)\n", ""},
			}},
		{name: "a cancellation goes behind its check", pkg: "./client", test: "^TestACancellationGoesBehindItsCheck$",
			edits: []edit{
				{"client/behind.go", "		if b == nil {\n", "		if true {\n"},
			}},
		{name: "hanging up leaves no reservation", pkg: "./internal/middle", test: "^TestHangingUpLeavesNoReservation$",
			edits: []edit{
				{"internal/middle/cancels.go", "	if !c.done(within, q) {\n", "	if !c.done(within, q) && false {\n"},
			}},
		{name: "a settlement waits for the heir", pkg: sim, test: "^TestASettlementOutlivesItsOwner$", edits: []edit{
			{"internal/cluster/amend.go", "	return d.confirm(t, q, parts, answer), nil\n", "	return route.Answered, nil\n"},
		}},
		{name: "an amendment that changes nothing waits for the heir", pkg: sim,
			test: "^TestACutOffOwnerSaysNothingOfReservations$", edits: []edit{
				{
					"internal/cluster/amend.go", "	return d.confirm(t, q, parts, answer), nil\n",
					"	if !changed {\n		return route.Answered, nil\n	}\n	return d.confirm(t, q, parts, answer), nil\n",
				},
			}},
		{name: "a late settlement of a fenced owner is taken back", pkg: sim, test: "^TestAPausedOwnerSettles$",
			edits: []edit{
				{"internal/cluster/replica/withheld.go",
					"		store.UndoSettled(int(o.id), t.At, w.Charge, arith.Fields(&w.Receipt).Time)\n", ""},
			}},
		{name: "an extension of a fenced owner is taken back", pkg: sim, test: "^TestAPausedOwnerSettles$", edits: []edit{
			{"internal/cluster/replica/withheld.go", "		store.TakeBack(t.At, w.Charge, *w.Extension)\n", ""},
		}},
		{name: "a late settlement is not repeated while it may be taken back", pkg: cluster,
			test: "^TestALateSettlementIsTakenBackAtItsDeadline$", edits: []edit{
				{"internal/cluster/replica/prepared.go", "w.Amends && !w.Late", "w.Amends"},
			}},
		{name: "what cost nothing is not settled", pkg: "./limiter/limitertest",
			test: "^TestTableConforms$/^Transcripts$/^holds_costs$", edits: []edit{
				{"limiter/table/amend.go", "held == 0 || shape.Whole(inForce)", "held == 0"},
			}},
		{name: "nor by a repetition", pkg: "./limiter/limitertest", test: "^TestTableConforms$/^Transcripts$/^holds_costs$",
			edits: []edit{
				{"limiter/table/amend.go", "held == 0 || shape.Whole(inForce)", "shape.Whole(inForce)"},
			}},
		{name: "nor at another owner", pkg: sim, test: "^TestConformance$", edits: []edit{
			{"internal/cluster/route/amend.go", "!how.Named && (!held || shape.Whole(inForce))", "held && false"},
		}},
		{name: "redis: what cost nothing is not settled", pkg: "./redisstore",
			test: "^TestRedisConforms$/^Transcripts$/^holds_costs$", edits: []edit{
				{"redisstore/lua/amend.lua", "(not estimate or shape > 0 and inForce == shape % UNLIKE)", "false"},
			}},
		{name: "redis: nor behind a rule that is not compared", pkg: "./redisstore",
			test: "^TestRedisConforms$/^Transcripts$/^holds_costs$", edits: []edit{
				{"redisstore/lua/amend.lua", "if ignore == 0 and known > 0", "if head[3 + 2 * ids[1].first] ~= 0 and known > 0"},
			}},
		{name: "redis: what was used of an attribute is charged where it cost nothing", pkg: "./redisstore",
			test: "^TestRedisConforms$/^Transcripts$/^holds_costs$", edits: []edit{
				{"redisstore/hold.go", "		unknown = '2'", "		unknown = '0'"},
			}},
		{name: "redis cluster: nor in another slot", pkg: "./redisstore", test: "^TestRedisClusterConforms$", edits: []edit{
			{"redisstore/hold.go", "a.IgnoreUnknown || m.whole ||", "a.IgnoreUnknown ||"},
		}},
		{name: "what the other has used beyond an estimate is charged", pkg: sim, test: "^TestAPausedOwnerSettles$",
			edits: []edit{
				{"limiter/table/moveholds.go", "				h.overdraw(now, actual)\n", ""},
			}},
		{name: "what the other has settled is settled before the counters are merged", pkg: table,
			test: "^TestWhatTheOtherHasSettledIsCountedOnce$", edits: []edit{
				{"limiter/table/import.go", "		p.settleMerged(now) //", "		defer p.settleMerged(now) //"},
			}},
		{name: "ids of a push go first", pkg: "./internal/cluster/replica", test: "^TestIDsOfAPushGoFirst$", edits: []edit{
			{"internal/cluster/replica/copy.go", "		if b.Kind == peer.Push && e.Limit.",
				"		if b.Kind == peer.Snapshot && e.Limit."},
		}},
		{name: "only a settlement's own late charge is taken back", pkg: table, test: "^TestUndoSettled$", edits: []edit{
			{"limiter/table/settled.go",
				"is := e.charged(at, k) && arith.IDParts(e.state()) == arith.SettledID",
				"is := e.cost() > 0"},
		}},
		{name: "one number settles one cost", pkg: "./limiter/limitertest", test: "^TestTranscriptsAreRight$", edits: []edit{
			{"limiter/arith/amend.go", "	case e.other != 0:\n", "	case false:\n"},
		}},
		{name: "redis: one number settles one cost", pkg: "./redisstore", test: "^TestRedisConforms$", edits: []edit{
			{"redisstore/lua/amend.lua", "compared > 0 and n ~= rule and", "compared < 0 and n ~= rule and"},
		}},
		{name: "redis: costs are compared by ratios that are not rounded", pkg: "./redisstore",
			test: "^TestWhatDiffersIsNamedAlike$", edits: []edit{
				{"redisstore/lua/amend.lua", "  return a / of == c / by and b / of == d / by\n", "  return a * d == b * c\n"},
			}},
		{name: "redis: slots whose draws add up are named as in memory", pkg: "./redisstore",
			test: "^TestWhatDiffersIsNamedAlike$", edits: []edit{
				{"redisstore/hold.go", "	case differ && (dry || differs.State == limiter.AmendDiffers):\n",
					"	case differ && dry && !shape.Unlike():\n"},
			}},
		{name: "redis: slots are compared before they settle", pkg: "./redisstore", test: "^TestCostsOfSeveralSlots$",
			edits: []edit{
				{"redisstore/hold.go", "differ && (dry ||", "differ && (false ||"},
			}},
		{name: "owners are compared before they settle", pkg: cluster, test: "^TestSettlementsOfSeveralRulesAskForEstimates$",
			edits: []edit{
				{"internal/cluster/route/amend.go", "	case differ && !how.Named", "	case differ && how.Named && !how.Named"},
			}},
		{name: "draws of different costs are not one number", pkg: "./limiter/limitertest",
			test: "^TestNodeConforms$/^Transcripts$/^holds_costs_quota$", edits: []edit{
				{"limiter/arith/amend.go", "e.first != 0 && s.Unlike():\n", "false:\n"},
			}},
		{name: "redis: draws of different costs are not one number", pkg: "./redisstore", test: "^TestRedisConforms$",
			edits: []edit{
				{"redisstore/lua/amend.lua", "compared > 0 and shape >= UNLIKE", "compared < 0 and shape >= UNLIKE"},
			}},
		{name: "draws of different costs at several owners are not one number", pkg: "./cluster",
			test: "^TestWhatAReservationLacks$", edits: []edit{
				{"internal/cluster/route/amend.go", "e.Differ(shape)", "e.Differ(0 * shape)"},
				{"internal/cluster/mesh/requests.go", "Shape: uint8(c.Shape)", "Shape: uint8(c.Shape) & 31"},
			}},
		{name: "a reservation is settled by what named its counters", pkg: "./limiter/limitertest",
			test: "^TestNodeConforms$/^Transcripts$/^holds_lacking$", edits: []edit{
				{"limiter/table/amend.go", "	case a.Lacks && inForce < shape.Keys():\n", "	case false:\n"},
			}},
		{name: "a reservation of several owners is settled by what named its counters", pkg: "./cluster",
			test: "^TestWhatAReservationLacks$", edits: []edit{
				{"internal/cluster/route/amend.go", "	case lacks && inForce < shape.Keys():\n", "	case false:\n"},
			}},
		{name: "redis: a reservation is settled by what named its counters", pkg: "./redisstore",
			test: "^TestRedisConforms$", edits: []edit{
				{"redisstore/hold.go", "	case dry && a.Lacks && inForce < shape.Keys():\n", "	case false:\n"},
			}},
		{name: "redis: a reservation is extended by what named its counters", pkg: "./redisstore",
			test: "^TestRedisConforms$", edits: []edit{
				{"redisstore/hold.go", "	if lacks && dry && inForce < shape.Keys() {\n", "	if false {\n"},
			}},
		{name: "owners without an answer settle nothing", pkg: cluster,
			test: "^TestSettlementsOfSeveralRulesAskForEstimates$", edits: []edit{
				{"internal/cluster/route/amend.go", "	case unanswered:\n", "	case false:\n"},
			}},
		{name: "an owner tells an estimate", pkg: "./cluster", test: "^TestOneNumberSettlesOneCost$", edits: []edit{
			{"internal/cluster/amend.go", "out, _, q.Outcome.Shape = d.table.StandsFor(t.At, charge)",
				"out.State = limiter.AmendUnknown"},
		}},
		{name: "owners are asked for what an id stands for before they settle", pkg: "./cluster",
			test: "^TestAnIDThatStandsForAnotherNumberChargesNoOwner$", edits: []edit{
				{"internal/cluster/route/amend.go", "	case final != nil && !how.Extend:\n", "	case false:\n"},
			}},
		{name: "a rule in shadow that was not charged is not settled", pkg: "./limiter/limitertest", test: "^TestTranscripts",
			edits: []edit{
				{"limiter/table/amend.go", "k.Rule.Shadow && !has.charged {", "false {"},
			}},
		{name: "an owner charges no rule in shadow that peeked", pkg: "./cluster",
			test: "^TestARuleInShadowThatCameLaterIsNotSettled$", edits: []edit{
				{"internal/cluster/route/amend.go", "uncharged := r.charge.Key(0).Rule.Shadow || ", "uncharged := "},
			}},
		{name: "one number settles one cost beside a quota", pkg: "./cluster",
			test: "^TestOneNumberSettlesOneCostBesideAQuota$", edits: []edit{
				{"limiter/arith/amend.go", "!proportional(estimate, e.first, k.Cost, e.cost)",
					"k.Cost == e.cost && estimate != e.first"},
			}},
		{name: "a repetition needs no id of keys that cost nothing", pkg: "./cluster",
			test: "^TestRepetitionBesideKeysWithoutIDs$", edits: []edit{
				{"internal/cluster/route/repeats.go", "return s.charge.Key(i).Cost > 0 }", "return true }"},
			}},
		{name: "an id that one key knows opens no other", pkg: "./cluster", test: "^TestAnIDOfOneKeyAndACostAboveItsLimit$",
			edits: []edit{
				{"internal/cluster/route/repeats.go", "	return s.impossible() && !s.repeated() &&", "	return false &&"},
				{"internal/cluster/route/conclude.go", "refused = s.refuse()", "refused = false"},
			}},
		{name: "an id that one key knows forbids no other", pkg: "./chaos/sim", test: "^TestWhatIsKnownForbidsNothing$",
			edits: []edit{
				{"internal/cluster/route/repeats.go", "	return s.impossible() && !s.repeated() &&", "	return false &&"},
			}},
		{name: "a check of several owners with a spent id is no repetition", pkg: "./cluster",
			test: "^TestASpentIDWithACostThatIsNeverAdmitted$", edits: []edit{
				{"internal/cluster/decide.go", "	if final && k.Peek && ", "	if final && false && "},
			}},
		{name: "a settlement is copied", pkg: sim, test: "^TestASettlementOutlivesItsOwner$", edits: []edit{
			{"internal/cluster/amend.go", "		d.amended(t, q.Charge)\n", ""},
		}},
		{name: "a cancelled id is copied", pkg: sim, test: "^TestASettlementOutlivesItsOwner$", edits: []edit{
			{"internal/cluster/amend.go", "		key.Cost = max(1, key.Cost) // a key without a cost would have no id\n", ""},
		}},
		{name: "a settlement waits for its check", pkg: cluster, test: "^TestASettlementWaitsForItsCheck$", edits: []edit{
			{"internal/cluster/amend.go", "	if at := d.inDoubt(q.Charge); at != nil {\n",
				"	if at := d.inDoubt(q.Charge); at != nil && t.Now < 0 {\n"},
		}},
		{name: "a late cancel of a reservation that is over takes nothing back", pkg: cluster,
			test: "^TestALateCancelOfAHold$", edits: []edit{
				{"internal/cluster/prepared.go", "		case held:\n", "		case held && !held:\n"},
			}},
		{name: "an extension that another owner denies is taken back", pkg: sim, test: "^TestHoldsOverSeveralOwners$",
			edits: []edit{
				{"internal/cluster/route/amend.go", "			s.takeBack(t, r)\n", "			_ = r\n"},
			}},
		{name: "redis: an extension is only taken back if none came after it", pkg: "./redisstore",
			test: "^TestAnExtensionThatIsDeniedLateIsTakenBack$", edits: []edit{
				{"redisstore/lua/amend.lua", " and id.hold.over == head[3]", ""},
			}},
		{name: "an extension is not taken back of a hold that ends otherwise", pkg: table,
			test: "^TestTakeBackOfAHoldThatEndsOtherwise$", edits: []edit{
				{"limiter/table/extension.go", "	if (*e)[e.last(c)].told.End != ends {\n", "	if false {\n"},
			}},
		{name: "an extension is only taken back if none came after it", pkg: table, test: "^TestTakeBack$", edits: []edit{
			{"limiter/table/extension.go", "		return x.Was, x.WasEnd, ends == x.End\n", "		return x.Was, x.WasEnd, true\n"},
			{"limiter/table/extension.go", "	if (*e)[e.last(c)].told.End != ends {\n", "	if (*e)[e.last(c)].told.End < 0 {\n"},
		}},
		{name: "a settlement is charged only with room for its id", pkg: table, test: "^TestSettleWithoutRoomForTheID$",
			edits: []edit{
				{"limiter/table/amend.go", "	case !room:\n		return out, noRoom\n",
					"	case !room && t == nil:\n		return out, noRoom\n"},
			}},
		{name: "ids of one key leave room for others", pkg: table, test: "^TestIDsOfAKeyAreBounded$", edits: []edit{
			{"limiter/table/holds.go", "	if n > 0 && t.crowdedByIDs(c) {\n", "	if n < 0 && t.crowdedByIDs(c) {\n"},
		}},
		{name: "a spent id holds no slot", pkg: table, test: "^TestSpentIDs$", edits: []edit{
			{"limiter/table/ids.go", "	case known != 0 && t.spent(c, known):\n",
				"	case known > charged && t.spent(c, known):\n"},
		}},
		{name: "a refund forgets no id that was settled", pkg: table, test: "^TestARefundLeavesASettledID$", edits: []edit{
			{"limiter/table/amend.go", "t.ring(p).at(pos), arith.SettledID)\n", "t.ring(p).at(pos), 0)\n"},
		}},
		{name: "a policy reserves nothing of a rate", pkg: "./internal/cluster/route", test: "^TestAPolicyHoldsSlots$",
			edits: []edit{
				{"internal/cluster/route/policy.go", "			share.ID.Hold = 0 //", "			share.ID.Hold += 0 //"},
			}},
		{name: "the other's reservation gives nothing back", pkg: table, test: "^TestMergedHoldsGiveNothingBack$",
			edits: []edit{
				{"limiter/table/import.go", "p.ledger(&in).strange(now, by)", "nil"},
			}},
		{name: "of a reservation that both know the other's is left out", pkg: table,
			test: "^TestMergedHoldsAreWhatTheyAreHere$", edits: []edit{
				{"limiter/table/moveholds.go", "		if known[h.ID] {\n			return h, false\n",
					"		if known[h.ID] {\n			return h, true\n"},
			}},
		{name: "the other's reservation gives nothing back when it comes again", pkg: table,
			test: "^TestMergedAgainHoldsGiveNothingBack$", edits: []edit{
				{"limiter/table/moveholds.go", "known[h.ID], h.End = true, max(h.End, end)", "known[h.ID] = true"},
				{"limiter/table/moveholds.go", "		if known[h.ID] {\n			return h, false\n",
					"		if known[h.ID] {\n			return h, true\n"},
			}},
		{name: "the id of a merged reservation stands for what is charged here", pkg: table,
			test: "^TestAMergedIDStandsForWhatTheReservationHasHere$", edits: []edit{
				{"limiter/table/moveholds.go", "			arith.SetIDCost(of, estimate)\n", "			_ = estimate\n"},
			}},
		{name: "what the other has settled is settled", pkg: table, test: "^TestMergedHoldsStaySettled$", edits: []edit{
			{"limiter/table/import.go", "		p.settleMerged(now) //", "		//"},
		}},
		{name: "a settled id wins a merge", pkg: table, test: "^TestMergedHoldsStaySettled$", edits: []edit{
			{"limiter/arith/id.go", "	case settled && !from.Settled():\n",
				"	case settled && !from.Settled():\n\t\t*s = *from\n"},
		}},
		{name: "the units of both tables' reservations are held", pkg: table, test: "^TestMergedSlotsAreThoseOfAllHolds$",
			edits: []edit{
				{"limiter/table/import.go", "		p.countHeld(entries)\n", ""},
			}},
		{name: "the other's reservations hold units", pkg: table, test: "^TestMergedSlotsAreThoseOfAllHolds$", edits: []edit{
			{"limiter/table/moveholds.go", "		case !h.Spared() && b.concurrency(&h) == nil:\n", "		default:\n"},
		}},
		{name: "a policy holds units", pkg: "./internal/cluster/route", test: "^TestAPolicyHoldsSlots$", edits: []edit{
			{"internal/cluster/route/policy.go", "		if !concurrent(&share) {\n", "		{\n"},
		}},
		{name: "what a policy charged to a rate stays", pkg: "./internal/cluster/route", test: "^TestAPolicyHoldsSlots$",
			edits: []edit{
				{"internal/cluster/route/policy.go", "		share.ID.Keep = true\n", ""},
			}},
		{name: "a denial for want of units is not cached", pkg: "./internal/cluster/route",
			test: "^TestDenialsThatAreNotRemembered$", edits: []edit{
				{"internal/cluster/route/denials.go", " || !l.Allowed && l.Limit.Algorithm() == limiter.Concurrency", ""},
			}},
		{name: "a member refuses a check that holds for good", pkg: "./cluster", test: "^TestSlotsAcrossMembers$",
			edits: []edit{
				{"cluster/decider.go", "	if err := engine.Unheld(match, c); err != nil {\n",
					"	if err := engine.Unheld(match, c); err != nil && match.Outcome != 0 {\n"},
			}},
		{name: "an optional id holds nothing by the rule", pkg: "./cluster", test: "^TestSlotsAcrossMembers$", edits: []edit{
			{"rules/ids.go", " && !r.IDOptional {", " {"},
		}},
		{name: "a member tells that an id is spent", pkg: "./cluster", test: "^TestSlotsAcrossMembers$", edits: []edit{
			{"internal/cluster/spent.go", "			l.Allowed, l.Never, l.RetryAfter = false, true, 0\n",
				"			l.Allowed, l.RetryAfter = false, 0\n"},
		}},
		{name: "an id ends with its reservation", pkg: table, test: "^TestMovedHoldsEndWithTheirIDs$", edits: []edit{
			{"limiter/table/holds.go", "		b.endID(&h, now)\n", ""},
		}},
		{name: "an id moves with its reservation", pkg: table, test: "^TestMovedHoldsEndWithTheirIDs$", edits: []edit{
			{"limiter/table/import.go", "				b.endID(&h, now)\n", "				_ = h\n"},
		}},
		{name: "an id ends with its reservation beside others", pkg: table, test: "^TestAnIDEndsWithItsReplacedHold$",
			edits: []edit{
				{"limiter/table/import.go", "	p.ledger(have).replaced(p.ledger(&in), now)\n", ""},
			}},
		{name: "an id ends with the last reservation", pkg: table, test: "^TestAnIDEndsWithItsReplacedHold$", edits: []edit{
			{"limiter/table/import.go", "	p.ledger(p.slots.at(i)).replaced(ledger{p: p}, now)\n", ""},
		}},
		{name: "what is over ends before what comes", pkg: table, test: "^TestAnExtensionThatComesLate$", edits: []edit{
			{"limiter/table/move.go", "	p.arriveAll(now) // a hold that is over ends its id, and not the one that comes\n", ""},
		}},
		{name: "an id that was used since stays", pkg: table, test: "^TestAnIDEndsWithItsReplacedHold$", edits: []edit{
			{"limiter/table/moveholds.go", " && id.Time == h.End", ""},
		}},
		{name: "an id stays with its reservation", pkg: table, test: "^TestAnIDStaysWithItsReplacedHold$", edits: []edit{
			{"limiter/table/moveholds.go", " && !next.has(h.ID)", ""},
		}},
		{name: "a reservation whose id is over is settled as one that is over", pkg: table, test: "^TestAHoldEndsWithItsID$",
			edits: []edit{
				{"limiter/table/amend.go", "			changed = p.endStray(k, c.ID.ID, now) || changed\n", ""},
			}},
		{name: "a reservation whose id is over is made anew", pkg: table, test: "^TestAHoldEndsWithItsID$", edits: []edit{
			{"limiter/table/ids.go", "		t.parts[PartitionOf(c.Key(i))].endStray(c.Key(i), id.ID, now)\n", ""},
		}},
		{name: "a reservation moves with its window", pkg: table, test: "^TestMovedHoldsFindTheirWindow$", edits: []edit{
			{"limiter/table/move.go", "			p.ledger(s).steady(e.Words)\n", ""},
		}},
	}
}

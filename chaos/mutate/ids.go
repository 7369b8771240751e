package main

// ofIDs returns those of checks that count once in a cluster.
func ofIDs() []mutation {
	const cluster, replica, suite = "./internal/cluster", "./internal/cluster/replica", "./limiter/limitertest"
	return []mutation{
		{name: "a check without an id is not repeated", pkg: "./client", test: "^TestNotRepeatedWithoutID$", edits: []edit{
			{"client/tries.go", " && !c.forgets(r, b.kind.peek)", ""},
		}},
		{name: "a call without an id is not repeated", pkg: "./client", test: "^TestNotRepeatedWithoutID$", edits: []edit{
			{"client/alone.go", " || once && tries.unknown", ""},
		}},
		{name: "what is lacking is told before costs in Redis, too", pkg: "./redisstore",
			test: "^TestWhatIsLackingIsToldBeforeCosts$", edits: []edit{
				{"redisstore/hold.go", "inForce < shape.Keys():\n		return limiter.Amended{State: limiter.AmendLacks}, nil //",
					"differs.State == 0:\n		return limiter.Amended{State: limiter.AmendLacks}, nil //"},
			}},
		{name: "ids of a batch are imported", pkg: "./internal/cluster/replica", test: ".", edits: []edit{
			{"internal/cluster/replica/copy.go", "	if len(m.IDs) > 0 {\n		if err := p.node.Store.ImportIDs",
				"	if len(m.IDs) > 1<<30 {\n		if err := p.node.Store.ImportIDs"},
		}},
		{name: "ids of a batch are saved", pkg: "./internal/cluster/replica", test: "^TestWhatIsSaved$", edits: []edit{
			{"internal/cluster/replica/copy.go", "			p.saving.changed(m.IDs[i].Hi)\n", "			_ = i\n"},
		}},
		{name: "an earlier member gets ids as keys", pkg: cluster, test: "^TestASettlementWaitsForTheHeir$", edits: []edit{
			{"internal/cluster/mesh/writer.go", "	if !apart {\n", "	if false {\n"},
		}},
		{name: "ids that are sent are of the partition", pkg: "./limiter/table", test: "^TestIDsThatAreNotImported$",
			edits: []edit{
				{"limiter/table/importids.go", "int(at) != number || !arith", "!arith"},
			}},
		{name: "pushed ids are sent once", pkg: "./internal/cluster/replica", test: "^TestPushedIDsAreSentOnce$",
			edits: []edit{
				{"internal/cluster/replica/handoff.go", "			p.own.ids.some = true // of those", "			// of those"},
			}},
		{name: "the id of a denied check gives its room back", pkg: "./limiter/table", test: "^TestADeniedIDTakesNoRoom$",
			edits: []edit{
				{"limiter/table/newid.go", "	if !d.Allowed {\n		t.room.unreserveOnce(r)\n", "	if !d.Allowed {\n"},
			}},
		{name: "units: an id keeps all bits of its cost", pkg: suite, test: "^TestTranscriptsAreRight$/^wide_units$",
			edits: []edit{
				{"limiter/arith/counts.go", "B: uint32(c.B) | uint32(c.A>>32)<<idBits,", "B: uint32(c.B),"},
			}},
		{name: "units: a hold keeps all bits of its cost", pkg: suite, test: "^TestTranscriptsAreRight$/^wide_units$",
			edits: []edit{
				{"limiter/arith/hold.go", "h.Cost&math.MaxUint32 | h.Cost>>32<<holdCost | ", "h.Cost&math.MaxUint32 | "},
			}},
		{name: "units: the rest of a charge of a bucket may exceed 64 bits", pkg: suite,
			test: "^TestTranscriptsAreRight$/^wide_units$", edits: []edit{
				{"limiter/arith/bucket.go", "	if more += carry; more != 0 {\n", "	if more += carry; more != more {\n"},
			}},
		{name: "units: sub-windows of a wide limit have a word each", pkg: suite,
			test: "^TestTranscriptsAreRight$/^wide_units$", edits: []edit{
				{"limiter/arith/subwindow.go", "	if l.P.Wide {\n		return words[1+i]\n	}\n",
					"	if l.P.Wide {\n		return words[1+i] & math.MaxUint32\n	}\n"},
			}},
		{name: "units: frames have no cost above 2^53-1", pkg: "./internal/peerlink", test: "^TestUnitsAreBounded$",
			edits: []edit{
				{"internal/peerlink/columns.go", "		if *c.at(&items[i]) > maxUnits {\n",
					"		if *c.at(&items[i]) > maxUnits*1000 {\n"},
			}},
		{name: "the bench knows that an heir's answer may be two charges", pkg: "./cmd/weir/internal/load",
			test: "^TestPlantedInManyKeys$", edits: []edit{
				{"cmd/weir/internal/load/ledger.go", "		l.twice[n].Add(1)\n		l.heir.Add(1)\n", "		l.heir.Add(1)\n"},
			}},
		{name: "who takes counters without gossip takes ids", pkg: "./internal/cluster/members",
			test: "^TestLeaveKnowsWhoRemembersIDs$", edits: []edit{
				{"internal/cluster/members/roll.go", ", Wire: c.Registry().Wire(k.Name, self.Wire)}", "}"},
			}},
		{name: "a denial of the other keys says which", pkg: "./internal/cluster", test: "^TestADenialOfTheOtherKeys$",
			edits: []edit{
				{"internal/cluster/decide.go", "	q.Reply.Known = leftOut(q.Charge, answer, idle)\n", ""},
			}},
		{name: "a denial of the other keys is taken", pkg: "./internal/cluster", test: "^TestADenialOfTheOtherKeysIsTaken$",
			edits: []edit{
				{"internal/cluster/route/reply.go", "		if r.Known&(1<<i) == 0 {\n", "		if r.Known&(0<<i) == 0 {\n"},
			}},
		{name: "the judge of ids takes no other key's instant", pkg: "./chaos/sim", test: "^TestWhatIsChargedAgain$",
			edits: []edit{
				{"chaos/sim/once.go", " || !d.Repeated && !charges {", " {"},
			}},
		{name: "the judge of ids tells keys by their limits", pkg: "./chaos/sim", test: "^TestWhatIsChargedAgain$",
			edits: []edit{
				{"chaos/sim/once.go", "!d.Repeated && charged(d, i)", "!d.Repeated && arith.Fields(&d.Receipt).Has(i)"},
			}},
		{name: "the judge of reservations excuses late settlements only", pkg: "./chaos/sim",
			test: "^TestALateSettlementIsChargedBeyondTheLimit$", edits: []edit{
				{"chaos/sim/holder.go", "	if b.ended(now) {\n", "	if now >= 0 {\n"},
			}},
		{name: "the judge of reservations lets late settlements be lost", pkg: "./chaos/sim",
			test: "^TestALateSettlementIsChargedBeyondTheLimit$", edits: []edit{
				{"chaos/sim/holder.go", "		if a.State == limiter.AmendRepeated {\n",
					"		if a.State == limiter.AmendRepeated && now < 0 {\n"},
			}},
		{name: "the judge of policies expects an answer to say that all is known", pkg: "./chaos/sim",
			test: "^TestAPolicyIsJudgedOncePerID$", edits: []edit{
				{"chaos/sim/once.go", "		clear(known) // the answer says it\n", ""},
			}},
		{name: "the judge of policies counts a key once for an id", pkg: "./chaos/sim",
			test: "^TestAPolicyIsJudgedOncePerID$", edits: []edit{
				{"chaos/sim/client.go", "d.Repeated || known[i])", "d.Repeated || known[i] && d.Repeated)"},
			}},
		{name: "a reset that is known in part is executed for the rest", pkg: "./limiter/table",
			test: "^TestAResetOfKeysThatAreKnownInPart$", edits: []edit{
				{"limiter/table/settled.go", "			if known&(1<<i) == 0 {\n", "			if known == 0 {\n"},
			}},
		{name: "the id of a reset that is lost is forgotten", pkg: "./internal/cluster",
			test: "^TestAResetThatIsLostIsNotKnown$", edits: []edit{
				{"internal/cluster/replica/withheld.go",
					"				o.node.Store.ForgetID(t.At, w.Charge, i, arith.Fields(&w.Receipt).Time)\n", ""},
			}},
		{name: "the id of a reset names its instant", pkg: "./internal/cluster", test: "^TestAResetThatIsLostIsNotKnown$",
			edits: []edit{
				{"internal/cluster/decide.go", "	answer.Receipt = arith.NewReceipt(arith.ReceiptFields{Time: t.At})\n", ""},
			}},
		{name: "an id is copied with its charge", pkg: "./chaos/sim", test: "^TestIDsCountOnce$", edits: []edit{
			{"internal/cluster/replica/owner.go", "			o.ids.open++\n", ""},
			{"internal/cluster/replica/owner.go", "		if o.ids.some = true; came", "		if came"},
		}},
		{name: "an id that changes later is copied", pkg: cluster, test: "^TestACancelIsCopiedWithItsID$", edits: []edit{
			{"internal/cluster/replica/owner.go", "			o.mark(table.IDOf(k, id.ID).Hi)\n",
				"			_ = table.IDOf(k, id.ID)\n"},
		}},
		{name: "a charge and its id are in one batch", pkg: cluster, test: "^TestAnIDIsCopiedWithItsCharge$", edits: []edit{
			{"internal/cluster/replica/newids.go", "idCut{o.held.seq, ", "idCut{o.held.seq - 1, "},
		}},
		{name: "a copy gets the ids since the batch that it has", pkg: replica, test: "^TestNewIDsOfBatches$", edits: []edit{
			{"internal/cluster/replica/newids.go", "		if c.seq <= seq {\n", "		if c.seq < seq {\n"},
		}},
		{name: "the id of a reset is copied once", pkg: cluster, test: "^TestAResetIsKnownByItsID$", edits: []edit{
			{"internal/cluster/replica/newids.go", "		} else if c.n > 0 {\n", "		} else {\n"},
		}},
		{name: "ids that every copy has are not sent again", pkg: replica, test: "^TestNewIDsOfBatches$", edits: []edit{
			{"internal/cluster/replica/newids.go", "		d.base = d.cuts[i].came\n", ""},
		}},
		{name: "new ids wait for the heir like other changes", pkg: replica, test: "^TestNewIDsOfBatches$", edits: []edit{
			{"internal/cluster/replica/dirty.go", "len(o.dirty.list)+o.ids.charges() >= maxChanged",
				"len(o.dirty.list) >= maxChanged"},
		}},
		{name: "a cancel names the attempt that it takes back", pkg: cluster, test: "^TestAnAttemptWaitsForAReservation$",
			edits: []edit{
				{"internal/cluster/replica/prepared.go", " && u.from == from && u.time == time && u.cost == k.Cost\n",
					" && u.cost == k.Cost\n"},
			}},
		{name: "a repetition reserves nothing", pkg: cluster, test: "^TestARepetitionReservesNothing$", edits: []edit{
			{"internal/cluster/decide.go", "	if answer.Repeated {\n", "	if answer.Repeated && !q.Settles {\n"},
		}},
		{name: "a repetition has no receipt of what was handed over", pkg: cluster,
			test: "^TestARepetitionHasNoReceiptOfAnotherOwners$", edits: []edit{
				{"internal/cluster/replica/owner.go", "{ return at > o.took }", "{ return at >= o.took }"},
			}},
		{name: "a repetition has no receipt of what was merged", pkg: cluster,
			test: "^TestARepetitionHasNoReceiptOfAnotherOwners$", edits: []edit{
				{"internal/cluster/replica/handoff.go", "	p.own.took = t.At\n", ""},
			}},
		{name: "an attempt waits for an earlier one", pkg: cluster, test: "^TestAnAttemptWaits", edits: []edit{
			{"internal/cluster/decide.go", "	if !slices.ContainsFunc(parts, pending) || ",
				"	if t.Now > 0 || !slices.ContainsFunc(parts, pending) || "},
		}},
		{name: "an attempt waits for a reply that another partition withholds", pkg: cluster,
			test: "^TestAnAttemptWaitsForAReplyWithheldElsewhere$", edits: []edit{
				{"internal/cluster/replica/prepared.go", "return revocable(r) && r.Facts()", "return !revocable(r) && r.Facts()"},
			}},
		{name: "an attempt that waited for another partition's reply is decided then", pkg: cluster,
			test: "^TestAnAttemptWaitsForAReplyWithheldElsewhere$", edits: []edit{
				{"internal/cluster/replica/withheld.go", "		if over {\n			wakeAttempts(t, o, r)\n",
					"		if over && !over {\n			wakeAttempts(t, o, r)\n"},
			}},
		{name: "a block by the other keys is copied", pkg: cluster, test: "^TestABlockOfTheOtherKeysIsCopied$", edits: []edit{
			{"internal/cluster/decide.go", "		limits := limitsOf(answer, i)\n", "		limits := len(k.Rule.Limits)\n"},
		}},
		{name: "a cancelled id is forgotten", pkg: cluster, test: "^TestACancelIsCopiedWithItsID$", edits: []edit{
			{"internal/cluster/prepared.go", "			if q.Denied && x.table", "			if q.Denied && !q.Denied && x.table"},
		}},
	}
}

// ofTakeBacks returns those of what waits until its deadline: replies, whose charges are taken back, and requests.
func ofTakeBacks() []mutation {
	const cluster = "./internal/cluster"
	return []mutation{
		{name: "a request that was parked until its deadline is refused", pkg: cluster,
			test: "^TestARequestThatHasWaitedIsRefused$", edits: []edit{
				{"internal/cluster/requests.go", "	case replica.Expire:\n		t.expired(q)\n", ""},
			}},
		{name: "a request that is handled again too late is refused", pkg: cluster,
			test: "^TestARequestThatHasWaitedIsRefused$", edits: []edit{
				{"internal/cluster/requests.go", "		t.expired(q)\n		return\n", "		return\n"},
			}},
		{name: "each partition takes back what another one's reply has charged to its keys", pkg: cluster,
			test: "^TestEachPartitionTakesBackItsOwn$", edits: []edit{
				{"internal/cluster/decide.go", "	return h.await(t, parts)\n", "	return route.Withheld\n"},
			}},
		{name: "a partition takes back only what was charged to its keys", pkg: cluster,
			test: "^TestEachPartitionTakesBackItsOwn$", edits: []edit{
				{"limiter/table/keys.go", "	return t.takeBack(now, c, r, true, partition)\n",
					"	return t.takeBack(now, c, r, true, EveryPartition)\n"},
			}},
		{name: "what a merge may lack is not taken back for another partition", pkg: cluster,
			test: "^TestEachPartitionTakesBackItsOwn$", edits: []edit{
				{"internal/cluster/replica/handoff.go", "	p.own.awaited = nil ", "	_ = p.own.awaited "},
			}},
		{name: "an attempt waits until each partition has taken back its part", pkg: cluster,
			test: "^TestAnAttemptWaitsUntilAllIsTakenBack$", edits: []edit{
				{"internal/cluster/replica/prepared.go", "	return back || !over\n", "	return !back && !over\n"},
			}},
		{name: "what a handover has is not taken back", pkg: "./internal/cluster/replica", test: "^TestTranscripts$",
			edits: []edit{
				{"internal/cluster/replica/withheld.go", "	if o.handover != nil {\n", "	if o.handover != nil && w == nil {\n"},
			}},
	}
}

// ofIDRing returns those of the memory of ids.
func ofIDRing() []mutation {
	const table = "./limiter/table"
	return []mutation{
		{name: "an id that is copied alone is counted", pkg: table, test: "^TestReplacedIDsCount$", edits: []edit{
			{"limiter/table/import.go", "	room.keys.Add(1)\n	p.addID(", "	p.addID("},
		}},
		{name: "ids that are copied alone have the bound of who sends them", pkg: table, test: "^TestReplacedIDsCount$",
			edits: []edit{
				{"limiter/table/import.go", "if g.full() || room.beyondSource(from, 1, 0) ||",
					"if g.full() ||"},
			}},
		{name: "ids that are copied alone have the bound of all", pkg: table, test: "^TestReplacedIDsCount$", edits: []edit{
			{"limiter/table/import.go", " || room.keys.Load() >= replicaFactor*room.maxKeys {", " {"},
		}},
		{name: "an id that stays where it was is said to", pkg: table, test: "^TestACopyGetsTheIDsThatCame$", edits: []edit{
			{"limiter/table/newid.go", "		if !p.renewID(pos, state, now) {\n", "		if p.renewID(pos, state, now); false {\n"},
		}},
		{name: "ids that come are counted", pkg: table, test: "^TestACopyGetsTheIDsThatCame$", edits: []edit{
			{"limiter/table/idring.go", "	g.leave()\n	g.push(place, lo, state)\n	p.came++\n",
				"	g.leave()\n	g.push(place, lo, state)\n"},
		}},
		{name: "no id takes the place of one that is remembered", pkg: table, test: "^TestACopyGetsTheIDsThatCame$",
			edits: []edit{{"limiter/table/idring.go", " || !g.over(now) || ", " || g.n == 0 || "}}},
		{name: "an id in place of another tenant's is counted", pkg: table,
			test: "^TestAnIDInPlaceOfAnotherIsCountedOnce$", edits: []edit{
				{"limiter/table/idring.go", "arith.LabelOf(g.oldest().lo^of) != arith.LabelOf(lo^of)", "of == 0"},
			}},
		{name: "an id in place of another member's is counted", pkg: table,
			test: "^TestEndedIDsOfOthersMakeRoomForOnesOwn$", edits: []edit{
				{"limiter/table/idring.go", "g.from != from || ", ""},
			}},
		{name: "an id that is remembered keeps its place", pkg: table, test: "^TestANewIDTakesAnEndedOnesSlot$",
			edits: []edit{
				{"limiter/table/idring.go", "			return e.state.Time <= now\n", "			return e.state.Time > 0\n"},
			}},
		{name: "an id is found when others have moved", pkg: table, test: "^TestIDRing$", edits: []edit{
			{"limiter/table/idring.go", "		g.n, g.out = kept, 0\n		g.reindex()\n", "		g.n, g.out = kept, 0\n"},
		}},
		{name: "a partition that ids of one key fill is swept now and then", pkg: table,
			test: "^TestAFloodOfIDsIsSweptNowAndThen$", edits: []edit{
				{"limiter/table/sweep.go", "int64(*unswept) < used/crowdPart", "int64(*unswept) < 0"},
			}},
		{name: "counters and ids are exported in one order", pkg: table, test: "^TestCountersAndIDsHaveOneOrder$",
			edits: []edit{
				{"limiter/table/move.go", "len(ids) > 0 && t.ring(p).ring[ids[0]].place < s.place", "len(ids) > 0"},
			}},
		{name: "an id that came from another member is found", pkg: table, test: "^TestCountersAndIDsHaveOneOrder$",
			edits: []edit{
				{"limiter/table/import.go", "	return e.Limit.Algorithm() == arith.Remembered && ",
					"	return e.Limit.Algorithm() == arith.Holds && "},
			}},
	}
}

package main

// ofSeveral returns those of checks over several owners.
func ofSeveral() []mutation {
	return []mutation{
		{name: "a denial waits for the cancel", pkg: "./internal/cluster", test: "^TestADenialWaitsForTheCancel$",
			edits: []edit{
				{"internal/cluster/route/conclude.go", "	awaited := takes && t.Now < s.until\n",
					"	awaited := takes && t.Now >= s.until\n"},
			}},
		{name: "an id is forgotten where nothing was charged", pkg: "./chaos/sim",
			test: "^TestADeniedChecksIDIsForgottenByRulesInShadow$", edits: []edit{
				{"internal/cluster/prepared.go", "charged || ids && k.Cost > 0", "charged"},
			}},
		{name: "no denial by what may be taken back", pkg: "./chaos/sim", test: "^TestReservationsDenyNobodyAtTheSameTime$",
			edits: []edit{
				{"internal/cluster/decide.go", "	case p == nil:\n		if !d.charge", "	case p == nil || t.Now > 0:\n		if !d.charge"},
			}},
		{name: "an owner is told that a reservation stands", pkg: "./internal/cluster",
			test: "^TestAnAdmissionSettlesItsReservations$", edits: []edit{
				{"internal/cluster/route/conclude.go", "	endReservation(t, o)\n}\n",
					"	if undo != 0 {\n		endReservation(t, o)\n	}\n}\n"},
			}},
		{name: "a part waits for a moment only", pkg: "./internal/cluster", test: "^TestAPartWaitsForAMomentOnly$",
			edits: []edit{
				{"internal/cluster/replica/prepared.go", "		at = min(at, t.Now+inDoubtFor)\n",
					"		at += 0 * limiter.Tick(inDoubtFor)\n"},
			}},
		{name: "a contested check is taken back", pkg: "./internal/cluster", test: "^TestAContestedCheckBeginsAnew$",
			edits: []edit{
				{"internal/cluster/route/conclude.go", "		s.settle(t, r, arith.Fields(&r.answer.Receipt).Charged, true)\n",
					"		s.settle(t, r, 0, true)\n"},
			}},
		{name: "a provisional denial begins no block", pkg: "./internal/cluster", test: "^TestAProvisionalDenial$",
			edits: []edit{
				{"internal/cluster/decide.go", "		d.preparations.provisional(t, q, charge, answer)\n",
					"		d.charge(t, false, charge, answer, nil)\n"},
			}},
		{name: "a provisional denial is not remembered", pkg: "./internal/cluster",
			test: "^TestAProvisionalDenialIsNotRemembered$", edits: []edit{
				{"internal/cluster/route/reply.go", "o.task.remember && !r.Provisional {", "o.task.remember {"},
			}},
		{name: "a reservation is taken back once", pkg: "./internal/cluster", test: "^TestADenialWaitsForTheReservation$",
			edits: []edit{
				{"internal/cluster/replica/prepared.go", "	*list = slices.Delete(*list, at, at+1)\n	o.count.Add(-1)\n	if undo {\n",
					"	if undo {\n"},
			}},
		{name: "the wait after what denials charge", pkg: "./chaos/sim", test: "^TestRetryAfterOverOwners$", edits: []edit{
			{"internal/cluster/route/conclude.go", "			is.RetryAfter = max(is.RetryAfter, idle.RetryAfter)\n",
				"			is.RetryAfter = max(is.RetryAfter, 0*idle.RetryAfter)\n"},
		}},
		{name: "what is never allowed charges nothing", pkg: "./chaos/sim", test: "^TestSeveralOwnersDecideAsOneTable$",
			edits: []edit{
				{"internal/cluster/route/fanout.go", "peeks, shadowPeeks := never(s.charge, false) && !s.rest,",
					"peeks, shadowPeeks := false,"},
			}},
		{name: "what is never allowed in shadow charges nothing there", pkg: "./chaos/sim",
			test: "^TestSeveralOwnersDecideAsOneTable$", edits: []edit{
				{"internal/cluster/route/fanout.go", "s.charge.ID == nil && never(s.charge, true)", "false"},
			}},
		{name: "a shadow that never admits remembers ids", pkg: "./chaos/sim",
			test: "^TestAShadowThatNeverAdmitsRemembersIDs$", edits: []edit{
				{"internal/cluster/route/fanout.go", "s.charge.ID == nil && never(s.charge, true)", "never(s.charge, true)"},
			}},
		{name: "a counter's own time", pkg: "./limiter/limitertest", test: "^TestTableConforms$/^ClockGoesBack$",
			edits: []edit{
				{"limiter/table/decide.go", "		}\n		result := t.decide(now, c, d, final)",
					"		}\n		result := t.decide(p.clock, c, d, final)"},
			}},
		{name: "a bucket remembers its last charge", pkg: "./limiter/limitertest",
			test: "^TestTableConforms$/^ClockGoesBack$", edits: []edit{
				{"limiter/arith/bucket.go", "	ahead := s.Time - now\n", "	ahead := s.Time - now + 1<<60\n"},
			}},
		{name: "a bucket in Redis remembers its last charge", pkg: "./redisstore",
			test: "^TestRedisConforms$/^ClockGoesBack$", edits: []edit{
				{"redisstore/lua/buckets.lua", "  s.b = floor((n + g - 1) / g)\n", "  s.b = floor(g / 2 / g)\n"},
			}},
		{name: "a batch on Redis Cluster is asked in rounds", pkg: "./redisstore", test: "^TestBatchOfReservations$",
			edits: []edit{
				{"redisstore/decide.go", "s.cluster == nil || first == 0 &&", "s.cluster == nil || first == 0 ||"},
			}},
		{name: "redis: limits of two names change in one batch", pkg: "./redisstore", test: "^TestBatchInOrderOfPlans$",
			edits: []edit{
				{"redisstore/decide.go", "	at := counter{k.Hash, l.Name()}\n", "	at := counter{key: k.Hash}\n"},
				{"redisstore/decide.go", "} else if was != l && (", "} else if was.Name() == l.Name() && was != l && ("},
			}},
		{name: "a round is completed without its caller", pkg: "./redisstore", test: "^TestCallerGoesWithReservations$",
			edits: []edit{
				{"redisstore/decide.go", "	if several {\n", "	if several && false {\n"},
			}},
		{name: "a batch on Redis Cluster has one timeout", pkg: "./redisstore", test: "^TestManyRoundsHaveOneDeadline$",
			edits: []edit{
				{"redisstore/decide.go", "		if err := b.decide(ctx, first, last, late)",
					"		b.until = s.config.deadline()\n		if err := b.decide(ctx, first, last, late)"},
			}},
		{name: "no round before the reservations of another", pkg: "./redisstore",
			test: "^TestNoRoundBeforeTheReservationsOfAnother$", edits: []edit{
				{"redisstore/decide.go", "first > 0 && b.late()", "first < 0 && b.late()"},
			}},
		{name: "a call of a lane that ends is submitted again", pkg: "./redisstore",
			test: "^TestCallOfALaneThatEndsIsSubmittedAgain$", edits: []edit{
				{"redisstore/ask.go", "		if j.tries == maxTries {", "		if j.tries <= maxTries {"},
			}},
		{name: "a script that may have run is not sent again", pkg: "./redisstore", test: "^TestMovedScriptRunsOnce$",
			edits: []edit{
				{"redisstore/lane.go", "NoRetry() bool { return true }", "NoRetry() bool { return false }"},
			}},
		{name: "counters move in spans, not by the giver's clock", pkg: "./limiter/arith",
			test: "^TestMovedCounterDecidesAlike$",
			edits: []edit{
				{"limiter/arith/move.go", "	if s.Until != 0 {\n		s.Until -= now\n	}\n", "	if now > 0 {\n		return\n	}\n"},
				{"limiter/arith/move.go", "	if s.Until != 0 {\n		s.Until += now\n	}\n",
					"	if now > 0 {\n		s.roll(l, words, now)\n		return\n	}\n"},
				{"limiter/arith/move.go", "	if s.Time == 0 && s.A|s.B == 0 {\n",
					"	if s.Time == 0 && s.A|s.B == 0 || s.Time > 1<<50 {\n"},
			}},
		{name: "what is exported by a clock that went back", pkg: "./limiter/table",
			test: "^TestExportsWhereTheClockWentBack$", edits: []edit{
				{"limiter/table/move.go", "	now = s.state.NotBefore(l, now)\n", ""},
			}},
		{name: "a refund finds what came to a later entry", pkg: "./limiter/table", test: "^TestReceiptsOfInstantsThatCross$",
			edits: []edit{
				{"limiter/arith/log.go", "		at = nextInLog(s, words, at)\n", "		at = max(at, nextInLog(s, words, at)*0)\n"},
			}},
		{name: "a level that is bounded", pkg: "./limiter/table", test: "^TestTheClockGoesBackByYears$", edits: []edit{
			{"limiter/arith/bucket.go", "uint64(min(s.Time-now, l.Longest))", "uint64(max(0, s.Time-now))"},
		}},
	}
}

// ofAttempts returns those of the ends of attempts of checks over several owners.
func ofAttempts() []mutation {
	return []mutation{
		{name: "a charge that is taken back leaves no trace", pkg: "./chaos/walk", test: "^TestDeniedByOneOwner$",
			edits: []edit{
				{"internal/cluster/prepared.go", "before.Restore(k, back>>first)", "_ = before"},
			}},
		{name: "a denied check forgets its own id only", pkg: "./internal/cluster",
			test: "^TestADeniedCheckForgetsItsOwnIDs$", edits: []edit{
				{"internal/cluster/prepared.go", " && !before(i).Known()", ""},
			}},
		{name: "a hold that is over stays charged", pkg: "./internal/cluster", test: "^TestACancelOfAHoldThatIsKept$",
			edits: []edit{
				{"internal/cluster/prepared.go", "				before = nil // it is over, or settled\n", ""},
			}},
		{name: "a charge of before a reset is not restored", pkg: "./limiter/table", test: "^TestBefore$",
			edits: []edit{
				{"limiter/table/before.go", "			!p.void.has(s.place, b.at, 0)\n", "			true\n"},
			}},
		{name: "what has changed since is not restored", pkg: "./limiter/table", test: "^TestBefore$",
			edits: []edit{
				{"limiter/table/before.go", " && s.state == c.after &&", " &&"},
			}},
		{name: "what holds follow is not restored", pkg: "./limiter/table", test: "^TestBefore$",
			edits: []edit{
				{"limiter/table/before.go", "		if b.held && ", "		if !b.held && b.held && "},
			}},
		{name: "receipts of before a number that was taken back", pkg: "./limiter/table", test: "^TestBefore$",
			edits: []edit{
				{"limiter/table/before.go", "			b.table.registry.left.restore(c.limit, k.Rule, s.place, c.was)\n", ""},
			}},
		{name: "the wait of a part that was denied itself", pkg: "./chaos/walk", test: "^TestDeniedByOneOwner$",
			edits: []edit{
				{"internal/cluster/route/conclude.go", "case !s.answer.Allowed && r.answer.Allowed:", "case !s.answer.Allowed:"},
			}},
		{name: "a denial waits for the handover", pkg: "./internal/cluster", test: "^TestADenialWaitsForTheHandover$",
			edits: []edit{
				{"internal/cluster/route/conclude.go", "		case awaited && v == Kept:", "		case awaited && v > Forbidden:"},
			}},
		{name: "a reservation that was handed over is void", pkg: "./internal/cluster",
			test: "^TestADenialWaitsForTheHandover$", edits: []edit{
				{"internal/cluster/route/conclude.go", "	if o.task.holder == 0 {\n		o.policy(t) // this node",
					"	if o.task.holder == 0 && t.Now < 0 {\n		o.policy(t) // this node"},
			}},
		{name: "a cancel that no member relayed is sent again", pkg: "./internal/cluster",
			test: "^TestACancelThatNoMemberRelays$", edits: []edit{
				{"internal/cluster/route/conclude.go", "	if status == peer.Lost && ", "	if false && "},
			}},
		{name: "a cancel that no member relayed outlasts its check", pkg: "./internal/cluster",
			test: "^TestACancelThatNoMemberRelays$", edits: []edit{
				{"internal/cluster/route/call.go", "	case t.Now >= until && o.task.ends && outlasts(t, o):\n", ""},
			}},
		{name: "a check does not wait for a cancel that outlasts it", pkg: "./internal/cluster",
			test: "^TestACancelThatNoMemberRelays$", edits: []edit{
				{"internal/cluster/route/conclude.go", "	t.ended = append(t.ended, o)\n	return true", "	return true"},
			}},
		{name: "a cancel over a broken connection is lost at once", pkg: "./internal/cluster",
			test: "^TestACancelThatNoMemberRelays$", edits: []edit{
				{"internal/cluster/route/conclude.go", "peer.Lost && o.c.config.Mesh.Reachable(o.task.holder) {", "peer.Lost {"},
			}},
		{name: "the last attempt of a check is not contested", pkg: "./internal/cluster", test: "^TestAProvisionalDenial$",
			edits: []edit{
				{"internal/cluster/replica/prepared.go", "case w.Settles && !w.Final &&", "case w.Settles &&"},
			}},
		{name: "a check says that it is its last attempt", pkg: "./internal/cluster", test: "^TestTheLastAttemptOfACheck$",
			edits: []edit{
				{"internal/cluster/route/fanout.go", "denied || s.until-now < takes\n",
					"denied || s.until-now < 0*takes\n"},
			}},
		{name: "a denied check begins anew once", pkg: "./internal/cluster", test: "^TestTheLastAttemptOfADeniedCheck$",
			edits: []edit{
				{"internal/cluster/route/fanout.go", "denied || s.until-now < takes\n", "s.until-now < takes\n"},
			}},
		{name: "a check that took long says so earlier", pkg: "./internal/cluster", test: "^TestTheLastAttemptAfterALongOne$",
			edits: []edit{
				{"internal/cluster/route/fanout.go", "takes := max(3*aRound, 5*took)", "takes := max(3*aRound, 2*took)"},
			}},
		{name: "a check that began anew has time for two attempts", pkg: "./internal/cluster",
			test: "^TestTheLastAttemptAfterALongOne$", edits: []edit{
				{"internal/cluster/route/fanout.go", "takes := max(3*aRound, 5*took)", "takes := max(3*aRound, 8*took)"},
			}},
	}
}

// ofOverdue returns those of cancels that come after the deadline of their check.
func ofOverdue() []mutation {
	return []mutation{
		{name: "a late cancel takes back", pkg: "./internal/cluster", test: "^TestALateCancel$", edits: []edit{
			{"internal/cluster/replica/prepared.go", "		o.late = append(o.late, u)\n", "		o.count.Add(-1)\n"},
		}},
		{name: "a late cancel takes back nothing of what was merged", pkg: "./internal/cluster", test: "^TestALateCancel$",
			edits: []edit{
				{"internal/cluster/replica/handoff.go", "	p.own.forgetLate(0)\n", ""},
			}},
		{name: "late charges are forgotten", pkg: "./internal/cluster", test: "^TestALateCancel$", edits: []edit{
			{"internal/cluster/replica/prepared.go", "	o.forgetLate(len(o.late) - standing)\n", ""},
		}},
		{name: "late charges are bounded", pkg: "./internal/cluster/replica", test: "^TestLateChargesAreBounded$",
			edits: []edit{
				{"internal/cluster/replica/prepared.go", "	o.forgetLate(maxLate)\n", ""},
			}},
		{name: "of two settlements over several owners one is the first", pkg: "./internal/cluster",
			test: "^TestSettlementsAskTheFirstOwnerFirst$", edits: []edit{
				{"internal/cluster/route/fanout.go", "			now, s.later = now[:1], now[1:]\n", ""},
			}},
		{name: "a settled owner forgets late charges in time", pkg: "./internal/cluster/replica",
			test: "^TestASettledOwnerForgetsLateCharges$", edits: []edit{
				{"internal/cluster/replica/due.go", "	return min(o.copiesDue(now, seq), o.lateUntil())\n",
					"	return o.copiesDue(now, seq)\n"},
			}},
	}
}

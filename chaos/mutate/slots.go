package main

// ofSlots returns those of limits on concurrency, and of reservations in Redis.
func ofSlots() []mutation {
	const suite, redis = "./limiter/limitertest", "./redisstore"
	return []mutation{
		{name: "the rule with slots says how long they are held", pkg: "./rules", test: "^TestSeveralRulesHold$",
			edits: []edit{
				{"rules/ids.go", "	if h.by == nil || u.ids.slots && !h.by.ids.slots {\n", "	if h.by == nil {\n"},
			}},
		{name: "the least bound of several rules holds", pkg: "./rules", test: "^TestSeveralRulesHold$", edits: []edit{
			{"rules/ids.go", " && (h.most == 0 || t < h.most) {\n", " {\n"},
		}},
		{name: "concurrency: a settlement gives all of it back", pkg: suite, test: "^TestConcurrencyIsRight$", edits: []edit{
			{"limiter/table/amend.go", "	h.letGo()\n", ""},
		}},
		{name: "concurrency: the end of a hold frees what it keeps", pkg: suite, test: "^TestConcurrencyIsRight$",
			edits: []edit{
				{"limiter/table/holds.go", "	b.countAllSlots()\n", ""},
			}},
		{name: "concurrency: a charge without a hold ends at once", pkg: suite, test: "^TestConcurrencyIsRight$",
			edits: []edit{
				{"limiter/arith/state.go", "		if s.A -= s.B; s.Time <= now {\n", "		if s.Time <= now {\n"},
			}},
		{name: "concurrency: what is held counts until the last end", pkg: suite, test: "^TestConcurrencyIsRight$",
			edits: []edit{
				{"limiter/arith/hold.go", "	c.Time = max(c.Time, end)\n", "	c.Time = max(c.Time, end*0)\n"},
			}},
		{name: "concurrency: a denial waits for the end of holds", pkg: suite, test: "^TestConcurrencyIsRight$",
			edits: []edit{
				{"limiter/table/concurrency.go", "max(0, room-now, until-now).Duration()\n",
					"max(0, last-now, room-room, until-now).Duration()\n"},
			}},
		{name: "a log takes over more than its limit", pkg: suite, test: "^TestNodeConforms$/ThereAndBack", edits: []edit{
			{"limiter/arith/adopt.go", "return min(used, limiter.MaxLogUnits), true", "return min(used, l.Limit), true"},
		}},
		{name: "a look by another number changes no bucket", pkg: suite, test: "^TestNodeConforms$/LooksChangeNoBucket",
			edits: []edit{{"limiter/arith/adopt.go", "if chosen && p == a.P {", "if false && p == a.P {"}}},
		{name: "a block changes no number", pkg: suite, test: "^TestNodeConforms$/LooksChangeNoBucket",
			edits: []edit{{"limiter/table/decide.go", "!k.added && !charge", "!k.added && false"}}},
		{name: "redis: a block changes no number", pkg: redis, test: "^TestRedisConforms$/LooksChangeNoBucket",
			edits: []edit{{"redisstore/lua/decide.lua", "      if charge then\n        if s.want then",
				"      if s.want then\n        become(s)\n      end\n      if charge then\n        if s.want then"}}},
		{name: "a look by another name of the algorithm changes no bucket", pkg: redis, test: "^TestALookByAnotherPlan",
			edits: []edit{{"limiter/arith/adopt.go", "	p.Algorithm = a.P.Algorithm // one arithmetic has three names\n", ""}}},
		{name: "redis: a wait by another width knows what is reserved", pkg: redis, test: "^TestTheWaitByAPlan",
			edits: []edit{{"redisstore/lua/holds.lua", "s.p, s.f, partly(s.k, s.p, s.text), {}",
				"s.p, s.f, worthOf(i, partly), {}"}}},
		{name: "a smaller bucket cuts nothing", pkg: suite, test: "^TestNodeConforms$/LooksChangeNoBucket",
			edits: []edit{{"limiter/arith/adopt.go", "return b.used(&c, now) > a.Most", "return false"}}},
		{name: "a reservation is settled while its user is denied", pkg: ".",
			test: "^TestAReservationIsSettledWhileItsUserIsDeniedOrFree$", edits: []edit{
				{"settle.go", "\tif r.ID != \"\" {\n", "\tif r.ID == \"\" {\n"},
			}},
		{name: "a reservation is settled while its user is limited", pkg: redis,
			test: "^TestWhatIsReservedIsSettledWhileItsUserIsLimited$", edits: []edit{
				{"rules/override.go", "\tif limits {\n", "\tif limits && false {\n"},
			}},
		{name: "an explanation writes nothing to Redis", pkg: redis, test: "^TestAnExplanationWritesNothing$",
			edits: []edit{{"redisstore/lua/decide.lua", "if writes and not dry then", "if writes then"}}},
		{name: "a full count uses up a larger limit", pkg: suite, test: "^TestNodeConforms$/ThereAndBack", edits: []edit{
			{"limiter/arith/adopt.go", "used = max(used, l.Full)", "used += 0"},
		}},
		{name: "concurrency: holds keep their slots while the limit is another", pkg: suite,
			test: "^TestNodeConforms$/SlotsThereAndBack", edits: []edit{
				{"limiter/table/adopt.go", "if old.Algorithm() != limiter.Concurrency && !follow(", "if !follow("},
			}},
		{name: "a limit of the same kind gives back what was held", pkg: suite,
			test: "^TestTableConforms$/^Transcripts$/^holds_rules_change$", edits: []edit{
				{"limiter/table/adopt.go", "limiter.Concurrency && !follow(b, s, l, old, now)", "limiter.Concurrency"},
			}},
		{name: "a log gives nothing back under another window", pkg: suite,
			test: "^TestTableConforms$/^Transcripts$/^holds_rules_change$", edits: []edit{
				{"limiter/arith/back.go", "from.Window != to.Window, c.A >=", "c.A >="},
			}},
		{name: "a log that was at its bound gives nothing back under another limit", pkg: suite,
			test: "^TestTableConforms$/^Transcripts$/^holds_rules_change$", edits: []edit{
				{"limiter/arith/back.go", "from.Window != to.Window, c.A >= (*log)(from).most():", "from.Window != to.Window:"},
			}},
		{name: "a hold of a counter that was swept stays without it", pkg: "./limiter/table",
			test: "^TestHoldsOfASweptCounter$", edits: []edit{
				{"limiter/table/adopt.go", "		if l.Algorithm() != limiter.Concurrency {\n", "		if false {\n"},
			}},
		{name: "redis: a log gives nothing back under another window", pkg: redis,
			test: "^TestRedisConforms$/^Transcripts$", edits: []edit{
				{"redisstore/lua/holds.lua", "(f == 3 and ';' .. p[3] or '')", "''"},
			}},
		{name: "redis: a log that was at its bound gives nothing back under another limit", pkg: redis,
			test: "^TestRedisConforms$/^Transcripts$", edits: []edit{
				{"redisstore/lua/adopt.lua", " and not (f == 3 and bounded)", ""},
			}},
		{name: "redis: what another bucket was charged does not come back after a limit of another kind", pkg: redis,
			test: "^TestRedisConforms$/^Transcripts$", edits: []edit{
				{"redisstore/lua/adopt.lua", " and parts[1], parts[2], 1024, open)", " and parts[1], false, 1024, open)"},
			}},
		{name: "a denial waits for the end of holds", pkg: suite, test: "^TestHoldsAreRight$", edits: []edit{
			{"limiter/arith/hold.go", "len(backs) > were; backs = l.coming", "len(backs) > were+1<<20; backs = l.coming"},
		}},
		{name: "a denial does not wait for holds that stay charged", pkg: suite, test: "^TestHoldsAreRight$", edits: []edit{
			{"limiter/arith/hold.go", "h.Limit == id && !h.Keep && h.End < before", "h.Limit == id && h.End < before"},
		}},
		{name: "concurrency: a check needs a hold", pkg: "./rules", test: "^TestConcurrency$", edits: []edit{
			{"rules/resolve.go", "Unheld: u.ids.slots && !u.limiter.Shadow}", "Unheld: false}"},
		}},
		{name: "redis: a settlement frees the slots", pkg: redis, test: "^TestRedisConforms$/^Transcripts$", edits: []edit{
			{"redisstore/lua/amend.lua", "      if isSlot(part) then\n", "      if false then\n"},
		}},
		{name: "redis: the end of a hold frees the slots that it keeps", pkg: redis,
			test: "^TestRedisConforms$/^Transcripts$", edits: []edit{
				{"redisstore/lua/holds.lua", "          if h.keep == 0 or isSlot(part) then\n", "          if h.keep == 0 then\n"},
			}},
		{name: "redis: a counter of slots that begins anew has a name of its own", pkg: redis,
			test: "^TestRedisConforms$/^Transcripts$", edits: []edit{
				{"redisstore/lua/concurrency.lua", "redis.sha1hex(whole(now) .. s.k .. ids[1].k)", "redis.sha1hex(s.k)"},
			}},
		{name: "redis: a counter of slots lives as long as its holds", pkg: redis, test: "^TestSlotsLiveAsLongAsTheirHolds$",
			edits: []edit{
				{"redisstore/lua/holds.lua", "    if (i < g.first or ofSlots(i)) and call('PTTL', k) < wait then\n",
					"    if i < g.first and call('PTTL', k) < wait then\n"},
			}},
		{name: "redis: a denial of slots waits for the end of holds", pkg: redis, test: "^TestRedisConforms$/^Transcripts$",
			edits: []edit{
				{"redisstore/lua/concurrency.lua", "      return over <= 0\n", "      return false\n"},
			}},
		{name: "redis: a spent id holds no slot", pkg: redis, test: "^TestSlotsNeedAHold$", edits: []edit{
			{"redisstore/lua/ids.lua", "    before, rest, mode = {}, true, 1\n", "    rest = true\n"},
		}},
		{name: "redis: what is used is held no more", pkg: redis, test: "^TestRedisConforms$/^Transcripts$", edits: []edit{
			{"redisstore/lua/amend.lua", "not ofSlots(i) and open(i) --", "open(i) --"},
		}},
		{name: "redis: a refund frees the slots", pkg: redis, test: "^TestTableAndRedisDecideAlike$", edits: []edit{
			{"redisstore/lua/refund.lua", "      if part.gone then\n", "      if false then\n"},
		}},
		{name: "redis: a policy holds slots", pkg: redis, test: "^TestSlotsWithoutRedis$", edits: []edit{
			{"redisstore/fallback.go", "	if id == nil || id.Hold == 0 {\n", "	if id == nil || id.Hold >= 0 {\n"},
		}},
		{name: "redis: a node refuses a spent id", pkg: redis, test: "^TestSlotsNeedAHold$", edits: []edit{
			{"backend.go", "		case engine.Spent(&ds[i]) != nil:\n", "		case false:\n"},
		}},
		{name: "redis: a check of slots needs a hold", pkg: redis, test: "^TestSlotsNeedAHold$", edits: []edit{
			{"backend.go", "engine.Unheld(m, &q.Charge)", "engine.Unheld(rules.Match{}, &q.Charge)"},
		}},
		{name: "redis: a raise that is taken back leaves the hold", pkg: redis,
			test: "^TestAnExtensionThatIsDeniedLateIsTakenBack$", edits: []edit{
				{"redisstore/lua/amend.lua", "  h.parts, h.over = rest, before > now", "  h.over = before > now"},
			}},
		{name: "redis: an extension that one slot denies is taken back", pkg: redis,
			test: "^TestAnExtensionThatIsDeniedLateIsTakenBack$", edits: []edit{
				{"redisstore/hold.go", "		m.retract(ctx)\n", "		_ = m.retract\n"},
			}},
		{name: "redis: what is taken back leaves the hold", pkg: redis, test: "^TestCancelledReservationsOfIDs$",
			edits: []edit{
				{"redisstore/lua/refund.lua", "    if not gone[part.limit] then\n", "    if true then\n"},
			}},
		{name: "redis: a hold that is taken back has no end", pkg: redis, test: "^TestCancelledReservationsOfIDs$",
			edits: []edit{
				{"redisstore/lua/refund.lua", "    call('ZREM', g.holds, member(g, id, v))\n", ""},
			}},
		{name: "redis: what is left of a hold ends", pkg: redis, test: "^TestCancelledReservationsOfIDs$", edits: []edit{
			{"redisstore/lua/refund.lua", "    call('ZADD', g.holds, whole(h.over), member(g, id, after))\n", ""},
		}},
		{name: "redis: a settled hold has no end", pkg: redis, test: "^TestCancelledReservationsOfIDs$", edits: []edit{
			{"redisstore/lua/amend.lua", "    call('ZREM', g.holds, member(g, id.k, id.v))\n", ""},
		}},
		{name: "redis: a settlement is remembered", pkg: redis, test: "^TestRedisConforms$/^Transcripts$", edits: []edit{
			{"redisstore/lua/amend.lua", "  if id.hold or id.more > 0 then\n", "  if id.more > 0 then\n"},
		}},
		{name: "a log that may have forgotten a charge gives nothing back", pkg: suite, test: "^TestTranscripts",
			edits: []edit{
				{"limiter/arith/log.go", "	if s.A >= l.most() {\n", "	if s.A > l.most() {\n"},
			}},
		{name: "redis: a log that may have forgotten a charge gives nothing back", pkg: redis,
			test: "^TestRedisConforms$/^Transcripts$", edits: []edit{
				{"redisstore/lua/back.lua", "  if s.p[1] == 3 and counted(s) >= logMost(s.p) then\n", "  if false then\n"},
			}},
		{name: "redis: a refund forgets no id that was settled", pkg: redis, test: "^TestRedisConforms$/^Transcripts$",
			edits: []edit{
				{"redisstore/lua/refund.lua", "or relied == 2 or", "or relied == 3 or"},
			}},
	}
}

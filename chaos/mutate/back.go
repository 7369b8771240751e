package main

// ofBacks are about what comes back of units that were not used.
func ofBacks() []mutation {
	const (
		suite, table, redis = "./limiter/limitertest", "./limiter/table", "./redisstore"
		right, alike        = "^TestBucketsAreRight$", "^TestTableAndRedisDecideAlike$"
	)
	return []mutation{
		{name: "back: a charge tells the holds how low the bucket was", pkg: suite, test: right, edits: []edit{
			{"limiter/table/found.go", "				p.noteCharge(place, key.Hash.Lo, l, &found[i].counts, now, cost)\n",
				"				_ = l\n				_ = i\n"},
		}},
		{name: "back: so does one of a counter that was swept", pkg: table, test: "^TestLowestLevelsMove$", edits: []edit{
			{"limiter/table/decide.go", "			if k.part.due != never {\n", "			if k.found != nil && k.part.due != never {\n"},
		}},
		{name: "back: a window begins with the first hit that stands", pkg: suite, test: "^TestFirstHitsAreRight$",
			edits: []edit{
				{"limiter/arith/hits.go", "			s.Time = min(at, now)\n", "			_ = at\n"},
			}},
		{name: "back: a hold takes the note of its own hit back", pkg: suite, test: "^TestFirstHitsAreRight$", edits: []edit{
			{"limiter/arith/hits.go", "			e.notLow.lo &= hitEntry | hitGone\n", ""},
		}},
		{name: "back: what is settled stays a hit", pkg: suite, test: "^TestTranscriptsAreRight$", edits: []edit{
			{"limiter/arith/hits.go", "			e.setFinal(stands-at, 0)\n", ""},
		}},
		{name: "back: an owner's own charge comes back from a first hit", pkg: table, test: "^TestUndoOfAFirstHit$",
			edits: []edit{
				{"limiter/arith/hits.go", "s.Reduce(l, words, now, latest, at, n, 1)", "s.Reduce(l, words, now, latest, at, n, 0)"},
			}},
		{name: "back: redis: a window begins with the first hit that stands", pkg: redis, test: "^TestRedisConforms$",
			edits: []edit{
				{"redisstore/lua/hits.lua", "    s.t = first < now and first or now\n", ""},
			}},
		{name: "back: so does a settlement beyond the estimate", pkg: suite, test: right, edits: []edit{
			{"limiter/table/amend.go", "	p.noteCharge(s.place, s.lo^arith.NameID(l), l, new(s.state.Open(l)), now, n)\n",
				""},
		}},
		{name: "back: so does a merger", pkg: table, test: "^TestAMergedLevelRises$", edits: []edit{
			{"limiter/table/import.go",
				"	p.noteCharge(into.place, into.lo^arith.NameID(l), l, new(into.state.Open(l)), now, 0)\n", ""},
		}},
		{name: "back: an entry that goes leaves what it knows", pkg: suite, test: "^TestTranscriptsAreRight$/^given_back$",
			edits: []edit{
				{"limiter/arith/hold.go", "				e.follow(was.since, was.Limit, limits)\n", ""},
			}},
		{name: "back: so it does beyond the bound of the count", pkg: table,
			test: "^TestUnitsBeyondTheBoundStayKnownOnceAHoldEnds$", edits: []edit{
				{"limiter/arith/back.go", "	if e.lost > 0 && limits != nil {\n", "	if false {\n"},
			}},
		{name: "back: what is given back was never there", pkg: suite, test: "^TestTranscriptsAreRight$/^given_back$",
			edits: []edit{
				{"limiter/arith/back.go", "		low = low.minus(d)\n", ""},
			}},
		{name: "back: units beyond the bound of a count are known", pkg: suite,
			test: "^TestTranscriptsAreRight$/^given_back$", edits: []edit{
				{"limiter/arith/back.go", "	e.lose(l.losesBy(c, now, n))\n", ""},
			}},
		{name: "back: the debt of a bucket ends", pkg: suite, test: "^TestTranscriptsAreRight$/^given_back$", edits: []edit{
			{"limiter/compiled.go", "l.Most = min(l.Full+max(l.Full, l.Limit, l.LeaksIn(leastDebt)), ", "l.Most = min("},
		}},
		{name: "back: so does one that came from an earlier version", pkg: "./limiter/arith",
			test: "^TestADebtOfAnEarlierVersionIsLowered$", edits: []edit{
				{"limiter/arith/move.go", "	if l.Shared {\n		(*bucket)(l).capDebt(s, now)\n	}\n", ""},
				{"limiter/arith/move.go", "			s.A = min(s.A, l.Most)\n", ""},
			}},
		{name: "back: nothing comes back of a bucket that was at its bound", pkg: table,
			test: "^TestUndoOfWhatABucketDidNotCount$", edits: []edit{
				{"limiter/arith/bucket.go", "	if l.wasFull(s, at) {\n		return\n	}\n", ""},
			}},
		{name: "back: a refused hold leaves those before it theirs", pkg: table, test: "^TestARefusedHoldLeavesOthersTheirs$",
			edits: []edit{
				{"limiter/arith/back.go", "		h.Detach() // what was charged before it still comes back\n",
					"		h.since.lost = mostCounted\n"},
			}},
		{name: "back: without an entry, what may have leaked until the last charge stays", pkg: suite, test: ".",
			edits: []edit{
				{"limiter/arith/bucket.go", "min(now, l.chargedBy(s))-at", "min(now, l.chargedBy(s), at)-at"},
			}},
		{name: "redis back: a charge tells the holds how low the bucket was", pkg: redis, test: alike, edits: []edit{
			{"redisstore/lua/decide.lua", "          note(s, cost, not allowed)\n", ""},
		}},
		{name: "redis back: the debt of a bucket ends", pkg: redis, test: "^TestRedisConforms$/^Transcripts$/^given_back$",
			edits: []edit{
				{"redisstore/lua/prelude.lua", "  return units < debt and units or debt\n", "  return units\n"},
			}},
		{name: "redis back: of a list as it was before a refund", pkg: redis, test: alike, edits: []edit{
			{"redisstore/lua/since.lua", "  if n == 0 or f == 3 or f == 8 then", "  if f == 3 or f == 8 then"},
		}},
		{name: "redis back: a window that is over may begin later", pkg: redis, test: alike, edits: []edit{
			{"redisstore/lua/holds.lua", "        if not byHit(s) then -- else", "        if true then -- else"},
		}},
		{name: "redis back: a hit stands until its part has come back", pkg: redis, test: alike, edits: []edit{
			{"redisstore/lua/refund.lua", "    ending = h.parts\n", ""},
		}},
		{name: "redis back: the hit that opens a window is noted", pkg: redis, test: alike, edits: []edit{
			{"redisstore/lua/hits.lua", "    setFinalHit(s, now) -- it opens the window\n", "    return\n"},
		}},
		{name: "redis back: a hold knows the limit before that still counts", pkg: redis, test: alike, edits: []edit{
			{"redisstore/lua/holds.lua", "name or short(partly(c.k, c.p, c.text))", "name or short(worthOf(i, partly))"},
		}},
		{name: "back: a hold knows the limit before that still counts", pkg: redis, test: alike, edits: []edit{
			{"limiter/table/holds.go", "arith.CountsID(t.registry.limit(p.slots.at(at).limit)) // perhaps",
				"arith.CountsID(l) // perhaps"},
		}},
		{name: "redis: a receipt from before a limit is void, though the counter was empty", pkg: redis, test: alike,
			edits: []edit{
				{"redisstore/lua/adopt.lua", "  if is ~= counted and not dry then",
					"  if not over and is ~= counted and not dry then"},
			}},
		{name: "redis back: what is given back was never there", pkg: redis, test: alike, edits: []edit{
			{"redisstore/lua/since.lua", "        time.t, time.a = less(s, time.t, time.a, t, a)\n", ""},
		}},
		{name: "redis back: nothing comes back of a bucket that was empty", pkg: redis,
			test: "^TestNothingComesBackOfABucketThatWasEmpty$", edits: []edit{
				{"redisstore/lua/since.lua", "held[s.k] or plain and n == 0", "held[s.k]"},
			}},
		{name: "redis back: a hold begins a time of its own", pkg: redis, test: alike, edits: []edit{
			{"redisstore/lua/since.lua", "  if #p == 0 or p[#p].from < now then\n", "  if #p == 0 then\n"},
		}},
	}
}

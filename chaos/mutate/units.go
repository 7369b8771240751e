package main

// ofRedisUnits are about units above 2^32-1 in Redis.
func ofRedisUnits() []mutation {
	const redis = "./redisstore"
	return []mutation{
		{name: "redis units: what remains has all its bits", pkg: redis,
			test: "^TestRedisConforms$/^Transcripts$/^wide_units$", edits: []edit{
				{"redisstore/lua/decide.lua", "      if left > MOST then\n", "      if left > 2 * capacity then\n"},
			}},
		{name: "redis units: a product above 2^53 is exact", pkg: redis,
			test: "^TestRedisConforms$/^Transcripts$/^wide_units$", edits: []edit{
				{"redisstore/lua/prelude.lua", "  if p < 9007199254740992 then\n", "  if p < 9007199254740992 ^ 2 then\n"},
			}},
		{name: "redis units: a limit above 2^32-1 has a family of its own", pkg: redis, test: "^TestParams$", edits: []edit{
			{"redisstore/params.go", "		written += wideFamily\n", "		written += wideFamily - wideFamily\n"},
		}},
		{name: "redis units: a limit that passes 2^32-1 is charged anew", pkg: redis,
			test: "^TestNoScriptMisreadsWideCounts$", edits: []edit{
				{"redisstore/lua/adopt.lua", "  if p.most ~= old.most and f ~= 8 then\n", "  if false then\n"},
			}},
		{name: "redis units: an id keeps all bits of its cost", pkg: redis,
			test: "^TestRedisConforms$/^Transcripts$/^wide_units$", edits: []edit{
				{"redisstore/lua/ids.lua", "      if cost > 4294967295 then\n", "      if cost > 2 ^ 53 then\n"},
			}},
		{name: "redis units: a hold keeps all bits of its cost", pkg: redis,
			test: "^TestRedisConforms$/^Transcripts$/^wide_units$", edits: []edit{
				{"redisstore/lua/holds.lua", "    if part.cost > MOST then\n", "    if part.cost > 2 ^ 53 then\n"},
			}},
		{name: "redis units: a sum of sub-windows has more than 48 bits", pkg: redis,
			test: "^TestManyWideSubWindowsCountAlike$", edits: []edit{
				{"redisstore/lua/lists.lua", "(s.lastHigh + floor(n / WRAP) + floor(low / WRAP))",
					"(s.lastHigh + floor(n / WRAP))"},
			}},
		{name: "redis units: a sub-window counts no more than its limit can hold", pkg: redis,
			test: "^TestTableAndRedisDecideAlike$", edits: []edit{
				{"redisstore/lua/lists.lua", "    push(s, n < room and n or room)\n", "    push(s, n)\n"},
			}},
		{name: "redis units: parts of a tick are added without rounding", pkg: redis, test: "^TestTableAndRedisDecideAlike$",
			edits: []edit{
				{"redisstore/lua/buckets.lua", "r - (limit - s.a)\n", "r + s.a - limit\n"},
			}},
		{name: "redis units: the level of a bucket is rounded up without a sum", pkg: redis,
			test: "^TestTableAndRedisDecideAlike$", edits: []edit{
				{"redisstore/lua/buckets.lua", "    return q + (1 - floor((window - r - s.a) / window))",
					"    return q + floor((r + s.a + window - 1) / window)"},
			}},
		{name: "redis units: a weight is multiplied in parts", pkg: redis, test: "^TestTableAndRedisDecideAlike$",
			edits: []edit{
				{"redisstore/lua/counter.lua", "  q, more = (q - ones) / 1000 * weight, ones * weight + more\n",
					"  q, more = 0, q * weight + more\n"},
			}},
		{name: "redis units: an instant found by division is corrected", pkg: redis, test: "^TestTableAndRedisDecideAlike$",
			edits: []edit{
				{"redisstore/lua/counter.lua", "  while part(p, previous, left) > room do\n", "  while false do\n"},
			}},
		{name: "redis units: what leaks by interval is no difference of rounded numbers", pkg: redis,
			test: "^TestWideDripsLeakExactly$", edits: []edit{
				{"redisstore/lua/drips.lua", "    windows, units = windows - 1, units + p[2]\n", "    units = units + 0\n"},
			}},
		{name: "redis units: a wait for holds takes nothing from a rounded sum", pkg: redis,
			test: "^TestTableAndRedisDecideAlike$", edits: []edit{
				{"redisstore/lua/holds.lua", "    return minus(upTo, above, sum or s.base, high or s.baseHigh) <= room\n",
					"    return counted(s, sum, high) - minus(s.last, s.lastHigh, upTo, above) <= room\n"},
			}},
		{name: "redis: an overdrawn bucket remembers its last charge", pkg: redis,
			test: "^TestOverdrawnWideBucketsWhenTheClockGoesBack$", edits: []edit{
				{"redisstore/lua/amend.lua", "      noted(s, at)\n", ""},
			}},
	}
}

// ofWideBlocks are about blocks beside units above 2^32-1.
func ofWideBlocks() []mutation {
	return []mutation{
		{name: "units: a state of a wide limit has its block", pkg: "./limiter/limitertest",
			test: "^TestTranscriptsAreRight$/^wide_units$", edits: []edit{
				{"limiter/arith/counts.go", "	if c.Until != 0 {\n", "	if c.Until < 0 {\n"},
			}},
		{name: "units: a state in a block has all bits of its second number", pkg: "./limiter/arith",
			test: "^TestAStateDuringABlockHasAllBits$", edits: []edit{
				{"limiter/arith/blocked.go", "b.part>>(75-b.bits)<<unitBits", "b.part>>(76-b.bits)<<unitBits"},
			}},
		{name: "units: of two counts in a block one alone may be beyond", pkg: "./limiter/arith",
			test: "^TestAStateDuringABlockHasAllBits$", edits: []edit{
				{"limiter/arith/blocked.go", "l.alignedStarts() && min(c.A, c.B) == limiter.MaxUnits", "false"},
			}},
		{name: "units: a block begins in a counter without charges", pkg: "./limiter/arith",
			test: "^TestMovedCounterFreesNothingEarly$", edits: []edit{
				{"limiter/arith/blocked.go", "floorTo(max(c.Time, c.Until-longest)+limiter.Second-1, limiter.Second)",
					"floorTo(c.Time+limiter.Second-1-0*longest, limiter.Second)"},
			}},
		{name: "units: wide windows beside a block are whole seconds", pkg: "./rules", test: "^TestErrors$", edits: []edit{
			{"limiter/problems.go", "s.Block == 0 || !s.wide()", "s.Block == 0 || s.wide()"},
		}},
		{name: "a bucket that was full gives nothing back", pkg: "./redisstore",
			test: "^TestABucketThatWasFullGivesNothingBack$", edits: []edit{
				{"limiter/arith/bucket.go", "	if l.wasFull(s, at) {\n", "	if false {\n"},
				{"redisstore/lua/back.lua", "  if s.t - at > full or", "  if false and s.t - at > full or"},
			}},
		{name: "a bucket in a debt of hours knows when it was charged", pkg: "./limiter/limitertest",
			test: "^TestTranscriptsAreRight$/^refund$", edits: []edit{
				{"limiter/arith/bucket.go", "ahead <= coarse<<28 {", "ahead < 0*coarse {"},
			}},
		{name: "redis: so does one in Redis", pkg: "./redisstore", test: "^TestRedisConforms$/^Transcripts$/^refund$",
			edits: []edit{
				{"redisstore/lua/buckets.lua", "n <= g * 268435456 and", "n < 0 and"},
			}},
		{name: "a bucket counts beyond 32 bits", pkg: "./limiter/arith", test: "^TestABucketCountsBeyond32Bits$",
			edits: []edit{
				{"limiter/compiled.go", "l.LeaksIn(Span(MaxRecovery))+1, mostCounted)",
					"l.LeaksIn(Span(MaxRecovery))+1, NarrowUnits)"},
			}},
	}
}

package main

// ofSlots returns those of limits on concurrency, and of reservations in Redis.
func ofSlots() []mutation {
	const suite, redis = "./limiter/limitertest", "./redisstore"
	return []mutation{
		{name: "concurrency: a settlement gives all of it back", pkg: suite, test: "^TestConcurrencyIsRight$", edits: []edit{
			{"limiter/table/amend.go", "	t.letGo(p, s, c.ID.ID, now)\n", ""},
		}},
		{name: "concurrency: the end of a hold frees what it keeps", pkg: suite, test: "^TestConcurrencyIsRight$", edits: []edit{
			{"limiter/table/holds.go", "		if !h.Keep || t.concurrency(p, s, h) != nil {\n", "		if !h.Keep {\n"},
		}},
		{name: "concurrency: a charge without a hold ends at once", pkg: suite, test: "^TestConcurrencyIsRight$", edits: []edit{
			{"limiter/state.go", "		if s.A -= s.B; s.Time <= now {\n", "		if s.Time <= now {\n"},
		}},
		{name: "concurrency: what is held counts until the last end", pkg: suite, test: "^TestConcurrencyIsRight$", edits: []edit{
			{"limiter/hold.go", "	s.Time = max(s.Time, end)\n}", "	s.Time = max(s.Time, end*0)\n}"},
		}},
		{name: "concurrency: a denial waits for the end of holds", pkg: suite, test: "^TestConcurrencyIsRight$", edits: []edit{
			{"limiter/table/concurrency.go", "max(0, room-now, until-now).Duration(), true\n", "max(0, last-now, room-room, until-now).Duration(), true\n"},
		}},
		{name: "concurrency: a check needs a hold", pkg: "./rules", test: "^TestConcurrency$", edits: []edit{
			{"rules/resolve.go", "Unheld: u.ids.slots && !u.limiter.Shadow}", "Unheld: false}"},
		}},
		{name: "redis: what is taken back leaves the hold", pkg: redis, test: "^TestCancelledReservationsOfIDs$", edits: []edit{
			{"redisstore/lua/refund.lua", "    if not gone[part.limit] then\n", "    if true then\n"},
		}},
		{name: "redis: a hold that is taken back has no end", pkg: redis, test: "^TestCancelledReservationsOfIDs$", edits: []edit{
			{"redisstore/lua/refund.lua", "  if h then\n    call('ZREM', holds, member(key, id, v))\n  end\n", ""},
		}},
		{name: "redis: what is left of a hold ends", pkg: redis, test: "^TestCancelledReservationsOfIDs$", edits: []edit{
			{"redisstore/lua/refund.lua", "    call('ZADD', holds, whole(h.over), member(key, id, after))\n", ""},
		}},
		{name: "redis: a settled hold has no end", pkg: redis, test: "^TestCancelledReservationsOfIDs$", edits: []edit{
			{"redisstore/lua/amend.lua", "    call('ZREM', g.holds, member(g, id.k, id.v))\n", ""},
		}},
		{name: "redis: a settlement is remembered", pkg: redis, test: "^TestRedisConforms$/^Transcripts$", edits: []edit{
			{"redisstore/lua/amend.lua", "  if id.hold or id.more > 0 then\n", "  if id.more > 0 then\n"},
		}},
		{name: "a log that may have forgotten a charge gives nothing back", pkg: suite, test: "^TestTranscripts", edits: []edit{
			{"limiter/log.go", "	if s.A == MaxLogUnits {\n", "	if s.A > MaxLogUnits {\n"},
		}},
		{name: "redis: a log that may have forgotten a charge gives nothing back", pkg: redis, test: "^TestRedisConforms$/^Transcripts$", edits: []edit{
			{"redisstore/lua/back.lua", "  if s.p[1] == 3 and counted(s) == LOG then\n", "  if false then\n"},
		}},
		{name: "redis: a refund forgets no id that was settled", pkg: redis, test: "^TestRedisConforms$/^Transcripts$", edits: []edit{
			{"redisstore/lua/refund.lua", "or relied == 2 or", "or relied == 3 or"},
		}},
	}
}

// Package redisstore decides checks in Redis. The algorithms of package limiter are
// implemented as Lua scripts, whose decisions equal those of a table to the tick.
//
// One decision is one call of one script for all limits of the check: all of them are
// charged, or none. Time is that of the Redis server, unless the caller gives an
// instant. Calls of many goroutines share round trips automatically.
//
// No check, and no batch of checks, waits longer than [Config.Timeout]. If Redis does not
// answer in time, or does not accept writes, the policy of the rule decides, from a table in
// this process, and the decision's source shows that. Decisions come from Redis again as soon as it
// accepts a write.
//
// On Redis Cluster a check with several keys takes several calls, to the masters of
// their slots. Each call reserves; if one of them denies, the reservations of the
// others are cancelled. In a batch, a later check with one of those keys is asked when
// that has been done, or decided by policy if the time of the batch is used up by then. A
// slot without an owner concerns only the checks of its keys, whose
// policies decide.
//
// What a limit on concurrency holds is in the same entries as all reservations. A check with the id of
// a reservation that is over is denied for good by it. A policy holds in this process, until the hold is over.
//
// The id of a charge is remembered by the script that makes it, for each key in its slot: see
// [arith.Idempotency]. A policy remembers none.
package redisstore

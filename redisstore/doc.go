// Package redisstore decides checks in Redis: the algorithms of package limiter
// as Lua scripts, whose decisions are equal to those of the table to the tick.
//
// One decision is one call of one script, over all limits of the check at once:
// all of them are charged, or none. Time is that of the Redis server unless the
// caller brings an instant. Calls of many goroutines share round trips by
// themselves.
//
// No check waits longer than [Config.Timeout]. Where Redis does not answer in
// time, or cannot take writes, the policy of the rule answers, from a table in
// this process, and the decision's source says so; decisions come from Redis
// again as soon as it takes a write.
//
// On Redis Cluster a check over several keys is several calls, on the masters of
// their slots: each reserves, and what was reserved is cancelled where one denied.
package redisstore

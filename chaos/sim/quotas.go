package sim

import "github.com/weirlimit/weir/limiter"

// quotaRuns is of how many runs one has a quota. The others are what they were before
// there were quotas.
const quotaRuns = 6

// drawing makes a quota, and rules that draw on it, each at a cost of its own: a check of such
// a rule costs the rule and the quota, which probably have different owners, or neither. The
// quota is asked about alone, too, as by a rule without limits of its own.
func (w *World) drawing(add func(string, limiter.Unreachable, limiter.Replication, int) []*key) {
	mode := limiter.ReplicationLag
	if w.chance(30) {
		mode = limiter.ReplicationStrict
	}
	quota := add("quota", limiter.UnreachableClosed, mode, 1)[0]
	quota.rule.Quota, quota.second = true, true
	for _, name := range []string{"search", "login", "export"} {
		for _, k := range add(name, limiter.UnreachableClosed, limiter.ReplicationLag, 1+w.rng.IntN(2)) {
			k.pair, k.draws = quota, 1+w.rng.IntN(maxDraws)
			quota.pair = k
		}
	}
}

// maxDraws is what a unit of a rule costs at most in its quota.
const maxDraws = 3

// costOf returns what a check of a key costs another one that is asked about with it.
func (k *key) costOf(other *key, cost uint64) uint64 {
	if other == k || k.draws == 0 {
		return cost
	}
	return cost * uint64(k.draws)
}

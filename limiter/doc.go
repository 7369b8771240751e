// Package limiter holds what a limit is and its arithmetic, and nothing else.
//
// Every algorithm is a pure function of a state, an instant and a cost. There
// is no clock, lock, map or goroutine here: the instant comes in as a [Tick],
// the state as a [State] that the caller owns, and the answer goes out into a
// [Decision] that the caller owns too. All arithmetic is on integers, with
// 128-bit products where 64 bits are not enough, so two machines given the same
// trace always agree.
//
// The words, from the outside in: a [Request] is what a front door knows; rules
// turn it into a [Charge], which names the counters and their limits; a decider
// answers with a [Decision].
//
// None of the types is safe for concurrent use unless it says so.
package limiter

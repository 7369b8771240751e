// Package limiter has the words of Weir: what is limited, asked and answered.
//
// A [Spec] describes a limit, and [NewLimit] makes a [Limit] of it. A [Request] is what a service knows about a call,
// and a [Decision] is the answer, with a [LimitDecision] for each limit that took part and a [Receipt] of what was
// charged. Times are in microseconds, see [Tick].
//
// How a limit decides is in package limiter/arith, which programs need only if they are deciders themselves. The types
// Compiled, Params and Steps are for that package alone.
//
// None of the types is safe for concurrent use unless it says so.
package limiter

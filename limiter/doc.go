// Package limiter defines limits and their arithmetic.
//
// Every algorithm is a pure function of a state, an instant and a cost. The package has
// no clock, lock, map or goroutine: the caller passes the instant as a [Tick], owns the
// [State], and owns the [Decision] that receives the result. All arithmetic is on
// integers, with 128-bit products where 64 bits are not enough, so two machines with
// the same trace always agree.
//
// The main types, from the outside in: a [Request] is what a service knows about a
// call; rules turn it into a [Charge], which names the counters and their limits; a
// decider answers with a [Decision].
//
// [Limit] and [Decision] have methods for those who read them. What only deciders need
// are the methods of [State], and functions such as [Settle] and [Conclude].
//
// None of the types is safe for concurrent use unless it says so.
package limiter

// Package arith is the arithmetic of limits.
//
// Every algorithm is a pure function of a state, an instant and a cost. The package has no clock, lock, map or
// goroutine: the caller passes the instant as a [limiter.Tick], owns the [State], and owns the [limiter.Decision] that
// receives the result. All arithmetic is on integers, with 128-bit products where 64 bits are not enough, so two
// machines with the same trace always agree.
//
// Rules turn a request into a [Charge]: its keys, with the limits of each and a cost. A key and a limit have one
// counter, a [State], which is zero if nothing counts. A decider takes four steps, and the others look only at what
// these left:
//
//  1. [State.Probe] asks each limit whether it would admit the cost.
//  2. [Combine] makes one decision of the results: all limits admit it, or it is denied. [ToCharge] then says which are
//     charged.
//  3. [State.Charge] charges them, and [BeginBlock] blocks a key that was denied.
//  4. [State.Report] says what remains, and how long to wait. [Conclude] makes of it what the whole decision says.
//
// [Counter] does that for one key. Between two steps a decider may keep the state open, as [Counts].
//
// Each algorithm has in a file of its own what it adds: window.go, subwindow.go, log.go, bucket.go, calendar.go. What
// they have in common, and where they differ, is in state.go.
//
// Beside a decision a counter can
//
//   - take units back: [State.Refund], [State.Reduce], and [GiveBack] for what was reserved, which is exact;
//   - become one of another limit, if rules change: [State.Adopt];
//   - travel to another machine: [State.Export], [State.CheckExported], [State.Import], and [State.Merge] with a
//     counter that is there, or [Believe] if the sender may be wrong;
//   - be explained to people: [State.Explain].
//
// Two kinds of counters lie beside those of a key, and deny nothing: ids that make a charge once ([Remembered], see
// [Idempotency]), and charges that wait for their end ([Holds], see [Hold]).
//
// The package is public and not promised: what it exports follows the algorithms, and the deciders of this module.
// None of the types is safe for concurrent use.
package arith

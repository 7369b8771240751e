// Package bench measures Weir beside other in-process rate limiters: the same
// keys, the same limit, the same loop, and a check that each of them really did
// what it was asked to do. It is a module of its own, so that what the rivals
// need never enters Weir's go.mod.
//
// A [Contender] makes a [Limiter]. A [Trial] fills it with keys, has all cores
// ask it, compares every single answer with the one that is due, and afterwards
// looks at each key: it must be there, and have been charged exactly as often
// as it was asked for. A figure whose premises do not hold is an error.
//
// The program in cmd/compare runs contenders in turn, each in a process of its
// own, in another order in each round.
package bench

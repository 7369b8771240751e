// Package limitertest is a conformance suite for deciders: the in-process table, a
// cluster, a script in Redis.
//
// It has four parts. [Run] is the suite; it needs a [Subject], which is a decider with
// a clock that the test sets. The transcripts in testdata are readable scenarios, with
// the expected answers next to the requests. [Oracle] is a second, slow implementation
// of every algorithm, written from its definition with exact fractions, to find errors
// in the fast one. [Bound] searches a history of admissions for more than an algorithm
// promises to admit, without knowing how it decides.
package limitertest

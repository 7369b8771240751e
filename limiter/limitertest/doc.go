// Package limitertest says what every decider must do, as a suite that any of
// them can run: the in-process table, a cluster, a script in Redis.
//
// It has four parts. [Run] is the suite; it needs a [Subject], which is a
// decider and a clock that the test moves, and nothing else. The transcripts in
// testdata are scenarios that a person can read, with the expected answers
// beside the questions. [Oracle] is a second, slow implementation of every
// algorithm, written from its definition alone with exact fractions, so that it
// can find errors in the fast one. [Bound] sweeps a history of admissions for
// more than an algorithm promises to admit, without knowing how it decides.
package limitertest

// Package rules turns a rules file into an immutable [Set], and a request into
// the counters and costs that a decider needs.
//
// [Parse] reads YAML (and so JSON) and reports everything that is wrong with a
// file at once, each problem with its line and column. A file that is not valid
// yields no set at all, so whoever reloads keeps the set that was in force.
//
// [Set.Resolve] is the hot path. Rules are tried in order and the first that
// matches decides, exactly as if each pattern were run in turn, but two things
// keep the work small: paths seen before are answered from a bounded cache
// without locks, and for fresh paths an index of the literal beginnings of all
// patterns leaves only a few regular expressions to run.
//
// Nothing here reads files, clocks or the environment, and nothing panics
// whatever the bytes are.
package rules

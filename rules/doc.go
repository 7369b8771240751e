// Package rules parses a rules file into an immutable [Set], and resolves requests into
// the counters and costs that a decider needs.
//
// [Parse] reads YAML (and so JSON) and reports all problems of a file at once, each
// with its line and column. An invalid file yields no set, so a reload keeps the set
// that is in force.
//
// [Set.Resolve] is the hot path. Rules are tried in order and the first match decides,
// with the same result as running each pattern in turn. Two things keep this fast: a
// bounded cache, without locks, of paths seen before, and for other paths an index of
// the literal prefixes of all patterns. What this leaves runs as automata, of up to 64
// patterns together, so that a long path costs nanoseconds a byte.
//
// The package reads no files, clocks or environment variables, and does not panic for
// any input.
package rules

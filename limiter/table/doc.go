// Package table keeps the counters of many keys in memory and decides checks
// against them.
//
// A table is divided into partitions, each with its own lock; a partition is also the
// unit of ownership in a cluster. All counters of one rule and one set of key values
// are in the same partition, so several windows are one decision under one lock. A
// check with several keys locks their partitions in order.
//
// The counters are in pointer-free slots of 48 bytes, which the garbage collector does
// not scan. Their order is a permutation of the keys' hashes that is private to the
// process: choosing hashes does not determine where they are. A slot whose counter has
// fully recovered is equivalent to no slot. It is reused in place, or swept when its
// partition fills up, so there is no expiry queue and no background work. A table grows
// by adding a block of slots and spreading the entries in place, so growth leaves no
// garbage.
//
// The ids of checks are in rings, one for each partition, in the order in which they came: see idRing. All
// else treats them as counters.
//
// A partition can be moved: [Table.Export] lists its counters with spans instead of
// instants, and [Table.Import] inserts them under another clock, replacing or merging
// with existing ones.
//
// The caller passes the time, which may go back. A counter then behaves as
// [arith.State] describes; other counters are not affected, except that those that
// had recovered by the latest instant may be gone. Exports and resets of a whole
// partition use its latest instant.
package table

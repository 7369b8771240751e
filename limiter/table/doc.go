// Package table keeps the counters of many keys in memory and decides checks
// against them.
//
// A table is divided into partitions, each with a lock of its own; a partition
// is the unit of locking here and of ownership in a cluster. All counters of
// one rule and one set of key values share a partition, so several windows are
// one decision under one lock; a check over several keys locks their partitions
// in order.
//
// The counters lie in pointer-free slots of 48 bytes, which the garbage
// collector never scans, in an order of their keys' hashes that is private to the
// process: whoever can choose hashes cannot choose where they lie. A slot whose counter
// has fully recovered equals no slot: it is reused where it lies, or swept when
// its partition runs full, so there is no expiry queue and nothing runs in the
// background. Growing adds a block of slots and spreads the others in place, so
// that it leaves no garbage behind.
//
// A partition can be given away: [Table.Export] lists its counters in spans, and
// [Table.Import] takes them in under another clock, in place of what is there or
// merged with it.
//
// Time is passed in, and may go back, for a counter as [limiter.State] says; other
// counters notice nothing. But what had recovered by the latest instant may have been
// forgotten. What a partition is as a whole, for other nodes, is of its latest instant.
package table

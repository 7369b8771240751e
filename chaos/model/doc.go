// Package model explores the protocol of one closed partition exhaustively: every state
// that three members can come to within bounds, with a few faults. It is a
// model, written for this purpose; docs/protocol.md describes the protocol, and
// internal/cluster/replica is the program.
//
// Some of what it leaves out makes more possible, not less:
//
//   - There is no time. Whatever waits for a span may happen at any moment, so an heir may
//     take over from a living owner, and an owner may renew its epoch without a reason.
//   - Each batch carries the whole state, so none is missing.
//   - There is no view: a claim counts any instance that answered it.
//
// The limit is one unit, and replication is strict: a second unit that is answered breaks
// the promise. Counters of epochs, questions and faults are bounded, and one message at most
// is on its way from one member to another, so that the number of states is finite. Last
// resorts, pushes, doubts and sole copies are not modelled.
package model

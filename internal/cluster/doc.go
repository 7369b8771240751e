// Package cluster finds the node that decides a check. Every partition of the key space
// has one owner at a time, which decides in memory. Its heir has a copy and takes over
// if the owner cannot be reached. All other nodes ask the owner. If neither owner nor
// heir answers in time, the policy of the rule answers.
//
// [Core] never waits for another member, except in [Core.Check] and [Core.CheckMany]: an
// operation starts, and completes by callback. The clock and the timers are injected as
// a [Scheduler]. Frames for other members go into an outbox, and a [Network] takes them
// from there. So the program and the simulator run the same code.
package cluster

// Package cluster decides who decides. Every partition of the key space has one
// owner at a time, which decides in memory; its heir has a copy and takes over;
// everybody else asks. When neither can be asked, the policy of the rule
// answers.
//
// The core, [Core], never waits: an operation starts and completes by callback,
// and the [Scheduler] that it is given owns time and every timer. What it has to
// say to another member it leaves in an outbox, from which a [Network] takes it.
// So a program and a simulator drive the same code.
package cluster

// Package gubernatorv1 is the protocol of Gubernator's clients, version 1: messages and
// stubs, generated from gubernator.proto. Package internal/gubernator serves it.
package gubernatorv1

//go:generate ../../generate.sh gubernator/v1/gubernator.proto

// Package gubernator serves Gubernator's protocol V1 to its clients: GetRateLimits,
// HealthCheck and LiveCheck, over gRPC and as JSON over HTTP. Its messages are those of
// package proto/gubernator/v1.
//
// Each rate limit becomes a request to the node with a limit of its own, so counters are
// owned, copied and handed over like all others. Where documentation and program of the
// original differ, this package does what is documented; docs/gubernator.md has the list.
package gubernator

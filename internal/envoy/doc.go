// Package envoy serves Envoy's global rate limit service: the gRPC method ShouldRateLimit
// of envoy.service.ratelimit.v3.RateLimitService. Limits come from files in the format of
// envoyproxy/ratelimit (package config), and from the descriptors of requests.
//
// Each limit of a descriptor becomes a limit of a request to the node, so counters are
// owned, copied and handed over like all others.
package envoy

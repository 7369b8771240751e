// Package config reads configuration files of Envoy's global rate limit service in the
// format of envoyproxy/ratelimit, and looks descriptors up in them.
//
// It accepts the same files as that program, with the same error texts, and finds the same
// limits. It knows nothing of gRPC and of counters.
package config

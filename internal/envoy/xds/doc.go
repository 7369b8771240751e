// Package xds takes the configuration of Envoy's rate limit service from a management server,
// over the state-of-the-world protocol of xDS, as Envoy Gateway offers it.
package xds

// Package transport serves a node over the network: over gRPC (service weir.v1.Limiter,
// with health and reflection) and over HTTP with JSON.
//
// A [Server] takes a [Decider], such as a node, and serves it on listeners; see
// [Listen]:
//
//	server, err := transport.NewServer(transport.Options{Decider: node})
//	...
//	go func() { failed <- server.Serve(grpcListener, httpListener) }()
//	...
//	err = server.Shutdown(ctx) // answers what it has begun, within ctx
//
// It decides nothing itself: package weirwire turns messages into [limiter.Request] and a
// [limiter.Decision] into messages. Times on the wire are durations, in microseconds in
// gRPC, and in milliseconds, rounded up, in JSON.
package transport

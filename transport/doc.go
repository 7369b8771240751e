// Package transport lets others ask a node over the network: gRPC (service
// weir.v1.Limiter, with health and reflection) and HTTP with JSON.
//
// A [Server] is given whatever decides, as a [Decider], and serves it on the
// listeners that it is given, see [Listen]:
//
//	server, err := transport.NewServer(transport.Options{Decider: node})
//	...
//	go func() { failed <- server.Serve(grpcListener, httpListener) }()
//	...
//	err = server.Shutdown(ctx) // answers what it has begun, within ctx
//
// It decides nothing itself: it turns what comes over the wire into
// [limiter.Request], and a [limiter.Decision] into the wire's form. Times on the
// wire are durations, in microseconds in gRPC and in milliseconds, rounded up,
// in JSON.
//
// For those who ask, [NewCheckRequest] and [AnswerOf] turn the words of package
// limiter into messages and back.
package transport

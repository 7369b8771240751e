// Package dialing has what a caller of nodes shows to them: TLS with its own certificate,
// and a token. Both come from files and follow them as they change. It makes options of
// gRPC connections and transports of HTTP.
package dialing

// Package grpclimit limits the rates of gRPC calls. Its interceptors ask a decider,
// such as a weir.Node, whether a call may pass, report the remaining quota in the
// metadata, and refuse with RESOURCE_EXHAUSTED when it is used up.
//
//	limit, err := grpclimit.New(node, grpclimit.Token(tokens, "sub", "plan"))
//	...
//	grpc.NewServer(
//		grpc.ChainUnaryInterceptor(limit.UnaryServer()),
//		grpc.ChainStreamInterceptor(limit.StreamServer()))
//
// Interceptors for clients hold back calls before they are sent. [Limiter.Check] does
// the same as a plain call in a method.
//
// # Who is counted
//
// A call is counted by the rules of the decider. They see these parts of it:
//
//   - Path: the full name of the method, /weir.v1.Limiter/Check.
//   - Method: UNARY, STREAM when a stream opens, and MESSAGE for each message
//     that the server receives on it, if [PerMessage] asks for that. Rules may
//     match on it, or give it a cost.
//   - IP: the peer's address, unless [TrustedProxies] are named; of IPv6 rules
//     count its /64, except ::1. A client's own calls have none.
//   - User and Group: empty unless an option says where to find them. A call
//     without a user is counted by its IP where a rule counts by user, so an
//     expired token is counted like no token at all. Trust only [Token], a TLS
//     identity ([FromTLS]) and values that were verified before. Metadata is only as
//     trustworthy as the proxy that sets it.
//   - Attributes and cost: see [Attribute] and [CostFunc].
//
// A part longer than limiter.MaxFieldBytes, 8 KiB, does not bypass the limit: the call is refused
// with INVALID_ARGUMENT.
//
// # What the caller learns
//
// The header metadata contains ratelimit and ratelimit-policy, as in revision 10 of the
// IETF draft "RateLimit header fields for HTTP" (see package httplimit), and on a
// denial retry-after, in seconds. A denial is RESOURCE_EXHAUSTED with details:
// ErrorInfo (reason RATE_LIMITED, domain weir, with rule and limit), QuotaFailure with
// each limit that denied, and RetryInfo, unless the cost can never be allowed. If the
// decider denied by policy because the counters could not be reached, the code is
// UNAVAILABLE. [OnDenied] replaces these errors.
package grpclimit

// Package httplimit limits the rates of HTTP requests. It asks a decider, such as a
// weir.Node, whether a request may pass, reports the remaining quota in header fields,
// and answers 429 when it is used up.
//
//	limit, err := httplimit.New(node,
//		httplimit.TrustedProxies(netip.MustParsePrefix("10.0.0.0/8")),
//		httplimit.Token(tokens, "sub", "plan"))
//	...
//	http.ListenAndServe(addr, limit(mux))
//
// The middleware fits wherever a func(http.Handler) http.Handler does: around an app, a
// router, a group of routes or one handler, several times if needed. [Limiter.Check]
// does the same as a plain call in a handler. The http.ResponseWriter is not wrapped,
// so streaming, hijacking and http.ResponseController work as without the middleware. With
// [Settle] it is wrapped, and they work too.
//
// # Who is counted
//
// A request is counted by the rules of the decider. They see these parts of it:
//
//   - Path: the path with "//" made "/", without a slash at the end and without
//     parameters (";v=1"), percent decoded but for "%2F", so that no other
//     spelling of a path has a counter of its own. Status 400 answers a path that
//     a server behind may read as another one: with "." or ".." segments, a
//     backslash, a control character or an ASCII character in an overlong form, however often they
//     are encoded; with "#", which ends the path for some proxies; with an encoded
//     slash at the beginning, at the end, beside another slash or among parameters,
//     which some proxies decode and merge; and with "/", "#" or "?" encoded twice.
//     See [Path] for other ways. An encoded slash elsewhere is counted as "%2F": a
//     rule for "^/a/b$" does not match "/a%2Fb", so a guard of a server that decodes
//     it needs a rule for both. "%23", "%3F" and "%3B" are parts of a name ("/tags/c%23"),
//     since a server that gets them encoded serves them as such. So "/login;x" is counted
//     as "/login", and "/login%3Bx" as a path of its own. A proxy must not hand on the
//     decoded path (in nginx: proxy_pass with $uri or a path): a server that drops
//     parameters would serve the latter as "/login", and each suffix has its own counter.
//   - Method: as it came. A rule for GET is not one for HEAD, which most routers
//     answer by the same handler: name both.
//   - IP: the address of the connection, unless [TrustedProxies] are named; of
//     IPv6 rules count its /64, except ::1.
//   - User and Group: empty unless an option says where to find them. A request
//     without a user is counted by its IP where a rule counts by user, so a
//     session with a bad signature or an expired token is counted like no
//     session at all. Trust only [Session], [Token] and values that were verified
//     before. A header is only as trustworthy as the proxy that sets it.
//   - Attributes and cost: see [Attribute], [CostByMethod] and [CostFunc].
//
// A part longer than limiter.MaxFieldBytes, 8 KiB, does not bypass the limit: the request is
// refused with status 400, and with 414 if it is the path.
//
// # What the response says
//
// The fields of [Headers] are set before the next handler runs. It sees them in
// w.Header() and may replace them. If two limiters see one request, the lists of
// RateLimit and RateLimit-Policy contain the limits of both, and X-RateLimit shows the
// limit with the least remaining of both. Shadow rules, unlimited ones and requests
// that no rule matches set no field.
//
// A denied request is answered with 429, Retry-After in whole seconds (rounded up;
// absent if the cost can never be allowed) and a problem (RFC 9457) of the type
// quota-exceeded, which names the limits that denied. If the decider denied by policy
// because the counters could not be reached, the status is 503. A rule with deny sets the
// status, 403 unless it names another, and the detail. [OnDenied] replaces
// these answers.
//
// Browsers show these fields to scripts of another origin only if the service lists
// them in Access-Control-Expose-Headers. Put the CORS handler outside the limiter, so
// that denials have its fields, too.
package httplimit

// Package client asks nodes of Weir over gRPC. Many goroutines share one stream to each
// node.
//
//	c, err := client.Open(client.Config{Addrs: []string{"10.0.0.1:8081", "10.0.0.2:8081"}})
//	...
//	defer c.Close()
//	d, err := c.Check(ctx, limiter.Request{Path: "/towns", User: "ada"})
//
// Checks travel in columns of a message. A message is sent as soon as there is a check
// to send and fewer than [Config.Window] messages are in flight; otherwise when the
// next reply arrives. So a single check leaves at once, and under load messages grow by
// themselves. No check waits for a timer.
//
// A [Client] has the methods of a node in the same process, so the middlewares accept
// it. A node knows its callers by certificates and tokens. So a request with a Tenant, Caller, Scope, Lent, Rate or
// Fast, which a node in the same process takes, is [ErrInvalid] here.
//
// A denial is a decision. An error means that there is none. It is
// [ErrInvalid], [ErrUnavailable], [ErrUnanswered], [ErrBusy], [ErrDenied], [ErrSettled] or [ErrClosed], and states
// whether the check may have been counted, by the last attempt or by an earlier one. Whether a request without a
// decision may pass is up to the caller.
package client

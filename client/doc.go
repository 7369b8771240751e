// Package client asks nodes of Weir over gRPC, with many goroutines on one stream
// to each node.
//
//	c, err := client.Open(client.Config{Addrs: []string{"10.0.0.1:8081", "10.0.0.2:8081"}})
//	...
//	defer c.Close()
//	var d limiter.Decision
//	err = c.Check(ctx, &limiter.Request{Path: "/towns", User: "ada"}, &d)
//
// Checks travel in columns, and a message is sent when there is something to send
// and fewer than [Config.Window] are on their way, else when a reply comes back. So
// a check that is alone leaves at once, and under load messages grow by themselves;
// no check waits for a timer.
//
// A [Client] has the methods of a node in the same process, so the middlewares take
// it. A refusal is a decision; an error means that there is no decision. Which
// errors there are, and what each says of what was counted, stands at [ErrInvalid],
// [ErrUnavailable], [ErrUnanswered], [ErrBusy] and [ErrClosed]; what to do about a
// missing decision, let pass or not, is for the caller to say.
package client

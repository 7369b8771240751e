// Package weir is a rate limiter. It decides in memory, exact to one unit, whether a
// request may pass.
//
// A [Node] decides requests by the rules of a policy file. It is embedded in a service:
//
//	node, err := weir.Open(ctx, weir.Config{Rules: policy})
//	...
//	d, err := node.Check(ctx, weir.Request{Path: "/towns", User: "ada"})
//	if err != nil {
//		return err // the request was invalid; nothing was counted
//	}
//	if !d.Allowed {
//		wait(d.RetryAfter)
//	}
//
// [Node.Allow] needs no policy file: it takes a key and its limits. [Node.CheckInto] is
// Check without an allocation.
//
// All limits of a rule, for all its keys, are decided together: either every limit
// admits the request and is charged, or none is. A denial is a [Decision], never an
// error.
//
// The arithmetic is in package limiter, the counters are in limiter/table and the
// policy file is in rules. This package assembles them.
package weir

// Package weir limits rates: it decides, in memory and to the unit, whether a
// request may pass.
//
// A [Node] decides requests by the rules of a policy file. It is embedded in a
// service:
//
//	node, err := weir.Open(ctx, weir.Config{Rules: policy})
//	...
//	var d weir.Decision
//	if err := node.Check(ctx, &weir.Request{Path: "/towns", User: "ada"}, &d); err != nil {
//		return err // the request was invalid; nothing was counted
//	}
//	if !d.Allowed {
//		wait(d.RetryAfter.Duration())
//	}
//
// All limits of a rule, and all its keys, are decided together: either each
// admits the request and is charged, or none is. A refusal is a [Decision],
// never an error.
//
// The arithmetic is in package limiter, the memory in limiter/table and the
// policy file in rules; this package assembles them.
package weir

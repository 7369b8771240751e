package weir_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
)

// frozen is a clock that stands still, so that examples print the same.
func frozen() time.Time { return time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC) }

func Example() {
	ctx := context.Background()
	node, err := weir.Open(ctx, weir.Config{Now: frozen, Rules: []byte(`
version: 1
rules:
  - name: towns
    match: {path: "^/towns"}
    limits: [2/second, 100/minute]
`)})
	if err != nil {
		panic(err)
	}
	defer node.Close()

	for range 3 {
		d, err := node.Check(ctx, weir.Request{Path: "/towns", User: "ada"})
		if err != nil {
			panic(err)
		}
		fmt.Println(d.Allowed, d.RetryAfter)
	}
	// Output:
	// true 0s
	// true 0s
	// false 1.5s
}

// Allow needs no rules file: a key and its limits.
func ExampleNode_Allow() {
	ctx := context.Background()
	node, _ := weir.Open(ctx, weir.Config{Now: frozen})
	defer node.Close()

	perMinute, err := weir.NewLimit(weir.Spec{Limit: 2, Window: time.Minute, Algorithm: limiter.TokenBucket})
	if err != nil {
		panic(err)
	}
	for range 3 {
		d, _ := node.Allow(ctx, "export of ada", perMinute)
		fmt.Println(d.Allowed, d.RetryAfter)
	}
	// Output:
	// true 0s
	// true 0s
	// false 30s
}

// CheckInto allocates nothing if the decision is used again.
func ExampleNode_CheckInto() {
	ctx := context.Background()
	node, _ := weir.Open(ctx, weir.Config{Now: frozen, Rules: []byte(`
version: 1
rules: [{name: all, key: [user], limits: [1/second]}]
`)})
	defer node.Close()

	var d weir.Decision
	for _, user := range []string{"ada", "bob", "ada"} {
		if err := node.CheckInto(ctx, &weir.Request{User: user}, &d); err != nil {
			panic(err)
		}
		fmt.Println(user, d.Allowed)
	}
	// Output:
	// ada true
	// bob true
	// ada false
}

// Limits may come with the request: no rules file is needed.
func ExampleNewLimit() {
	ctx := context.Background()
	node, _ := weir.Open(ctx, weir.Config{Now: frozen})
	defer node.Close()

	perMinute, err := weir.NewLimit(weir.Spec{Limit: 1, Window: time.Minute})
	if err != nil {
		panic(err)
	}
	limits := []*weir.Limit{perMinute}
	for range 2 {
		d, _ := node.Check(ctx, weir.Request{Path: "/report", User: "bob", Limits: limits})
		fmt.Println(d.Allowed, d.Rule, d.Limit(0).Remaining)
	}
	// Output:
	// true request 0
	// false request 0
}

// A cost of several units, and a peek that costs nothing.
func ExampleNode_Peek() {
	ctx := context.Background()
	node, _ := weir.Open(ctx, weir.Config{Now: frozen, Rules: []byte(`
version: 1
rules: [{name: all, key: [user], limits: [10/minute]}]
`)})
	defer node.Close()

	request := weir.Request{User: "ada", Cost: weir.Units(7)}
	d, _ := node.Check(ctx, request)
	fmt.Println(d.Allowed, d.Limit(0).Remaining)
	d, _ = node.Peek(ctx, request)
	fmt.Println(d.Allowed, d.Limit(0).Remaining)
	// Output:
	// true 3
	// false 3
}

// Explain shows each key, its state and the arithmetic.
func ExampleNode_Explain() {
	ctx := context.Background()
	node, _ := weir.Open(ctx, weir.Config{Now: frozen, Rules: []byte(`
version: 1
rules: [{name: all, limits: [{limit: 10, window: minute, algorithm: token_bucket}]}]
`)})
	defer node.Close()

	request := weir.Request{Path: "/", User: "ada", Cost: weir.Units(4)}
	node.Check(ctx, request)
	e, _ := node.Explain(ctx, request)
	for _, l := range e.Limits {
		fmt.Println(l.Name, l.Key, l.State[0].Name, l.State[0].Value)
		fmt.Println(l.Arithmetic)
	}
	// Output:
	// all/minute /:ada:minute tokens 6
	// tokens 6 >= 4: yes
}

// A refund takes a charge back, for instance when the work was not done.
func ExampleNode_Refund() {
	ctx := context.Background()
	node, _ := weir.Open(ctx, weir.Config{Now: frozen, Rules: []byte(`
version: 1
rules: [{name: all, limits: [1/hour]}]
`)})
	defer node.Close()

	request := weir.Request{Path: "/export", User: "ada"}
	d, _ := node.Check(ctx, request)
	node.Refund(ctx, request, d.Receipt)
	d, _ = node.Check(ctx, request)
	fmt.Println(d.Allowed)
	// Output: true
}

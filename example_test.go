package weir_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
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

	var d weir.Decision
	for range 3 {
		if err := node.Check(ctx, &weir.Request{Path: "/towns", User: "ada"}, &d); err != nil {
			panic(err)
		}
		fmt.Println(d.Allowed, d.RetryAfter.Duration())
	}
	// Output:
	// true 0s
	// true 0s
	// false 1.5s
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
		d, _ := node.Decide(ctx, weir.Request{Path: "/report", User: "bob", Limits: limits})
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
	var d weir.Decision
	node.Check(ctx, &request, &d)
	fmt.Println(d.Allowed, d.Limit(0).Remaining)
	node.Peek(ctx, &request, &d)
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
	node.Decide(ctx, request)
	e, _ := node.Explain(ctx, &request)
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
	var d weir.Decision
	node.Check(ctx, &request, &d)
	node.Refund(ctx, &request, d.Receipt)
	node.Check(ctx, &request, &d)
	fmt.Println(d.Allowed)
	// Output: true
}

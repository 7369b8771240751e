package rules_test

import (
	"fmt"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/rules"
)

// A request becomes counters and costs, which a decider then decides.
func ExampleSet_Resolve() {
	set, err := rules.Parse("rules.yaml", []byte(`
version: 1
rules:
  - name: towns
    match: {path: ^/towns}
    limits: [5/second, 100/minute]
    cost: {POST: 2}
  - {name: admins, match: {group: admin}, unlimited: true}
`), rules.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	request := limiter.Request{Path: "/towns", Method: "POST", User: "ada"}
	var charge arith.Charge // used again for the next request
	match, err := set.Resolve(&request, &charge)
	if err != nil {
		fmt.Println(err)
		return
	}
	key := charge.Key(0)
	fmt.Println(match.Rule, "costs", key.Cost)
	for _, limit := range key.Rule.Limits {
		fmt.Println(string(set.AppendKeyName(nil, &request, key, limit)))
	}
	// Output:
	// towns costs 2
	// /towns:ada:second
	// /towns:ada:minute
}

// All that is wrong with a file comes at once, with what was probably meant.
func ExampleParse() {
	_, err := rules.Parse("rules.yaml", []byte(`
rules:
  - name: towns
    limts: [5/second]
  - name: login
    key: [usr]
    limits: [10/minuet]
`), rules.Options{})
	fmt.Println(err)
	// Output:
	// rules.yaml:4:5: unknown field "limts"; did you mean "limits"? (in a rule)
	// rules.yaml:6:11: unknown part of a key "usr"; did you mean "user"?
	// rules.yaml:7:14: "minuet" is not a duration; did you mean "minute"?
}

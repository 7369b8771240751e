package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/rules"
)

// Rules that tell values apart, or groups, leave no value without a rule, or there is a warning.
func TestUnlistedValues(t *testing.T) {
	gaps := func(file string) (out []rules.Warning) {
		for _, w := range warningsOf(t, file) {
			if strings.Contains(w.Text, "finds no rule and has no limit") {
				out = append(out, w)
			}
		}
		return out
	}
	const end = ", key: [user], limits: [5/hour]}\n"
	for _, x := range []struct{ file, at, text, instead string }{
		{"- {name: free, match: {attributes: {plan: [free, '']}}" + end + "- {name: pro, match: {attributes: {plan: pro}}" +
			end, "2:43",
			`another value of attribute "plan" (such as "FREE") finds no rule`,
			"- {name: other_plan, key: [user], limits: [5/hour]}"},
		{"- {name: free, match: {attributes: {plan: free}}" + end + "- {name: pro, match: {attributes: {plan: pro}}" + end,
			"2:43",
			`another value of attribute "plan" (such as "FREE"), or without it, finds no rule`,
			"- {name: other_plan, key: [user], limits: [5/hour]}"},
		{"- {name: free, match: {path: ^/a, attributes: {plan: free}}" + end +
			"- {name: pro, match: {path: ^/a, attributes: {plan: [pro, '']}}" + end, "2:54",
			`another value of attribute "plan" (such as "FREE") finds no rule`,
			"- {name: other_plan, match: {path: '^/a'}, key: [user], limits: [5/hour]}"},
		{"- {name: free, match: {attributes: {plan: free}}" + end +
			"- {name: pro, match: {attributes: {plan: {not: [free, '']}}}" + end +
			"- {name: gold, match: {attributes: {plan: gold}}" + end, "2:43",
			`attribute "plan" missing finds no rule`, "- {name: other_plan, key: [user], limits: [5/hour]}"},
		{"- {name: free, match: {attributes: {plan: ['', free]}}" + end, "2:43",
			`another value of attribute "plan" (such as "FREE") finds no rule`,
			"- {name: other_plan, key: [user], limits: [5/hour]}"},
		{"- {name: gold, match: {group: gold}" + end + "- {name: staff, match: {group: staff}, unlimited: true}\n", "2:3",
			`rule "gold" limits by groups, and a request with another group (such as "GOLD"), or in "default", finds no rule`,
			"- {name: other_groups, key: [user], limits: [5/hour]}"},
		{"- {name: gold, match: {group: gold}" + end + "- {name: rest, match: {group: default}" + end, "2:3",
			`another group (such as "GOLD") finds no rule`, "- {name: other_groups, key: [user], limits: [5/hour]}"},
	} {
		got := gaps("rules:\n" + x.file)
		if len(got) != 1 || fmt.Sprintf("%d:%d", got[0].Line, got[0].Column) != x.at ||
			!strings.Contains(got[0].Text, x.text) || got[0].Instead != x.instead {
			t.Errorf("%s: %+v; want %s, %s, %s", x.file, got, x.at, x.text, x.instead)
			continue
		}
		if got := gaps("rules:\n" + x.file + got[0].Instead + "\n"); len(got) > 0 {
			t.Errorf("with what is to be written: %+v", got)
		}
		if strings.Contains(x.instead, "path") {
			continue
		}
		for _, rest := range []string{"- {name: others, unlimited: true}\n", "- {name: others, deny: true}\n"} {
			if got := gaps("rules:\n" + x.file + rest); len(got) > 0 {
				t.Errorf("with %s: %+v", rest, got)
			}
		}
	}
	for _, file := range []string{
		"- {name: free, match: {attributes: {plan: free}}" + end,
		"- {name: free, match: {attributes: {plan: free}}" + end + "- {name: rest, match: {attributes: {plan: {not: free}}}" +
			end,
		"- {name: free, match: {attributes: {plan: [free, '']}}" + end +
			"- {name: rest, match: {attributes: {plan: {pattern: .}}}" + end,
		"- {name: free, match: {attributes: {plan: free}}" + end +
			"- {name: trial, match: {attributes: {plan: pro}}, shadow: true, continue: true" + end,
		"- {name: gold, match: {group: gold}" + end + "- {name: rest, match: {not_group: gold}" + end,
		"- {name: all, continue: true" + end + "- {name: gold, match: {group: gold}" + end +
			"- {name: free, match: {group: free}" + end,
	} {
		if got := gaps("rules:\n" + file); len(got) > 0 {
			t.Errorf("%s: %+v", file, got)
		}
	}
	// What is warned of is so.
	set := mustSet(t, "rules:\n- {name: free, match: {attributes: {plan: [free, '']}}"+end+
		"- {name: pro, match: {attributes: {plan: pro}}"+end, rules.Options{})
	var c arith.Charge
	if m, err := set.Resolve(&limiter.Request{Attributes: map[string]string{"plan": "FREE"}}, &c); err != nil ||
		m.Rule != "" {
		t.Errorf("%+v, %v", m, err)
	}
}

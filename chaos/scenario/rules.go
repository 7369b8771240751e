//go:build linux

package scenario

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirlimit/weir/chaos/attack"
	"github.com/weirlimit/weir/chaos/history"
)

// rules returns those of every run: each policy and both ways of replication,
// with limits that recover within a run and limits that never do. Two are quotas, whose
// units are spent by two rules each, and two are asked for so often that owners lend them.
func rules() []history.Rule {
	const window = history.Micros(2 * time.Second / time.Microsecond)
	const day = history.Micros(24 * time.Hour / time.Microsecond)
	return []history.Rule{
		{Name: "log-local", Limit: 20, Window: window, Policy: "local"},
		{Name: "log-closed", Limit: 20, Window: window, Policy: "closed"},
		{Name: "log-strict", Limit: 20, Window: window, Policy: "closed", Strict: true},
		{Name: "log-open", Limit: 20, Window: window, Policy: "open"},
		{Name: "bucket-local", Limit: 20, Burst: 20, Window: window, Policy: "local", Quota: true},
		{Name: "day-local", Limit: 60, Window: day, Policy: "local", Once: true},
		{Name: "day-closed", Limit: 60, Window: day, Policy: "closed", Once: true, Quota: true},
		{Name: "day-strict", Limit: 60, Window: day, Policy: "closed", Strict: true, Once: true},
		{Name: "several", Limit: 20, Window: window, Policy: "closed", Several: true},
		{Name: "lent-closed", Limit: 4000, Window: window, Policy: "closed", Lent: true},
		{Name: "lent-local", Limit: 8000, Window: day, Policy: "local", Once: true, Lent: true},
	}
}

// paired is the rule of pairs of keys that never recover, which are asked about where a
// scenario says so.
func paired() history.Rule {
	return history.Rule{Name: "pairs", Limit: 60, Window: history.Micros(24 * time.Hour / time.Microsecond),
		Policy: "closed", Several: true, Once: true}
}

// served is all rules that clients may ask about.
func served() []history.Rule { return append(rules(), paired()) }

// crowdedRule and steppedRules are what attacks ask about: counters that are made to
// collide, and a check by two rules of which one differs between the nodes.
func crowdedRule() string {
	return fmt.Sprintf("  - {name: %s, match: {path: \"^/%s$\"}, key: [user], limits: [100/hour]}\n", attack.CrowdedRule,
		attack.CrowdedRule)
}

func steppedRules(limit int) string {
	path := attack.SteppedPath
	return fmt.Sprintf("  - {name: stepped-all, match: {path: \"^%s$\"}, key: [rule], limits: [%d/hour], continue: "+
		"true}\n"+
		"  - {name: stepped-user, match: {path: \"^%s$\"}, key: [user], limits: [1000/second]}\n", path, limit, path)
}

// attackedRules are the rules of every run and those that attacks ask about.
func attackedRules(steppedLimit int) string {
	return yaml(served(), unaskedLimit, "rules under attack") + crowdedRule() + steppedRules(steppedLimit)
}

// yaml writes rules as a rules file, the unasked one with a limit, and that of floods.
func yaml(rules []history.Rule, limit int, comment string) string {
	var b, quotas strings.Builder
	fmt.Fprintf(&b, "  - {name: %s, match: {path: \"^/%s$\"}, key: [user], limits: [{limit: %d, window: 1h, algorithm: "+
		"fixed_window}]}\n", unasked, unasked, limit)
	fmt.Fprintf(&b, "  - {name: %s, match: {path: \"^/%s$\"}, key: [user], limits: [{limit: 10, window: %dms, "+
		"algorithm: sliding_log}]}\n", fresh, fresh, freshWindow.Milliseconds())
	b.WriteString(yamlOfMoved())
	for i := range rules {
		r := &rules[i]
		limit := fmt.Sprintf("{limit: %d, window: %dms, algorithm: sliding_log}", r.Limit, r.Window/1000)
		switch {
		case r.Burst > 0:
			limit = fmt.Sprintf("{limit: %d, window: %dms, algorithm: token_bucket, burst: %d}", r.Limit, r.Window/1000, r.Burst)
		case r.Once && !r.Several && !r.Lent: // a first hit could not be taken back, and is not lent
			limit = fmt.Sprintf("{limit: %d, window: %dms, algorithm: fixed_window, align: first_hit}", r.Limit, r.Window/1000)
		}
		keys, replication := "key: [user]", "lag"
		if r.Several {
			keys = "keys: [[ip], [user]]"
		}
		if r.Strict {
			replication = "strict"
		}
		leases := "off"
		if r.Lent {
			leases = "auto"
		}
		counts := fmt.Sprintf("%s, limits: [%s], on_unreachable: %s, replication: %s, leases: %s", keys, limit, r.Policy,
			replication, leases)
		if r.Quota {
			fmt.Fprintf(&quotas, "  - {name: %s, %s}\n", r.Name, counts)
			counts = fmt.Sprintf("quotas: [%s]", r.Name)
		}
		for j, path := range r.Paths() {
			name := r.Name
			if r.Quota {
				name = fmt.Sprintf("%s-by-%d", r.Name, j)
			}
			fmt.Fprintf(&b, "  - {name: %s, match: {path: \"^%s$\"}, %s}\n", name, path, counts)
		}
	}
	head := fmt.Sprintf("# %s\nversion: 1\n", comment)
	if quotas.Len() > 0 {
		head += "quotas:\n" + quotas.String()
	}
	return head + "rules:\n" + b.String()
}

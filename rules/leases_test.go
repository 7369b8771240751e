package rules_test

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/rules"
)

// Which rules lend units, and which are told that they do not.
func TestLeases(t *testing.T) {
	for _, c := range []struct {
		rule  string
		lends bool
		says  string // in a warning
	}{
		{"{name: r, key: [user], limits: [100/second]}", true, ""},
		{"{name: r, key: [user], leases: off, limits: [100/second]}", false, ""},
		{"{name: r, key: [user], shadow: true, limits: [100/second]}", false, ""},
		{"{name: r, keys: [[user], [ip]], limits: [100/second]}", true, ""},
		{"{name: r, key: [user], leases: auto, limits: [100/second, 1000/hour]}", true, ""},
		{"{name: r, key: [user], leases: auto, limits: [{limit: 10, window: 1s, algorithm: token_bucket, burst: 50}]}", true,
			""},
		{"{name: r, key: [user], leases: auto, limits: [{limit: 10, window: 100ms}]}", false, "has no effect"},
		{"{name: r, key: [user], leases: auto, replication: off, limits: [100/second]}", false, "has no effect"},
		{"{name: r, key: [user], leases: auto, shadow: true, limits: [100/second]}", false, "it is in shadow"},
		{"{name: r, key: [user], leases: auto, limits: [{limit: 100, window: 1s, block: 5s}]}", false, "has no effect"},
		{"{name: r, keys: [[user], [ip]], leases: auto, limits: [100/second]}", true, "several counters"},
	} {
		set, err := rules.Parse("rules", []byte("version: 1\nrules:\n  - "+c.rule), rules.Options{})
		if err != nil {
			t.Fatal(c.rule, err)
		}
		if lends := arith.LeaseFor(set.Rule("r")) > 0; lends != c.lends {
			t.Errorf("%s: lends %v", c.rule, lends)
		}
		said := ""
		for _, w := range set.Warnings() {
			if strings.Contains(w.Text, "leases") {
				said = w.Text
			}
		}
		if (said != "") != (c.says != "") || !strings.Contains(said, c.says) {
			t.Errorf("%s: warned %q, want %q", c.rule, said, c.says)
		}
	}
	for _, defaults := range []string{"leases: auto", "leases: maybe"} {
		set, err := rules.Parse("rules", []byte("version: 1\ndefaults: {"+defaults+"}\nrules:\n  - {name: r, key: [user], "+
			"limits: [{limit: 1, window: 100ms}]}"), rules.Options{})
		switch {
		case defaults == "leases: auto" && (err != nil || len(set.Warnings()) > 0):
			t.Errorf("%s: %v", defaults, err)
		case defaults != "leases: auto" && (err == nil || !strings.Contains(err.Error(), `unknown leases "maybe"`)):
			t.Errorf("%s: %v", defaults, err)
		}
	}
}

package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
)

// An answer by a share names it beside the limit. One of a full table says that nothing was
// counted, and names no count as if there were one.
func TestCheckSaysWhatWasApplied(t *testing.T) {
	day := int64(82_800_000)
	for _, c := range []struct {
		name      string
		answer    limiter.Answer
		want, not string
	}{
		{"a share", limiter.Answer{Allowed: true, Rule: "r", Source: "share",
			Limits: []limiter.LimitAnswer{{Name: "r/day", Key: "ada:day", Limit: 100, InForce: 42, Remaining: 41}}},
			"allowed by rule r\n  ada:day  r/day  41 of 42 left, a share of 100\n", ""},
		{"a full table", limiter.Answer{Rule: "r", BlockedBy: "r/day", RetryAfterMs: &day,
			Limits: []limiter.LimitAnswer{{Name: "r/day", Key: "ada:day", Limit: 10, Overflow: true, RetryAfterMs: &day}}},
			"denied: the table has no room for a new counter of r/day\n  ada:day  r/day  not counted: the node's table is " +
				"full (--max-keys, --max-bytes, max_share); room is expected in 23h0m0s\n", "left"},
		{"a full table that allows", limiter.Answer{Allowed: true, Rule: "r",
			Limits: []limiter.LimitAnswer{{Name: "r/day", Key: "ada:day", Limit: 10, Overflow: true, Remaining: 10}}},
			"and it allows new keys\n", "left"},
	} {
		var out bytes.Buffer
		w := checkWriter{out: &out}
		w.answer(&c.answer)
		if got := out.String(); !strings.Contains(got, c.want) || c.not != "" && strings.Contains(got, c.not) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

// What members warn of stands below their list, and below the list of keys.
func TestMembersAndTopWarn(t *testing.T) {
	addr, first := towns(t)
	first.warnings = []string{"in a minority"}
	if _, out, _ := runAs(t, "members", "--server", addr); !strings.Contains(out, "\nnode-1: in a minority\n") ||
		strings.Contains(out, "node-2: in") {
		t.Error(out)
	}
	if _, out, _ := runAs(t, "top", "--server", addr); !strings.Contains(out, "\nin a minority\n") {
		t.Error(out)
	}
}

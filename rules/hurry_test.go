package rules_test

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir/rules"
)

// Policies as people write them who know another limiter and are in a hurry. Each is refused or warned of with what to
// write, or means what they expect; none means something else in silence.
func TestPoliciesInAHurry(t *testing.T) {
	const rest = ", key: [user]"
	for _, x := range []struct{ from, rule, want string }{ // want: a part of an error or a warning; empty: neither
		// alisaifee/limits and flask-limiter
		{"10 per minute", "limits: [10 per minute]" + rest, `did you mean "10/minute"?`},
		{"200 per day;50 per hour", "limits: [200 per day;50 per hour]" + rest, "did you mean a list, [200/day, 50/hour]?"},
		{"1/second as it is", "limits: [1/second]" + rest, ""},
		{"5 per 15 minutes", "limits: [5 per 15 minutes]" + rest, `did you mean "5/15m"?`},
		{"one text, no list", "limits: 10/minute" + rest, ""},
		{"get_remote_address", "limits: [5/second], key: get_remote_address", `unknown part of a key "get_remote_address"`},
		{"strategy", "limits: [5/second], strategy: moving-window" + rest, `unknown field "strategy"`},
		{"exempt_when", "limits: [5/second], exempt_when: admin" + rest, `unknown field "exempt_when"`},
		// bucket4j and resilience4j
		{"capacity and refill", "limits: [{capacity: 10, refill: 10, window: 1m}]" + rest, `unknown field "capacity"`},
		{"Duration.ofMinutes", "limits: [{limit: 10, window: PT1M}]" + rest, `did you mean "1m"?`},
		{"burst without a bucket", "limits: [{limit: 10, window: 1m, burst: 20}]" + rest,
			`sliding_counter does not use "burst"`},
		{"limitForPeriod", "limits: [{limitForPeriod: 10, limitRefreshPeriod: 1s}]" + rest, `unknown field "limitForPeriod"`},
		// Kong and APISIX
		{"second: 5", "limits: {second: 5, hour: 10000}" + rest, `unknown field "second"`},
		{"limit_by: consumer", "limits: [5/second], limit_by: consumer", `unknown field "limit_by"`},
		{"a window as a number", "limits: [{limit: 5, window: 60}]" + rest, "write 60s for seconds"},
		{"consumer", "match: {consumer: gold}, limits: [5/second]" + rest,
			`for an attribute write attributes: {consumer: gold}`},
		{"policy: redis", "limits: [5/second], policy: redis" + rest, `unknown field "policy"`},
		// nginx and HAProxy
		{"rate=10r/s", "limits: [10r/s]" + rest, `did you mean "10/second"?`},
		{"rate=10r/s burst=20", "limits: [{limit: 10r/s, burst: 20}]" + rest, `"10r/s" has a window in it`},
		{"$binary_remote_addr", "limits: [5/second], key: $binary_remote_addr",
			`unknown part of a key "$binary_remote_addr"`},
		{"location /api/", "match: {path: /api/}, limits: [5/second]" + rest, "matches anywhere in a path"},
		{"location ~ \\.php$", "match: {path: '\\.php$'}, limits: [5/second]" + rest, ""},
		{"status 429 of the zone", "limits: [5/second], limit_req_status: 429" + rest, `unknown field "limit_req_status"`},
		// Envoy
		{"unit: MINUTE", "limits: [{requests_per_unit: 5, unit: MINUTE}]" + rest, `unknown field "unit" (in a limit)`},
		{"descriptors", "descriptors: [{key: a}], limits: [5/second]" + rest, `unknown field "descriptors"`},
		{"remote_address", "match: {remote_address: 10.0.0.0/8}, limits: [5/second]" + rest, "remote_address"},
		// express-rate-limit and rate-limiter-flexible
		{"windowMs", "limits: [{limit: 100, windowMs: 900000}]" + rest, `did you mean "window"?`},
		{"window in ms", "limits: [{limit: 100, window: 900000}]" + rest, "write 15m if these are milliseconds"},
		{"max", "limits: [{max: 100, window: 15m}]" + rest, `unknown field "max"`},
		{"points and duration", "limits: [{points: 5, duration: 1}]" + rest, `unknown field "points"`},
		{"blockDuration", "limits: [{limit: 5, window: 1m, block: 900}]" + rest, `block: "900" lacks a unit`},
		{"skip", "match: {path: ^/}, skip: true, limits: [5/second]" + rest, `unknown field "skip"`},
		{"skipSuccessfulRequests", "limits: [5/second], skipSuccessfulRequests: true" + rest,
			`unknown field "skipSuccessfulRequests"`},
		// what people wish
		{"block one user", "match: {user: mallory}, deny: true", ""},
		{"block, by limit 0", "match: {user: mallory}, limits: [0/second]" + rest, "deny: true"},
		{"block, by limit 0, long", "match: {user: mallory}, limits: [{limit: 0, window: 1h}]" + rest, "deny: true"},
		{"allow, by a limit of -1", "match: {user: ada}, limits: [-1/second]" + rest, "out of range"},
		{"as many as wanted", "match: {user: ada}, limits: [unlimited]" + rest, "is not a limit"},
		{"allow: true", "match: {user: ada}, allow: true", `unknown field "allow"`},
		{"action: deny", "match: {user: ada}, action: deny", `unknown field "action"`},
		{"a path with a star", "match: {path: /api/*}, limits: [5/second]" + rest, "'^/api/'"},
		{"a calendar month", "limits: [1000/month]" + rest, "follows no calendar"},
		{"in flight", "limits: [{limit: 10, window: 30s, algorithm: concurrency}]" + rest, "concurrency"},
		{"by address and by user", "limits: [5/minute, 20/hour], keys: [[ip], [user]]", "each key with each limit"},
	} {
		set, err := rules.Parse("f", []byte("rules: [{name: a, "+x.rule+"}]"), rules.Options{})
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			for _, w := range set.Warnings() {
				got += w.Text + "\n"
			}
		}
		if x.want == "" && got != "" || !strings.Contains(got, x.want) {
			t.Errorf("%s: {%s}: %s; want %q", x.from, x.rule, got, x.want)
		}
	}
}

package rules_test

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/rules"
)

// All spellings of an address are one counter, and other addresses are others.
func TestSpellingsOfAnAddress(t *testing.T) {
	set := mustSet(t, "rules:\n- {name: a, key: [ip], limits: [5/second]}\n- {name: b, key: [user], limits: [5/second]}", rules.Options{})
	resolve := func(r limiter.Request) (limiter.Hash, string) {
		t.Helper()
		var c limiter.Charge
		if _, err := set.Resolve(&r, &c); err != nil {
			t.Fatal(err)
		}
		return c.Key(0).Hash, string(set.AppendKeyName(nil, &r, c.Key(0), nil))
	}
	for want, spellings := range map[string][]string{
		"9.9.9.9":               {"::ffff:9.9.9.9", "::FFFF:909:909", "0:0:0:0:0:ffff:9.9.9.9"},
		"2001%3Adb8%3A%3A1":     {"2001:DB8::1", "2001:0db8:0:0:0:0:0:1", "2001:db8:0::1"},
		"2001%3Adb8%3A%3A/64":   {"2001:DB8:0:0::/64", "2001:db8:0::/64"},
		"192.0.2.0/24":          {"::ffff:192.0.2.0/120"},
		"fe80%3A%3A1":           {"FE80::1%eth0", "fe80::1%1", "fe80:0::1%eth1"},
		"192.0.2.9":             {"::ffff:192.0.2.9%eth0"},
		"not":                   {"not"},
		"g%3A%3A1":              {"g::1"},
		"%3A":                   {":"},
		strings.Repeat("x", 80): {strings.Repeat("x", 80)},
	} {
		plain := strings.NewReplacer("%3A", ":", "%25", "%").Replace(want)
		for _, rule := range []string{"a", "b"} {
			hash, name := resolve(limiter.Request{Rule: rule, IP: plain})
			if name != want {
				t.Errorf("%s is named %s", plain, name)
			}
			for _, s := range spellings {
				if h, name := resolve(limiter.Request{Rule: rule, IP: s}); h != hash || name != want {
					t.Errorf("%s is counted as %s, apart from %s", s, name, plain)
				}
			}
			if h, _ := resolve(limiter.Request{Rule: rule, IP: "2001:db8::2"}); h == hash {
				t.Errorf("%s shares the counter of another address", plain)
			}
		}
	}
	if raceEnabled {
		return
	}
	// The spelling that is usual takes no allocation.
	for _, ip := range []string{"9.9.9.9", "2001:db8::1", "2001:db8::/64"} {
		r := limiter.Request{Rule: "a", IP: ip}
		var c limiter.Charge
		if n := testing.AllocsPerRun(100, func() {
			c.Clear()
			_, _ = set.Resolve(&r, &c)
		}); n > 0 {
			t.Errorf("%s: %v allocations", ip, n)
		}
	}
}

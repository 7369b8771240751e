package rules_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/rules"
)

// All spellings of an address are one counter, and other addresses are others.
func TestSpellingsOfAnAddress(t *testing.T) {
	set := mustSet(t, "rules:\n- {name: a, key: [ip], limits: [5/second]}\n- {name: b, key: [user], limits: [5/second]}",
		rules.Options{})
	resolve := func(r limiter.Request) (arith.Hash, string) {
		t.Helper()
		var c arith.Charge
		if _, err := set.Resolve(&r, &c); err != nil {
			t.Fatal(err)
		}
		return c.Key(0).Hash, string(set.AppendKeyName(nil, &r, c.Key(0), nil))
	}
	for want, spellings := range map[string][]string{
		"9.9.9.9": {"::ffff:9.9.9.9", "::FFFF:909:909", "0:0:0:0:0:ffff:9.9.9.9", "9.9.9.9:40001", " 9.9.9.9",
			"[::ffff:9.9.9.9]:80", "9.9.9.9/32", "::ffff:9.9.9.9%eth0"},
		"2001%3Adb8%3A%3A/64": {"2001:db8::1", "2001:DB8:0:0::/64", "2001:db8:0::/64", "2001:db8::7", "[2001:db8::1]:443",
			"2001:0db8:0:0:ffff:0:0:1", "2001:db8::5/64"},
		"2001%3Adb8%3A%3A5":   {"2001:db8::5/128", "2001:DB8:0::5/128"},
		"2001%3Adb8%3A%3A/56": {"2001:db8:0:7::/56"},
		"192.0.2.0/24":        {"::ffff:192.0.2.0/120", "192.0.2.7/24"},
		"fe80%3A%3A/64":       {"fe80::1", "FE80::1%eth0", "fe80::1%1", "fe80:0::1%eth1"},
		"%3A%3A1":             {"::1", "[::1]:80", "0::1"},
	} {
		for _, rule := range []string{"a", "b"} {
			hash, _ := resolve(limiter.Request{Rule: rule, IP: spellings[0]})
			for _, s := range spellings {
				if h, name := resolve(limiter.Request{Rule: rule, IP: s}); h != hash || name != want {
					t.Errorf("%s is counted as %s, apart from %s or not as %s", s, name, spellings[0], want)
				}
			}
			if h, _ := resolve(limiter.Request{Rule: rule, IP: "2001:db8:9::2"}); h == hash {
				t.Errorf("%s shares the counter of another address", want)
			}
		}
	}
	if raceEnabled {
		return
	}
	// The spelling that is usual takes no allocation.
	for _, ip := range []string{"9.9.9.9", "2001:db8::1", "2001:db8::/64", "9.9.9.9:80"} {
		r := limiter.Request{Rule: "a", IP: ip}
		var c arith.Charge
		if n := testing.AllocsPerRun(100, func() {
			c.Clear()
			_, _ = set.Resolve(&r, &c)
		}); n > 0 {
			t.Errorf("%s: %v allocations", ip, n)
		}
	}
}

// What is neither an address nor a network is refused, whatever counts the request: it would be a
// counter of its own, and in no network of a rule.
func TestNoAddress(t *testing.T) {
	set := mustSet(t, "rules:\n- {name: a, key: [ip], limits: [5/second]}\n- {name: b, key: [user], limits: [5/second]}",
		rules.Options{})
	own := limitertest.Limit(t, limiter.Spec{Limit: 1, Window: time.Second})
	for _, ip := range []string{"not", "g::1", ":", "203.0.113.9, 10.0.0.1", "10.0.0.1:", "10.0.0.1:http", "1.2.3.4.5",
		"1.2.3", "01.2.3.4", "1.2.3.256",
		"unknown", "203.0.113.9/33", "fe80::1%eth0/64", "[203.0.113.9]", "203.0.113.9\x00", " ", strings.Repeat("1", 80),
		"1.2.3.4/8/8"} {
		for _, r := range []limiter.Request{{Rule: "a", IP: ip}, {Rule: "b", User: "u", IP: ip}, {IP: ip},
			{Path: "/p", IP: ip, Limits: []*limiter.Limit{own}}} {
			var c arith.Charge
			if _, err := set.Resolve(&r, &c); !errors.Is(err, limiter.ErrInvalid) ||
				!strings.Contains(err.Error(), "neither an address nor a network") || c.Len() != 0 {
				t.Errorf("%+v: %v", r, err)
			}
		}
	}
}

// A network of a rule has the address that stands before a port.
func TestAddressWithPort(t *testing.T) {
	set := mustSet(t, "rules:\n- {name: blocked, match: {ip: [203.0.113.0/24, \"2001:db8::7\"]}, key: [rule], limits: "+
		"[1/day]}\n- {name: all, key: [ip], limits: [5/second]}", rules.Options{})
	for ip, want := range map[string]string{
		"203.0.113.9": "blocked", "203.0.113.9:4444": "blocked", "::ffff:203.0.113.9": "blocked", "203.0.113.9/31": "blocked",
		"2001:db8::7": "blocked", "[2001:db8::7]:1": "blocked",
		"203.0.112.9:4444": "all", "2001:db8::8": "all", "2001:db8::7/64": "all",
	} {
		var c arith.Charge
		m, err := set.Resolve(&limiter.Request{IP: ip}, &c)
		if err != nil || m.Rule != want {
			t.Errorf("%s: %s, %v; want %s", ip, m.Rule, err, want)
		}
	}
}

// Values beyond what a name has are counted, each by itself, and named by their begins and hashes.
func TestLongValues(t *testing.T) {
	set := mustSet(t, "rules:\n- {name: a, key: [path, user], limits: [5/second]}", rules.Options{})
	seen := map[arith.Hash]string{}
	names := map[string]bool{}
	jwt := "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ." + strings.Repeat("payload", 300)
	for _, user := range []string{jwt, jwt + "x", jwt[1:], strings.Repeat("u", 256), strings.Repeat("u", 257),
		strings.Repeat("u", limiter.MaxFieldBytes)} {
		r := limiter.Request{Path: "/p", User: user}
		var c, again arith.Charge
		if _, err := set.Resolve(&r, &c); err != nil {
			t.Fatalf("%d bytes: %v", len(user), err)
		}
		if _, err := set.Resolve(&r, &again); err != nil || again.Key(0).Hash != c.Key(0).Hash {
			t.Errorf("%d bytes are two counters: %v", len(user), err)
		}
		if other, ok := seen[c.Key(0).Hash]; ok {
			t.Errorf("%.20s and %.20s share a counter", user, other)
		}
		seen[c.Key(0).Hash] = user
		name := string(set.AppendKeyName(nil, &r, c.Key(0), nil))
		if len(name) > limiter.MaxKeyBytes || names[name] || !strings.HasPrefix(name, "/p:"+user[:15]+"~") {
			t.Errorf("%d bytes are named %s", len(user), name)
		}
		names[name] = true
	}
}

package rules

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

const overridden = `version: 1
quotas: [{name: all, key: [user], limits: [1000/minute]}]
rules:
  - {name: login, match: {path: ^/login$}, key: [user], limits: [5/minute]}
  - {name: both, match: {path: ^/both$}, keys: [[user], [ip]], limits: [5/minute], quotas: [all]}
  - {name: never, match: {path: ^/never$}, deny: true}
  - {name: free, match: {path: ^/free$}, unlimited: true}
  - {name: draws, match: {path: ^/draws$}, quotas: [all]}
  - {name: trial, match: {path: ^/trial$}, key: [user], limits: [5/minute], shadow: true}
  - {name: every, match: {path: ^/then}, key: [user], limits: [100/minute], continue: true}
  - {name: not, match: {path: ^/then/never}, deny: true}
  - {name: open, match: {path: ^/then/open}, unlimited: true}
  - {name: last, match: {path: ^/then}, key: [user], limits: [5/minute]}
`

func TestOverrides(t *testing.T) {
	limit, err := OverrideLimit("10/minute")
	if err != nil {
		t.Fatal(err)
	}
	for _, second := range []string{"", "another secret"} {
		s, err := Parse("rules", []byte(overridden), Options{Secret: []byte("a secret"), Second: []byte(second)})
		if err != nil {
			t.Fatal(err)
		}
		n := 1 // keys of each counter
		if second != "" {
			n = 2
		}
		about := func(rule, user string, f func(*Override)) []Override {
			o := Override{Rule: rule, User: user}
			if f != nil {
				f(&o)
			}
			return []Override{o}
		}
		deny, limited := func(o *Override) { o.Deny = true }, func(o *Override) { o.Limit = limit }
		address := func(o *Override) { o.Deny, o.IP = true, "192.0.2.1" }
		tenant := func(o *Override) { o.Deny, o.Tenant = true, "bank" }
		ask := func(path, user, ip string) *limiter.Request { return &limiter.Request{Path: path, User: user, IP: ip} }
		bank := ask("/login", "ada", "")
		bank.Tenant = "bank"
		named := ask("", "ada", "")
		named.Rule = "login"
		for _, c := range []struct {
			name string
			list []Override
			ask  *limiter.Request
			want Outcome
			keys int // of the override's rule
			all  int
		}{
			{"deny", about("login", "ada", deny), ask("/login", "ada", ""), Overridden | Denied, 0, 0},
			{"a named rule", about("login", "ada", deny), named, Overridden | Denied, 0, 0},
			{"another user", about("login", "ada", deny), ask("/login", "bob", ""), 0, 0, n},
			{"another rule", about("login", "ada", deny), ask("/both", "ada", "192.0.2.1"), 0, 0, 3 * n},
			{"unlimited", about("login", "ada", nil), ask("/login", "ada", ""), Overridden | Unlimited, 0, 0},
			{"a limit", about("login", "ada", limited), ask("/login", "ada", ""), Overridden, n, n},
			{"a limit of two keys", about("both", "ada", limited), ask("/both", "ada", "192.0.2.1"), Overridden, n, 2 * n},
			{"unlimited, the quota counts", about("both", "ada", nil), ask("/both", "ada", "192.0.2.1"), Overridden, 0, n},
			{"a user of an address's name", about("both", "192.0.2.1", deny), ask("/both", "", "192.0.2.1"), 0, 0, 2 * n},
			{"by address", about("both", "", address), ask("/both", "", "192.0.2.1:80"), Overridden | Denied, 0, 0},
			{"an address of a user", about("both", "", address), ask("/both", "ada", "192.0.2.1"), Overridden | Denied, 0, 0},
			{"another address", about("both", "", address), ask("/both", "192.0.2.1", "192.0.2.2"), 0, 0, 3 * n},
			{"the user's before the address's", append(about("both", "ada", limited), about("both", "", address)...),
				ask("/both", "ada", "192.0.2.1"), Overridden, n, 2 * n},
			{"its tenant", about("login", "ada", tenant), bank, Overridden | Denied, 0, 0},
			{"no tenant", about("login", "ada", tenant), ask("/login", "ada", ""), 0, 0, n},
			{"another tenant", about("login", "ada", deny), bank, 0, 0, n},
			{"a rule that denies", about("never", "ada", nil), ask("/never", "ada", ""), Overridden | Unlimited, 0, 0},
			{"a rule without limits", about("free", "ada", deny), ask("/free", "ada", ""), Overridden | Denied, 0, 0},
			{"a rule that there is not", about("x", "ada", deny), ask("/login", "ada", ""), 0, 0, n},
		} {
			with := s.With(c.list)
			var charge arith.Charge
			m, err := with.Resolve(c.ask, &charge)
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			got := 0
			for i := range charge.Len() {
				if r := charge.Key(i).Rule; r.Name == OverridePrefix+c.list[0].Rule {
					got++
					if name := string(with.AppendKeyName(nil, c.ask, charge.Key(i), limit)); name != "ada:override" {
						t.Errorf("%s: its counter is named %s", c.name, name)
					}
				}
			}
			if m.Outcome != c.want || got != c.keys || charge.Len() != c.all {
				t.Errorf("%s: outcome %b, want %b; %d keys of it, want %d, of %d, want %d", c.name, m.Outcome, c.want, got, c.keys,
					charge.Len(), c.all)
			}
			if with.Hash() != s.Hash() {
				t.Errorf("%s: the rules have another hash", c.name)
			}
			if back, err := with.With(nil).Resolve(c.ask, &charge); err != nil || back.Outcome.Has(Overridden) {
				t.Errorf("%s: it is in force after its end: %+v, %v", c.name, back, err)
			}
		}
	}
}

func TestOverridesThatHaveNoEffect(t *testing.T) {
	s, err := Parse("rules", []byte(overridden), Options{})
	if err != nil {
		t.Fatal(err)
	}
	limit, _ := OverrideLimit("10/minute")
	for name, o := range map[string]Override{
		"an unknown rule": {Rule: "x", User: "ada"}, "a quota": {Rule: "all", User: "ada"}, "no user": {Rule: "login"},
		"a user and an address": {Rule: "login", User: "ada", IP: "192.0.2.1"}, "shadow": {Rule: "trial", User: "ada"},
		"a limit for what is denied":  {Rule: "never", User: "ada", Limit: limit},
		"a limit for what has none":   {Rule: "free", User: "ada", Limit: limit},
		"a limit for what only draws": {Rule: "draws", User: "ada", Limit: limit},
	} {
		if s.CheckOverride(o) == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
	if err := s.CheckOverride(Override{Rule: "login", User: "ada"}); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "10", "x/minute", "10/parsec", "0/minute"} {
		if _, err := OverrideLimit(bad); err == nil {
			t.Errorf("limit %q is taken", bad)
		}
	}
	const want = `limit "5/minute, 6/hour": "5/minute, 6/hour" is several limits in one; did you mean a list, ` +
		`[5/minute, 6/hour]? (an override has one limit, such as 10/minute)`
	if _, err := OverrideLimit("5/minute, 6/hour"); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("two limits: %v, want %s", err, want)
	}
}

// A rule may deny since a limit was set for one of its users: then it denies that user, too.
func TestALimitFreesNobodyOfADenial(t *testing.T) {
	s, err := Parse("rules", []byte(overridden), Options{})
	if err != nil {
		t.Fatal(err)
	}
	limit, _ := OverrideLimit("10/minute")
	var c arith.Charge
	o := s.With([]Override{{Rule: "never", User: "ada", Limit: limit}})
	if m, err := o.Resolve(&limiter.Request{Rule: "never", User: "ada"}, &c); err != nil || !m.Outcome.Has(Denied) {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestOverridesAmongRulesThatContinue: what an override frees of one rule the others that match still count, and one
// that denies is found wherever its rule stands among them.
func TestOverridesAmongRulesThatContinue(t *testing.T) {
	limit, err := OverrideLimit("10/minute")
	if err != nil {
		t.Fatal(err)
	}
	for _, second := range []string{"", "another secret"} {
		s, err := Parse("rules", []byte(overridden), Options{Secret: []byte("a secret"), Second: []byte(second)})
		if err != nil {
			t.Fatal(err)
		}
		n := 1
		if second != "" {
			n = 2
		}
		freed, deny := Override{Rule: "not", User: "ada"}, Override{Rule: "open", User: "ada", Deny: true}
		last := Override{Rule: "last", User: "ada", Deny: true}
		for name, c := range map[string]struct {
			list []Override
			path string
			want Outcome
			keys int
		}{
			"none":  {nil, "/then/never", Denied, 0},
			"freed": {[]Override{freed}, "/then/never", Overridden, n},
			"freed, and limited by another": {[]Override{freed, {Rule: "every", User: "ada", Limit: limit}}, "/then/never",
				Overridden, n},
			"freed of all that counts": {[]Override{freed, {Rule: "every", User: "ada"}}, "/then/never",
				Overridden | Unlimited, 0},
			"denied by one that counts nothing": {[]Override{deny}, "/then/open", Overridden | Denied, 0},
			"denied by the last":                {[]Override{last}, "/then", Overridden | Denied, 0},
			"denied by the rule":                {[]Override{{Rule: "every", User: "ada"}}, "/then/never", Denied, 0},
			"in shadow":                         {[]Override{{Rule: "trial", User: "ada", Deny: true}}, "/trial", 0, n},
		} {
			var charge arith.Charge
			m, err := s.With(c.list).Resolve(&limiter.Request{Path: c.path, User: "ada"}, &charge)
			if err != nil || m.Outcome != c.want || charge.Len() != c.keys {
				t.Errorf("%s: outcome %b, want %b; %d keys, want %d; %v", name, m.Outcome, c.want, charge.Len(), c.keys, err)
			}
		}
	}
}

// An override of an address concerns it also where a service counts it by more bits; what is wider has overrides of its
// own.
func TestOverridesOfNetworks(t *testing.T) {
	s, err := Parse("rules", []byte(overridden), Options{})
	if err != nil {
		t.Fatal(err)
	}
	ip, err := OverrideAddress("2001:db8::1")
	if err != nil || ip != "2001:db8::/64" {
		t.Fatal(ip, err)
	}
	one, err := OverrideAddress("2001:db8::4/126")
	if err != nil || one != "2001:db8::4/126" {
		t.Fatal(one, err)
	}
	with := s.With([]Override{{Rule: "login", IP: ip, Deny: true}, {Rule: "login", IP: one, Deny: true, Tenant: "bank"}})
	for text, denied := range map[string]bool{
		"2001:db8::2": true, "2001:db8::/64": true, "2001:db8::1/128": true, "2001:db8::4/126": true,
		"[2001:db8::9]:80":    true,
		"2001:db8:0:1::1/128": false, "2001:db8::/56": false, "192.0.2.1/32": false, "::1": false,
	} {
		var c arith.Charge
		m, err := with.Resolve(&limiter.Request{Path: "/login", User: "ada", IP: text}, &c)
		if err != nil || m.Outcome.Has(Denied) != denied {
			t.Errorf("%s: denied %v, %v", text, m.Outcome.Has(Denied), err)
		}
	}
}

// TestOverridesOfSpellings: an override is of each spelling that the key of its rule counts as its user, and of no
// other, so a user does not leave it by writing his name otherwise.
func TestOverridesOfSpellings(t *testing.T) {
	const file = `version: 1
rules:
  - {name: login, match: {path: ^/login$}, key: [{user: {fold: case, trim: true}}], limits: [5/minute]}
  - {name: mail, match: {path: ^/mail$}, keys: [[ip], [{user: {trim: true}}]], limits: [5/minute]}
  - {name: exact, match: {path: ^/exact$}, key: [user], limits: [5/minute]}
`
	s, err := Parse("rules", []byte(file), Options{})
	if err != nil {
		t.Fatal(err)
	}
	limit, err := OverrideLimit("10/minute")
	if err != nil {
		t.Fatal(err)
	}
	var list []Override
	for _, rule := range []string{"login", "mail", "exact"} {
		list = append(list, Override{Rule: rule, User: "Mallory", Deny: true})
	}
	list = append(list, Override{Rule: "login", User: "MALLORY", Limit: limit}, Override{Rule: "login", User: "bob",
		Limit: limit}, Override{Rule: "login", Tenant: "bank", User: "Ada", Deny: true})
	s = s.With(list)
	for _, c := range []struct {
		path, user, tenant string
		want               Outcome
	}{
		{"/login", "Mallory", "", Denied | Overridden},
		{"/login", "mallory", "", Denied | Overridden},
		{"/login", " mALLORY\t", "", Denied | Overridden},
		{"/login", "MALLORY", "", Overridden}, // it has one of its own
		{"/login", "mallory1", "", 0},
		{"/login", "mallory", "bank", 0},
		{"/login", "ada", "bank", Denied | Overridden},
		{"/login", "ada", "", 0},
		{"/mail", "Mallory ", "", Denied | Overridden},
		{"/mail", "mallory", "", 0},
		{"/exact", "Mallory", "", Denied | Overridden},
		{"/exact", "mallory", "", 0},
		{"/exact", "Mallory ", "", 0},
	} {
		var charge arith.Charge
		m, err := s.Resolve(&limiter.Request{Path: c.path, User: c.user, Tenant: c.tenant, IP: "192.0.2.1"}, &charge)
		if err != nil || m.Outcome != c.want {
			t.Errorf("%s of %q of tenant %q: outcome %b, want %b; %v", c.path, c.user, c.tenant, m.Outcome, c.want, err)
		}
	}
	var one, other arith.Charge
	for user, to := range map[string]*arith.Charge{"bob": &one, "BOB ": &other} {
		if _, err := s.Resolve(&limiter.Request{Path: "/login", User: user}, to); err != nil {
			t.Fatal(err)
		}
	}
	if one.Key(0).Hash != other.Key(0).Hash || other.Key(0).Rule.Name != OverridePrefix+"login" {
		t.Errorf("two spellings count apart: %+v, %+v", one.Key(0), other.Key(0))
	}
	if s.Charged(&limiter.Request{Path: "/login", User: "mallory"}) == nil ||
		s.Charged(&limiter.Request{Path: "/exact", User: "nobody"}) != nil {
		t.Error("settlements of the reservations of another spelling are decided otherwise")
	}
}

// An override with a limit counts its user, or its address, in one counter, by whatever the rule counts: neither
// another address, another path nor another user of the address has the limit anew. No two share one.
func TestAnOverrideCountsItsUserInOneCounter(t *testing.T) {
	limit, err := OverrideLimit("1/minute")
	if err != nil {
		t.Fatal(err)
	}
	for _, keys := range []string{"keys: [[ip], [user]]", "keys: [[user], [ip]]", "key: [ip, user]", "key: [path, user]",
		"key: [rule]", "key: [user]", "key: [ip]", "key: ['attr:plan']", "keys: [[ip], [{user: {fold: case}}]]",
		"keys: [[user], [path, {user: {trim: true}}]]"} {
		for _, second := range []string{"", "another secret"} {
			s, err := Parse("rules", []byte("version: 1\nrules: [{name: r, "+keys+", limits: [5/minute]}]\n"),
				Options{Secret: []byte("a secret"), Second: []byte(second)})
			if err != nil {
				t.Fatal(err)
			}
			counters := func(of Override, asked ...limiter.Request) map[string]bool {
				with, found := s.With([]Override{of}), map[string]bool{}
				for _, r := range asked {
					var c arith.Charge
					if _, err := with.Resolve(&r, &c); err != nil {
						t.Fatalf("%s: %v", keys, err)
					}
					text := ""
					for i := range c.Len() {
						k := c.Key(i)
						text += fmt.Sprintf("%s %v %s\n", k.Rule.Name, k.Hash, with.AppendKeyName(nil, &r, k, nil))
					}
					if n := strings.Count(text, OverridePrefix+"r"); n != c.Len() || n != 1+min(1, len(second)) {
						t.Errorf("%s: %d of %d counters are the override's", keys, n, c.Len())
					}
					found[text] = true
				}
				return found
			}
			ask := func(path, user, ip string) limiter.Request {
				return limiter.Request{Path: path, User: user, IP: ip, Attributes: map[string]string{"plan": path}}
			}
			ada := counters(Override{Rule: "r", User: "ada", Limit: limit}, ask("/a", "ada", "192.0.2.1"),
				ask("/b", "ada", "192.0.2.1"), ask("/a", "ada", "192.0.2.2"))
			bob := counters(Override{Rule: "r", User: "bob", Limit: limit}, ask("/a", "bob", "192.0.2.1"))
			address := counters(Override{Rule: "r", IP: "2001:db8::/64", Limit: limit}, ask("/a", "ada", "2001:db8::1"),
				ask("/b", "bob", "2001:db8::2"), ask("/b", "bob", "2001:db8::3/128"))
			if len(ada) != 1 || len(bob) != 1 || len(address) != 1 {
				t.Errorf("%s: ada has %v, an address %v; want one each", keys, ada, address)
			}
			maps.Copy(ada, bob)
			if maps.Copy(ada, address); len(ada) != 3 {
				t.Errorf("%s: counters are shared: %v", keys, ada)
			}
		}
	}
}

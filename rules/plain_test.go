package rules

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// lettersOf returns n letters, of which few are different.
func lettersOf(rng *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		b.WriteByte("ab:"[rng.IntN(3)])
	}
	return b.String()
}

// TestPlainKeysHaveTheSameHash compares encodePlain with encode, which takes all keys: for values of
// which some do not fit the short buffer.
func TestPlainKeysHaveTheSameHash(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	lists := [][]part{{{kind: partPath}, {kind: partUser}}, {{kind: partRule}, {kind: partUser}}, {{kind: partUser}},
		{{kind: partPath}}}
	short, long := 0, 0
	for range 20_000 {
		k := newKey(&Options{}, "towns", lists[rng.IntN(len(lists))], false)
		if !k.plain {
			t.Fatalf("%s is not plain", &k)
		}
		r := limiter.Request{Path: lettersOf(rng, rng.IntN(80)), User: lettersOf(rng, 1+rng.IntN(40)),
			Tenant: lettersOf(rng, rng.IntN(16))}
		var buf, all [shortKey]byte
		n, o := k.encodePlain(&r, &buf)
		m, want := k.encode(&r, all[:])
		if o != want || o == keyHashed && string(buf[:n]) != string(all[:m]) {
			t.Fatalf("%s of %+v: %q, %d; want %q, %d", &k, r, buf[:n], o, all[:m], want)
		}
		if o == keyHashed {
			short++
		} else {
			long++
		}
	}
	if short < 1000 || long < 1000 {
		t.Errorf("%d keys fit the short buffer and %d do not: too few to compare", short, long)
	}
}

// TestKeysThatAreNotPlain lists keys and requests that only encode may take.
func TestKeysThatAreNotPlain(t *testing.T) {
	for _, k := range []key{
		newKey(&Options{}, "towns", []part{{kind: partPath}, {kind: partUser}}, true),
		newKey(&Options{}, "towns", []part{{kind: partIP}}, false),
		newKey(&Options{}, "towns", []part{{kind: partUser}, {kind: partMethod}}, false),
		newKey(&Options{}, "towns", []part{{kind: partAttribute, name: "plan"}}, false),
	} {
		if k.plain {
			t.Errorf("%s, skip %t, is plain", &k, k.skip)
		}
	}
	k := newKey(&Options{}, "towns", []part{{kind: partUser}}, false)
	named, _ := k.hash(&limiter.Request{User: "10.0.0.1"})
	anonymous, _ := k.hash(&limiter.Request{IP: "10.0.0.1"})
	other, _ := k.hash(&limiter.Request{IP: "10.0.0.2"})
	if named == anonymous || other == anonymous {
		t.Error("a user with the name of an address, or callers without a user of two addresses, count together")
	}
}

// only permits one rule.
type only string

func (o only) Permits(rule string) bool { return rule == string(o) }

// TestOneRuleResolvesAlike compares fill of a rule with that of all, for rules and requests of which it takes some.
func TestOneRuleResolvesAlike(t *testing.T) {
	s, err := Parse("test.yaml", []byte(`
version: 1
rules:
  - {name: shadow, match: {path: ^/shadow}, limits: [1/second], shadow: true}
  - {name: more, match: {path: ^/more}, limits: [1/second], continue: true}
  - {name: posts, match: {path: ^/posts, method: [POST]}, limits: [1/second]}
  - {name: costs, match: {path: ^/costs}, limits: [1/second], cost: {POST: 2}}
  - {name: skips, match: {path: ^/skips}, limits: [1/second], keys: [[ip]]}
  - {name: free, match: {path: ^/free}, unlimited: true}
  - {name: all, match: {path: ^/}, limits: [1/second, 9/minute], cost: 3}
`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	took, left := 0, 0
	for _, path := range []string{"/shadow", "/more", "/posts", "/costs", "/skips", "/free", "/else", "none"} {
		for _, r := range []limiter.Request{
			{User: "ada"}, {IP: "10.0.0.1"}, {User: "ada", Method: "POST"}, {User: "ada", Cost: limiter.Units(7)},
			{User: "ada", Tenant: "shop"}, {User: "ada", Scope: only("all")}, {User: "ada", Scope: only("shadow")},
			{User: "ada", ID: "7"}, {User: strings.Repeat("u", limiter.MaxKeyBytes+1)},
		} {
			r.Path = path
			list := s.paths.match(path, nil)
			var one, all arith.Charge
			if len(list) == 0 {
				continue
			}
			got, ok := s.rules[list[0]].fill(&r, &one)
			want, err := s.fill(list, &r, &all, rulesAll)
			if !ok {
				left++
				if one.Len() != 0 {
					t.Errorf("%+v: the rule left it to the others, and added %d keys", r, one.Len())
				}
				continue
			}
			took++
			if err != nil || got != want || one.Len() != 1 || all.Len() != 1 || *one.Key(0) != *all.Key(0) {
				t.Errorf("%+v: got %+v with %+v; want %+v with %+v, %v", r, got, one.Key(0), want, all.Key(0), err)
			}
		}
	}
	if took < 10 || left < 30 {
		t.Errorf("one rule took %d of the requests and left %d: too few to compare", took, left)
	}
}

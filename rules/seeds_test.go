package rules

import (
	"errors"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
)

const seedRules = `
version: 1
rules:
  - {name: one, match: {path: "^/one"}, limits: [5/second]}
  - {name: two, match: {path: "^/two"}, keys: [[ip], [user]], limits: [5/second]}
  - {name: free, match: {path: "^/free"}, unlimited: true}
`

// With its seeds a set finds the counters of another one, whose secret it does not
// know; seeds of other rules are refused.
func TestSeeds(t *testing.T) {
	secret := Options{Secret: []byte("nobody knows"), ClusterName: "c"}
	of := func(file string, o Options) *Set {
		t.Helper()
		s, err := Parse("rules", []byte(file), o)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	from := of(seedRules, secret)
	to, other := of(seedRules, Options{Seeds: from.Seeds()}), of(seedRules, Options{})
	own := limitertest.Limit(t, limiter.Spec{Limit: 1, Window: limiter.MinWindow})
	for _, r := range []limiter.Request{
		{Path: "/one", User: "ada"}, {Path: "/two", User: "ada", IP: "10.0.0.1"},
		{User: "ada", Limits: []*limiter.Limit{own}},
	} {
		var a, b, c arith.Charge
		_, errA := from.Resolve(&r, &a)
		_, errB := to.Resolve(&r, &b)
		_, errC := other.Resolve(&r, &c)
		if err := errors.Join(errA, errB, errC); err != nil || a.Len() == 0 || a.Len() != b.Len() {
			t.Fatal(err)
		}
		for i := range a.Len() {
			if a.Key(i).Hash != b.Key(i).Hash || a.Key(i).Hash == c.Key(i).Hash {
				t.Errorf("%+v: key %d is %v, by its seeds %v, and without the secret %v", r, i, a.Key(i).Hash, b.Key(i).Hash,
					c.Key(i).Hash)
			}
		}
	}
	if n := len(from.Seeds()); n != 4*16 { // the request's own limits, one key, and two
		t.Errorf("there are %d bytes of seeds", n)
	}
	for _, bad := range [][]byte{{}, from.Seeds()[1:], append(from.Seeds(), make([]byte, 16)...)} {
		if _, err := Parse("rules", []byte(seedRules), Options{Seeds: bad}); !errors.Is(err, limiter.ErrInvalid) {
			t.Errorf("%d bytes: %v", len(bad), err)
		}
	}
}

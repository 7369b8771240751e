package rules

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

const priorities = `
version: 1
quotas:
  - name: units
    key: [user]
    limits:
      - {limit: {by: "attr:plan", of: {pro: 1000}, else: 10}, window: 1m}
      - {limit: 7, window: 1s, algorithm: gcra, burst: 5}
rules:
  - {name: both, match: {path: ^/both}, quotas: [units], continue: true}
  - {name: less, match: {path: ^/(both|less)}, quotas: [{name: units, up_to: 50%, cost: 2}], continue: true}
  - {name: batch, match: {path: ^/(both|batch)}, quotas: [{name: units, up_to: 80%}]}
  - {name: all, match: {path: ^/all}, quotas: [units]}
`

// A draw may use a part of a quota: of the number that the request chooses, too. Of several draws of one request the
// lowest part counts. The key is the same.
func TestDrawsUpToAPart(t *testing.T) {
	s, err := Parse("f", []byte(priorities), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var hash *arith.Hash
	for _, c := range []struct {
		path, plan string
		caps       [2]uint64
		cost       uint64
	}{
		{"/all", "", [2]uint64{10, 5}, 1}, {"/all", "pro", [2]uint64{1000, 5}, 1},
		{"/batch", "", [2]uint64{8, 4}, 1}, {"/batch", "pro", [2]uint64{800, 4}, 1},
		{"/less", "", [2]uint64{5, 2}, 2}, {"/both", "", [2]uint64{5, 2}, 4}, {"/both", "pro", [2]uint64{500, 2}, 4},
	} {
		r := limiter.Request{Path: c.path, User: "ada", Attributes: map[string]string{"plan": c.plan}}
		var k arith.Charge
		if _, err := s.Resolve(&r, &k); err != nil || k.Len() != 1 {
			t.Fatalf("%s: %v, %d keys", c.path, err, k.Len())
		}
		key := k.Key(0)
		if hash == nil {
			hash = &key.Hash
		}
		if key.Hash != *hash || key.Cost != c.cost || key.Rule.Limits[0].Capacity() != c.caps[0] ||
			key.Rule.Limits[1].Capacity() != c.caps[1] || key.Rule.Limits[1].Limit() != 7 {
			t.Errorf("%s of plan %q: cost %d of %v and %v", c.path, c.plan, key.Cost, key.Rule.Limits[0].Capacity(),
				key.Rule.Limits[1].Capacity())
		}
		again := *key
		if _, _ = s.Resolve(&r, &k); k.Key(0).Rule != again.Rule {
			t.Errorf("%s: the rule is another each time", c.path)
		}
	}
	if d := s.Rules()[2].Draws; len(d) != 1 || d[0].UpTo != 80 {
		t.Errorf("the description is %+v", d)
	}
	other, err := Parse("f", []byte(strings.Replace(priorities, "80%", "81%", 1)), Options{})
	if err != nil || other.Hash() == s.Hash() {
		t.Errorf("%v: the hash does not depend on up_to", err)
	}
}

// Values that are no part of a quota, and quotas of which none can be used, are refused with what to write.
func TestDrawsThatAreNoPart(t *testing.T) {
	const file = "version: 1\nquotas: [{name: q, key: [user], limits: [LIMIT]}]\nrules: [{name: r, match: {path: ^/a}, " +
		"quotas: [{name: q, up_to: PART}]}]\n"
	for _, c := range [][3]string{
		{"5/minute", "0%", "is not a part of the quota: give 1% to 99%, such as 80%"},
		{"5/minute", "80", `up_to "80" is not a part`}, {"5/minute", "101%", "not a part"}, {"5/minute", "0.8", "not a part"},
		{"5/minute", "100%", "may use all of the quota: remove it"},
		{"{limit: 5, window: 1m, block: 1m}", "80%", "has a block, so a request that only this draw denies would block"},
		{"{limit: 5, window: 1m, count_rejected: room}", "80%", "counts rejected requests"},
	} {
		_, err := Parse("f", []byte(strings.NewReplacer("LIMIT", c[0], "PART", c[1]).Replace(file)), Options{})
		if err == nil || !strings.Contains(err.Error(), c[2]) {
			t.Errorf("%s up to %s: %v, want %s", c[0], c[1], err, c[2])
		}
	}
	s, err := Parse("f", []byte(strings.NewReplacer("LIMIT", "5/minute", "PART", "50%, cost: 3").Replace(file)), Options{})
	const text = "admits at most 2 at once: lower the cost, or raise the up_to of the draw"
	if err != nil || len(s.Warnings()) != 1 || !strings.Contains(s.Warnings()[0].Text, text) {
		t.Errorf("%v, %v", err, s.Warnings())
	}
}

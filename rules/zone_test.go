package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/rules"
)

// zonesOf resolves a request and returns the limits of its first key in words.
func zonesOf(t *testing.T, set *rules.Set, r limiter.Request) (string, rules.Match) {
	t.Helper()
	var c arith.Charge
	m, err := set.Resolve(&r, &c)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, l := range c.Key(0).Rule.Limits {
		out = append(out, l.Spec().Zone)
	}
	return strings.Join(out, " "), m
}

// A limit has the zone that the attribute names, else the default, which the match says.
// Limits with a zone of their own keep it, and a request that names the rule has it too.
func TestZoneOfTheRequest(t *testing.T) {
	set := mustSet(t, `
defaults: {zone: Asia/Tokyo}
rules:
  - name: own
    match: {path: ^/own}
    key: [user]
    limits:
      - {limit: 5, calendar: month, zone: {from: "attr:tz", default: Europe/Berlin}}
      - {limit: 5, calendar: day}
      - {limit: 2, calendar: hour, zone: {from: "attr:tz", default: Europe/Berlin}}
  - {name: short, match: {path: ^/short}, key: [user], limits: [{limit: 5, calendar: day, zone: attr:tz}]}
`, rules.Options{})
	in := func(zone string) map[string]string { return map[string]string{"tz": zone} }
	for _, c := range []struct {
		r       limiter.Request
		want    string
		unzoned string
		missing bool
	}{
		{limiter.Request{Path: "/own", Attributes: in("America/Lima")}, "America/Lima Asia/Tokyo America/Lima", "", false},
		{limiter.Request{Path: "/own", Attributes: in("Europe/Berlin")}, "Europe/Berlin Asia/Tokyo Europe/Berlin", "", false},
		{limiter.Request{Path: "/own"}, "Europe/Berlin Asia/Tokyo Europe/Berlin", "own", true},
		{limiter.Request{Path: "/own", Attributes: in("america/lima")}, "Europe/Berlin Asia/Tokyo Europe/Berlin", "own",
			false},
		{limiter.Request{Path: "/own", Attributes: in(strings.Repeat("x", 8000))}, "Europe/Berlin Asia/Tokyo Europe/Berlin",
			"own", false},
		{limiter.Request{Rule: "own", Attributes: in("America/Lima")}, "America/Lima Asia/Tokyo America/Lima", "", false},
		{limiter.Request{Rule: "own"}, "Europe/Berlin Asia/Tokyo Europe/Berlin", "own", true},
		{limiter.Request{Path: "/short", Attributes: in("America/Lima")}, "America/Lima", "", false},
		{limiter.Request{Path: "/short"}, "UTC", "short", true},
	} {
		got, m := zonesOf(t, set, c.r)
		var unzoned rules.Unzoned
		if m.Unzoned != nil {
			unzoned = *m.Unzoned
		}
		if got != c.want || unzoned != (rules.Unzoned{Rule: c.unzoned, Missing: c.missing}) ||
			(m.Unzoned != nil) != (c.unzoned != "") {
			t.Errorf("%.60v: zones %s, %+v, %+v; want %s, %q, %v", c.r, got, m, unzoned, c.want, c.unzoned, c.missing)
		}
	}
	infos := set.Rules()
	if infos[0].ZoneFrom != "tz" || infos[1].ZoneFrom != "tz" || infos[0].Rule.Limits[0].Spec().Zone != "Europe/Berlin" {
		t.Errorf("%+v", infos)
	}
}

// A key in a zone that the request names has the label of the identity that asks, if that has no tenant.
func TestZonesHaveWhoAsks(t *testing.T) {
	set := mustSet(t, `
rules: [{name: day, key: [user], limits: [{limit: 5, calendar: day, zone: attr:tz}]}]
`, rules.Options{})
	label := func(r limiter.Request) uint16 {
		t.Helper()
		r.User = "ada"
		var c arith.Charge
		if _, err := set.Resolve(&r, &c); err != nil {
			t.Fatal(err)
		}
		return c.Key(0).By
	}
	in := map[string]string{"tz": "America/Lima"}
	if one, two := label(limiter.Request{Caller: "one", Attributes: in}),
		label(limiter.Request{Caller: "two", Attributes: in}); one == 0 || two == 0 || one == two {
		t.Errorf("two identities have the labels %d and %d", one, two)
	}
	for name, r := range map[string]limiter.Request{
		"of a tenant": {Caller: "one", Tenant: "shop", Attributes: in}, "in the default zone": {Caller: "one"},
		"of nobody": {Attributes: in},
	} {
		if by := label(r); by != 0 {
			t.Errorf("a request %s has the label %d", name, by)
		}
	}
}

// A variant of a rule is made once, and the key of the counter is the same in each zone.
func TestZonesShareCounters(t *testing.T) {
	set := mustSet(t, `rules: [{name: a, key: [user], limits: [{limit: 5, calendar: day, zone: attr:tz}]}]`,
		rules.Options{})
	resolve := func(zone string) *arith.Key {
		var c arith.Charge
		if _, err := set.Resolve(&limiter.Request{User: "ada", Attributes: map[string]string{"tz": zone}}, &c); err != nil {
			t.Fatal(err)
		}
		return c.Key(0)
	}
	berlin, again, tokyo := resolve("Europe/Berlin"), resolve("Europe/Berlin"), resolve("Asia/Tokyo")
	if berlin.Rule != again.Rule || berlin.Rule == tokyo.Rule || berlin.Hash != tokyo.Hash ||
		berlin.Rule.ID() == tokyo.Rule.ID() {
		t.Errorf("%+v, %+v, %+v", berlin, again, tokyo)
	}
	if n := testing.AllocsPerRun(100, func() {
		var c arith.Charge
		if _, err := set.Resolve(&limiter.Request{User: "ada"}, &c); err != nil {
			t.Fatal(err)
		}
	}); n > 1 { // the charge
		t.Errorf("%v allocations", n)
	}
}

func TestZonesThatAreWrong(t *testing.T) {
	for fields, want := range map[string]string{
		`limits: [{limit: 5, calendar: day, ` +
			`zone: {default: UTC}}]`: `this zone has no "from"`,
		`limits: [{limit: 5, calendar: ` +
			`day, zone: {from: tz}}]`: `from: the zone of a request comes from an attribute`,
		`limits: [{limit: 5, calendar: ` +
			`day, zone: {from: user}}]`: `from: the zone of a request comes from an attribute`,
		`limits: [{limit: 5, calendar: ` +
			`day, zone: {attr: tz}}]`: `write zone: "attr:NAME" without a blank`,
		`limits: [{limit: 5, calendar: day, zone: ` +
			`{from: "attr:tz", defualt: UTC}}]`: `did you mean "default"?`,
		`limits: [{limit: 5, calendar: day, zone: ` +
			`{from: "attr:tz", default: Berlin}}]`: `there is no time zone "Berlin"`,
		`limits: [{limit: 5, calendar: day, zone: {from: ` +
			`"attr:tz", default: "attr:b"}}]`: `default: give the name of a zone`,
		`limits: [{limit: 5, calendar: day, zone: "attr:"}]`: `zone: `,
		`limits: [{limit: 5, calendar: ` +
			`day, zone: [UTC]}]`: `zone is a single value, not a list`,
		`limits: [{limit: 5, window: ` +
			`1h, zone: "attr:tz"}]`: `zone is an option of calendar windows`,
		`zone: "attr:tz", limits: [100/minute]`: `no limit of this rule uses "zone"`,
		`limits: [{limit: 5, calendar: day, ` +
			`at: {from: "attr:at"}}]`: `at is a single value, not a mapping`,
		`limits: [{limit: 5, calendar: day, zone: "attr:a"}, ` +
			`{limit: 9, calendar: week, zone: "attr:b"}]`: `two limits of this rule take their zone from different ` +
			`attributes, "b" and, on line 1, "a"`,
		`limits: [{limit: 5, calendar: day, zone: "attr:a"}, {limit: 9, calendar: week, zone: {from: "attr:a", default: ` +
			`Asia/Tokyo}}]`: `two limits of this rule have different default zones, "Asia/Tokyo" and, on line 1, "UTC"`,
	} {
		_, err := rules.Parse("f", []byte("rules: [{name: a, key: [user], "+fields+"}]"), rules.Options{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%s: %v, want %s", fields, err, want)
		}
	}
	file := "defaults: {zone: \"attr:tz\"}\nrules:\n"
	for i := range 64 {
		file += fmt.Sprintf("  - {name: r%d, match: {path: ^/%d$}, key: [user], limits: [{limit: 5, calendar: day}]}\n", i, i)
	}
	if _, err := rules.Parse("f", []byte(file), rules.Options{}); err != nil {
		t.Error(err)
	}
	file += "  - {name: more, key: [user], limits: [{limit: 5, calendar: day}]}\n"
	if _, err := rules.Parse("f", []byte(file), rules.Options{}); err == nil ||
		!strings.Contains(err.Error(), "more than 64 limits of this file take their zone from an attribute") {
		t.Error(err)
	}
}

// Files whose zones come from elsewhere mean something else; a default that is written out
// does not.
func TestZonesInTheHash(t *testing.T) {
	hash := func(zone string) uint64 {
		return mustSet(t, "rules: [{name: a, key: [user], limits: [{limit: 5, calendar: month, "+zone+"}]}]",
			rules.Options{}).Hash()
	}
	seen := map[uint64]string{}
	for _, zone := range []string{`zone: UTC`, `zone: "attr:tz"`, `zone: "attr:zone"`,
		`zone: {from: "attr:tz", default: Asia/Tokyo}`} {
		h := hash(zone)
		if other := seen[h]; other != "" {
			t.Errorf("%s and %s have one hash", zone, other)
		}
		seen[h] = zone
	}
	if hash(`zone: "attr:tz"`) != hash(`zone: {from: "attr:tz", default: UTC}`) ||
		hash(`zone: "attr:tz"`) != hash(`zone: {from: "attr:tz"}`) {
		t.Error("a default that is written out makes another hash")
	}
}

// Whoever counts by the attribute of the zone gives each caller a limit in each zone.
func TestZoneInTheKeyIsWarnedOf(t *testing.T) {
	set := mustSet(t, `rules: [{name: a, match: {attributes: {tz: }}, key: [user, "attr:tz"], limits: [{limit: 5, `+
		`calendar: day, zone: "attr:tz"}]}]`, rules.Options{})
	w := set.Warnings()
	if len(w) != 1 || !strings.Contains(w[0].Text, `counts by attribute "tz", which also names its time zone`) ||
		w[0].Rule != "a" {
		t.Errorf("%+v", w)
	}
	if w := mustSet(t, `rules: [{name: a, key: [user], limits: [{limit: 5, calendar: day, zone: "attr:tz"}]}]`,
		rules.Options{}).Warnings(); len(w) > 0 {
		t.Errorf("%+v", w)
	}
}

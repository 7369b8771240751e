package rules_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/rules"
)

// unitsFile is a file whose rules draw on one quota, with costs of their own.
const unitsFile = `version: 1
quotas:
  - {name: units, key: ["attr:customer"], limits: [{limit: 1000, calendar: month}], on_unreachable: closed}
  - {name: pairs, keys: [[ip], [user]], limits: [100/hour]}
rules:
  - name: search
    match: {path: "^/search", attributes: {customer: }}
    key: [user]
    limits: [10/second]
    quotas: [{name: units, cost: 5}]
  - name: save
    match: {path: "^/save", attributes: {customer: }}
    key: [user]
    limits: [10/second]
    cost: {default: 2, DELETE: 4}
    quotas: [units, {name: pairs, cost: {default: 1, DELETE: 3}}]
  - name: read
    match: {path: "^/read", attributes: {customer: }}
    quotas: [{name: units, cost: [{path: "/head$", cost: 0}, {from: "attr:pages", max: 8}]}]
`

// charges lists the keys of a request: of which rule or quota, and at what cost.
func charges(tb testing.TB, s *rules.Set, r *limiter.Request) string {
	tb.Helper()
	var c arith.Charge
	if _, err := s.Resolve(r, &c); err != nil {
		tb.Fatal(err)
	}
	var out []string
	for i := range c.Len() {
		k := c.Key(i)
		if s.Rule(k.Rule.Name) != k.Rule {
			tb.Errorf("the set does not know %q by its name", k.Rule.Name)
		}
		out = append(out, fmt.Sprintf("%s.%d=%d", k.Rule.Name, k.Index, k.Cost))
	}
	return strings.Join(out, " ")
}

// Each draw has its own cost, or that of its rule; a cost that the request names is that of
// all.
func TestDrawsHaveTheirOwnCosts(t *testing.T) {
	s := mustSet(t, unitsFile, rules.Options{})
	request := func(path, method string, cost limiter.Cost, pages string) *limiter.Request {
		return &limiter.Request{Path: path, Method: method, User: "ada", IP: "10.0.0.1", Cost: cost,
			Attributes: map[string]string{"customer": "acme", "pages": pages}}
	}
	for _, c := range []struct {
		r    *limiter.Request
		want string
	}{
		{request("/search", "GET", limiter.Cost{}, ""), "search.0=1 units.0=5"},
		{request("/save", "PUT", limiter.Cost{}, ""), "save.0=2 units.0=2 pairs.0=1 pairs.1=1"},
		{request("/save", "DELETE", limiter.Cost{}, ""), "save.0=4 units.0=4 pairs.0=3 pairs.1=3"},
		{request("/save", "DELETE", limiter.Units(7), ""), "save.0=7 units.0=7 pairs.0=7 pairs.1=7"},
		{request("/save", "DELETE", limiter.Units(0), ""), "save.0=0 units.0=0 pairs.0=0 pairs.1=0"},
		{request("/read", "GET", limiter.Cost{}, "3"), "units.0=3"},
		{request("/read/head", "GET", limiter.Cost{}, "3"), "units.0=0"},
		{&limiter.Request{Rule: "search", User: "ada"}, "search.0=1 units.0=5"},
	} {
		if got := charges(t, s, c.r); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.r.Method, c.r.Path, got, c.want)
		}
	}
}

// The counter of a quota depends on its name and key only: not on the rule that draws, and
// not on a change of the rules.
func TestAQuotaHasOneCounterForAllRules(t *testing.T) {
	s := mustSet(t, unitsFile, rules.Options{})
	hash := func(s *rules.Set, path string) arith.Hash {
		var c arith.Charge
		r := &limiter.Request{Path: path, User: "ada", IP: "10.0.0.1", Attributes: map[string]string{"customer": "acme"}}
		if _, err := s.Resolve(r, &c); err != nil {
			t.Fatal(err)
		}
		for i := range c.Len() {
			if k := c.Key(i); k.Rule.Name == "units" {
				if got := string(s.AppendKeyName(nil, r, k, k.Rule.Limits[0])); got != "acme:month" {
					t.Errorf("the key is named %q", got)
				}
				return k.Hash
			}
		}
		t.Fatalf("%s does not draw on units", path)
		return arith.Hash{}
	}
	want := hash(s, "/search")
	for _, path := range []string{"/save", "/read"} {
		if got := hash(s, path); got != want {
			t.Errorf("%s has another counter than /search", path)
		}
	}
	changed := mustSet(t, strings.NewReplacer("name: search", "name: find", "cost: 5", "cost: 6", "limit: 1000,",
		"limit: 2000,").Replace(unitsFile), rules.Options{})
	if hash(changed, "/search") != want {
		t.Error("a change of the rules moved the counter of the quota")
	}
	other := mustSet(t, unitsFile, rules.Options{Secret: []byte("other"), ClusterName: "other"})
	if hash(other, "/search") == want {
		t.Error("the secret does not matter")
	}
	if seeded := mustSet(t, unitsFile, rules.Options{Seeds: other.Seeds()}); hash(seeded, "/search") != hash(other,
		"/search") {
		t.Error("the seeds of the set lack those of the quota")
	}
}

// If several rules that match draw on one quota, it is charged the sum, as one key.
func TestDrawsOfSeveralRulesAreOne(t *testing.T) {
	s := mustSet(t, `
quotas:
  - {name: units, keys: [[user], [ip]], limits: [10/day]}
  - {name: trial, key: [user], limits: [5/day], shadow: true}
rules:
  - {name: a, continue: true, quotas: [units, trial]}
  - {name: b, continue: true, key: [user], limits: [5/second], quotas: [{name: units, cost: 9007199254740986}]}
  - {name: c, key: [user], limits: [5/second], cost: 3, quotas: [units, trial]}
`, rules.Options{})
	r := &limiter.Request{Path: "/", User: "ada", IP: "10.0.0.1"}
	if got, want := charges(t, s, r),
		"units.0=9007199254740990 units.1=9007199254740990 trial.0=4 b.0=1 c.0=3"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	r.Cost = limiter.Units(limiter.MaxUnits)
	if got, want := charges(t, s, r), strings.ReplaceAll("units.0=N units.1=N trial.0=N b.0=N c.0=N", "N",
		"9007199254740991"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := s.Matching(r); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("matching: %q", got)
	}
}

// Quotas in shadow take the room that is left, whatever rule draws on them.
func TestShadowQuotasTakeTheRoomThatIsLeft(t *testing.T) {
	var b strings.Builder
	b.WriteString("quotas:\n  - {name: trial, keys: [[user], [ip], [user, ip]], limits: [5/day], shadow: true}\nrules:\n")
	fmt.Fprintf(&b, "  - {name: first, continue: true, key: [user], limits: [5/second], quotas: [trial]}\n")
	for i := range 14 {
		fmt.Fprintf(&b, "  - {name: r%d, continue: true, key: [user], limits: [5/second]}\n", i)
	}
	s := mustSet(t, b.String(), rules.Options{})
	got := charges(t, s, &limiter.Request{Path: "/", User: "ada", IP: "10.0.0.1"})
	if n := len(strings.Fields(got)); n != limiter.MaxKeys || !strings.HasSuffix(got, "r13.0=1 trial.0=1") {
		t.Errorf("%d keys: %s", n, got)
	}
}

// What a request lacks is an error of the quota, as it is of a rule.
func TestQuotaErrorsOfRequests(t *testing.T) {
	s := mustSet(t, unitsFile, rules.Options{})
	attributes := map[string]string{"customer": "acme"}
	var c arith.Charge
	for want, r := range map[string]*limiter.Request{
		`quota "pairs" needs [ip] or [user]`:          {Path: "/save", Attributes: attributes},
		`"units" is a quota, not a rule: name a rule`: {Rule: "units"},
	} {
		if _, err := s.Resolve(r, &c); !errors.Is(err, limiter.ErrInvalid) || !strings.Contains(err.Error(), want) ||
			c.Len() > 0 {
			t.Errorf("want %s: %v, %d keys", want, err, c.Len())
		}
	}
}

// What is wrong with quotas is said at its place, with what to write.
func TestQuotaProblems(t *testing.T) {
	const units = "quotas: [{name: units, key: [user], limits: [5/day]}]\n"
	rule := func(fields string) string {
		return "rules: [{name: a, key: [user], limits: [5/second], " + fields + "}]"
	}
	quota := func(fields string) string { return "quotas: [{" + fields + "}]\n" + rule("quotas: [units]") }
	for file, want := range map[string]string{
		units + rule("quotas: [unit]"):  `2:61: unknown quota "unit"; did you mean "units"?`,
		units + rule("quotas: [other]"): `unknown quota "other"; known: units`,
		rule("quotas: [units]"): `1:61: there is no quota "units": the file defines none; at ` +
			`its top level write quotas: [{name: units, key: [user], limits: [1000/hour]}]`,
		units + rule("quotas: [units, {name: units}]"): `2:75: this rule draws on quota "units" already: write one ` +
			`draw, with the sum as its cost`,
		units + rule("quotas: []"): `2:60: the list of quotas is empty; remove it`,
		units + rule("quotas: [[units]]"): "a draw on a quota is the quota's name, or a mapping such as " +
			"{name: units, cost: 5}; this is a list",
		units + rule("quotas: [{cost: 5}]"): "2:61: this draw has no name: write the quota's, as in {name: " +
			"units, cost: 5}",
		units + rule("quotas: [{name: [units]}]"):          "the name of a quota is a single value, not a list",
		units + rule("quotas: [{quota: units}]"):           `"quota" is written as "name" here, as in {name: units, cost: 5}`,
		units + rule("quotas: [{name: units, key: [ip]}]"): `"key" belongs in the quota, at the top level of the file`,
		units + rule("quotas: [{name: units, cost: -1}]"):  "cost: -1 is out of range: give 0 to 9007199254740991 units",
		units + rule("quotas: [{name: units, csot: 1}]"): `unknown field "csot"; did you mean "cost"? (in a draw on a ` +
			`quota)`,
		units + rule("shadow: true, quotas: [units]"): `2:75: this rule is in shadow and quota "units" is not, so the ` +
			`draw could deny requests: write "shadow: true" in the quota, or remove the draw`,
		units + rule("quota: [units]"): `unknown field "quota"; did you mean "quotas"? (in a rule)`,
		units +
			"rules: [{name: a, unlimited: true, quotas: [units]}]": `2:44: "unlimited: true" and "quotas" exclude each other: ` +
			`a rule with quotas needs no limits of its own`,
		units +
			"rules: [{name: units, key: [user], limits: [5/day], quotas: [units]}]": `2:16: there is a quota named "units" on ` +
			`line 1; rules and quotas must have different names`,
		units +
			"rules: [{name: a, key: [user], limits: [5/day]}, {name: b, quotas: [a, units]}]": `"a" is a rule on line 2, not ` +
			`a quota: a rule draws on quotas only`,
		"defaults: {quotas: [units]}\n" +
			units + rule("quotas: [units]"): `1:12: "quotas" cannot be a default: write it in each rule that draws on one`,
		"quotas: units\n" +
			rule("cost: 1"): `1:9: "quotas" is a list of quotas, not a single value`,
		"quotas: [{name: units, key: [user], limits: [5/day]}, {name: units, key: [ip], limits: [5/day]}]\n" +
			rule("quotas: [units]"): `1:62: there is another quota named "units" on line 1; names must be unique`,
		quota("name: request, key: [user], limits: [5/day]"): `"request" is reserved for limits that ` +
			`come with a request; choose another name`,
		quota("name: units, limits: [5/day]"): `1:10: this quota has no key: write "key: ` +
			`[user]" for a counter for each user, or "key: [rule]" to count all requests together`,
		quota("name: units, key: [user]"): `1:10: this quota has no limits: add ` +
			`"limits", as in limits: [1000/hour]`,
		quota("name: units, key: [user], limits: []"): "the list of limits is empty, and a quota " +
			"needs at least one",
		quota("name: units, key: [user], limits: [5/day, 6/day]"): `two limits of this quota are named "day"`,
		quota("name: units, key: [user], limits: [5/day], cost: 5"): `"cost" belongs to a draw on the quota: in ` +
			`a rule write quotas: [{name: units, cost: 5}]`,
		quota("name: units, key: [user], limits: [5/day], match: {path: ^/x}"): `"match" belongs in the rules that draw on ` +
			`the quota`,
		quota("name: units, key: [user], limit: 5, limits: [5/day]"): `"limit" belongs in an element of "limits"`,
		quota("name: units, key: [user], limits: [5/day], burst: 5"): `no limit of this quota uses "burst"`,
		quota("name: units, key: [user], limits: [5/day], unlimited: true"): `"unlimited" belongs in the rules that ` +
			`draw on the quota`,
		quota("key: [user], limits: [5/day]"): "this quota has no name; names must be " +
			"unique and appear in answers",
	} {
		got := problemsOf(t, file)
		if !slices.ContainsFunc(got, func(g string) bool { return strings.Contains(g, want) }) {
			t.Errorf("%s:\n got %s\nwant %s", file, strings.Join(got, "\n"), want)
		}
	}
	keys := "[user], [ip], [group], [method], [user, ip], [user, group], [ip, group], [user, method]"
	file := "quotas: [{name: u, keys: [" + keys + "], limits: [5/day]}, {name: v, keys: [" + keys +
		"], limits: [5/day]}]\n"
	if got := problemsOf(t, file+rule("quotas: [u, v]")); len(got) != 1 ||
		!strings.Contains(got[0], "this rule and the quotas it draws on count by 17 keys together; at most 16 are allowed") {
		t.Errorf("%q", got)
	}
	mustSet(t, file+"rules: [{name: a, quotas: [u, v]}]", rules.Options{})
}

// What is valid and probably wrong about quotas is a warning, with a line to write.
func TestQuotaWarnings(t *testing.T) {
	const units = "quotas: [{name: units, key: ['attr:customer'], limits: [5/day]}]\n"
	for file, want := range map[string][2]string{
		units + "rules: []": {"quotas: [units]",
			`1:10 units: no rule draws on quota "units", so it counts nothing: write "quotas: [units]" in a rule, or remove ` +
				`the quota`},
		units +
			"rules: [{name: a, key: [user], limits: [5/second], " +
			"quotas: [{name: units, cost: 2}]}]": {"match: {attributes: {customer: }}",
			`2:68 a: rule "a" draws on quota "units", which counts by attribute "customer", and all requests without it share ` +
				`one counter`},
		"quotas: [{name: u, key: [user], limits: [5/month]}]\nrules: [{name: a, quotas: [u]}]": {
			"{limit: 5, window: 30d}", "u: a window of a month is 30 days long"},
		"quotas: [{name: u, key: [user], limits: [5/second, 1000/minute]}]\nrules: [{name: a, quotas: [u]}]": {
			"304/minute", `u: limit "minute" of quota "u" never denies first`},
		"quotas: [{name: u, key: [user], limits: [5/day]}]\nrules: [{name: a, key: [user], cost: 2, quotas: [u]}]": {"",
			`a: rule "a" has no limits of its own, so these fields have no effect: "key". Remove them, or add limits; what a ` +
				`quota counts is set there`},
		"quotas: [{name: u, key: [user], limits: [5/day]}]\nrules: [{name: a, cost: 2, quotas: [{name: u, cost: 1}]}]": {"",
			`these fields have no effect: "cost"`},
	} {
		w := warningsOf(t, file)
		if len(w) != 1 {
			t.Errorf("%s: %+v", file, w)
			continue
		}
		if got := fmt.Sprintf("%d:%d %s: %s", w[0].Line, w[0].Column, w[0].Rule, w[0].Text); w[0].Instead != want[0] ||
			!strings.Contains(got, want[1]) {
			t.Errorf("%s:\n got %s, %q\nwant %s", file, got, w[0].Instead, want)
		}
	}
	if w := warningsOf(t, unitsFile); len(w) > 0 {
		t.Errorf("%+v", w)
	}
}

// Info describes quotas and draws; each warning is with its quota.
func TestQuotaInfo(t *testing.T) {
	s := mustSet(t, unitsFile+"  - {name: rest, key: [user], limits: [5/second]}\n", rules.Options{})
	var got []string
	for _, q := range s.Quotas() {
		got = append(got, fmt.Sprintf("%d %s %v %t %q %s %d", q.Line, q.Rule.Name, q.Keys, q.SkipMissing, q.DrawnBy,
			q.Rule.OnUnreachable, len(q.Warnings)))
	}
	want := []string{
		`3 units [[attr:customer]] false ["search" "save" "read"] closed 0`,
		`4 pairs [[ip] [user]] true ["save"] local 0`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	r := s.Rules()
	if d := r[0].Draws; len(d) != 1 || d[0].Quota.Name != "units" || d[0].Cost != 5 || r[0].Unlimited {
		t.Errorf("%+v", d)
	}
	if d := r[1].Draws; len(d) != 2 || d[0].Cost != 2 || d[0].CostByMethod["DELETE"] != 4 || d[1].Cost != 1 ||
		d[1].CostByMethod["DELETE"] != 3 {
		t.Errorf("%+v", d)
	}
	if d := r[2].Draws; len(d) != 1 || len(d[0].CostCases) != 2 || d[0].CostCases[1].From != "pages" || r[2].Unlimited ||
		len(r[2].Keys) > 0 {
		t.Errorf("%+v", d)
	}
	unused := mustSet(t, "quotas: [{name: u, key: [user], limits: [5/day]}]\nrules: []", rules.Options{})
	if q := unused.Quotas(); len(q) != 1 || len(q[0].Warnings) != 1 || len(q[0].DrawnBy) != 0 {
		t.Errorf("%+v", q)
	}
	if _, err := rules.Parse("f", []byte("quotas: [{name: u, key: [user], limits: [5/day]}]\nrules: []"),
		rules.Options{Strict: true}); err == nil {
		t.Error("a quota that is not used is good in strict mode")
	}
}

// The hash of a file changes with what its quotas and draws mean, and not with their form.
func TestQuotasInTheHash(t *testing.T) {
	base := mustSet(t, unitsFile, rules.Options{}).Hash()
	for old, now := range map[string]string{
		"name: units, key":                       "name: units, shadow: true, key",
		"{name: units, cost: 5}":                 "{name: units, cost: 6}",
		"[units, {name: pairs":                   "[{name: units, cost: 1}, {name: pairs",
		"[[ip], [user]]":                         "[[ip]]",
		"limit: 1000,":                           "limit: 1001,",
		"on_unreachable: closed":                 "on_unreachable: open",
		"{default: 1, DELETE: 3}":                "{default: 1, DELETE: 4}",
		"\n    quotas: [{name: units, cost: 5}]": "",
	} {
		file := strings.Replace(unitsFile, old, now, 1)
		if file == unitsFile || mustSet(t, file, rules.Options{}).Hash() == base {
			t.Errorf("%q for %q: the hash is the same", now, old)
		}
	}
	for old, now := range map[string]string{
		"[{name: units, cost: 5}]": "{name: units, cost: {default: 5}}",
		"[units, {name: pairs":     "[{name: units}, {name: pairs",
	} {
		file := strings.Replace(unitsFile, old, now, 1)
		if file == unitsFile || mustSet(t, file, rules.Options{}).Hash() != base {
			t.Errorf("%q for %q: another hash", now, old)
		}
	}
}

// A draw allocates nothing.
func TestDrawsDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s := mustSet(t, unitsFile, rules.Options{})
	r := &limiter.Request{Path: "/search", User: "ada", Attributes: map[string]string{"customer": "acme"}}
	var c arith.Charge
	if n := testing.AllocsPerRun(100, func() {
		if _, err := s.Resolve(r, &c); err != nil || c.Len() != 2 {
			t.Fatal(err, c.Len())
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// A quota may have its time zone from an attribute: each draw is by the clocks of the zone
// that the request names, and two draws of one request are one key.
func TestQuotaInTheZoneOfTheRequest(t *testing.T) {
	s := mustSet(t, `
quotas: [{name: units, key: [user], zone: "attr:tz", limits: [{limit: 10, calendar: day}]}]
rules:
  - {name: a, continue: true, quotas: [units]}
  - {name: b, quotas: [{name: units, cost: 2}]}
`, rules.Options{})
	var c arith.Charge
	for tz, unzoned := range map[string]string{"Asia/Tokyo": "", "UTC": "", "": "units", "Mars/Olympus": "units"} {
		m, err := s.Resolve(&limiter.Request{Path: "/", User: "ada", Attributes: map[string]string{"tz": tz}}, &c)
		want := tz
		if unzoned != "" {
			want = "UTC"
		}
		if err != nil || c.Len() != 1 || c.Key(0).Cost != 3 || c.Key(0).Rule.Limits[0].Spec().Zone != want ||
			(m.Unzoned != nil) != (unzoned != "") || m.Unzoned != nil && *m.Unzoned != (rules.Unzoned{Rule: unzoned,
			Missing: tz == ""}) {
			t.Errorf("%q: %+v, %+v, %v", tz, m, c.Key(0), err)
		}
	}
	if q := s.Quotas()[0]; q.ZoneFrom != "tz" {
		t.Errorf("%+v", q)
	}
	file := "quotas: [{name: units, key: [user, 'attr:tz'], zone: 'attr:tz', limits: [{limit: 10, calendar: " +
		"day}]}]\nrules: [{name: a, match: {attributes: {tz: }}, quotas: [units]}]"
	if w := warningsOf(t, file); len(w) != 1 || !strings.Contains(w[0].Text,
		`quota "units" counts by attribute "tz", which also names its time zone`) {
		t.Errorf("%+v", w)
	}
	file = "quotas: [{name: units, key: [user], limits: [{limit: 10, calendar: day, zone: 'attr:a'}, {limit: 9, " +
		"calendar: month, zone: 'attr:b'}]}]\nrules: [{name: a, quotas: [units]}]"
	if p := problemsOf(t, file); len(p) != 1 || !strings.HasSuffix(p[0], "make them two quotas") {
		t.Errorf("%q", p)
	}
}

package rules

import (
	"regexp"
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Spellings of a value count together as the rule says, and only those.
func TestSpellingsOfAValue(t *testing.T) {
	const rule = "rules: [{name: r, key: [PART], limits: [1/second]}]"
	request := func(v string) *limiter.Request {
		return &limiter.Request{Path: v, User: v, Group: v, IP: "10.0.0.1", Attributes: map[string]string{"name": v}}
	}
	hash := func(part, v string) arith.Hash {
		t.Helper()
		set := parsed(t, strings.Replace(rule, "PART", part, 1))
		var c arith.Charge
		if _, err := set.Resolve(request(v), &c); err != nil {
			t.Fatal(err)
		}
		return c.Key(0).Hash
	}
	for _, part := range []string{"path", "user", "group", `"attr:name"`} {
		for _, row := range []struct {
			fold     string
			together []string
			apart    []string
		}{
			{"{fold: case, trim: true}", []string{"victim@x", "Victim@X", "VICTIM@x ", "\t victim@x\n", "\u00a0victim@x"},
				[]string{"victim@y", "vic tim@x"}},
			{"{fold: case}", []string{"straße", "STRAßE", "Straẞe"}, []string{"strasse", "straße "}},
			{"{fold: case}", []string{"σ", "Σ", "ς"}, []string{"s"}},
			{"{fold: case}", []string{"k", "K", "\u212a"}, []string{"κ"}}, // the sign of Kelvin
			{"{fold: case}", []string{"İ"}, []string{"i", "I", "ı"}},      // no character but itself
			{"{fold: case}", []string{"é", "É"}, []string{"e\u0301"}},     // nothing is composed
			{"{fold: case}", []string{"a\xffb", "A\xffB"}, []string{"a\xfeb", "a\ufffdb"}},
			{"{trim: true}", []string{"ada", " ada "}, []string{"Ada"}},
		} {
			spelled := "{" + part + ": " + row.fold + "}"
			want := hash(spelled, row.together[0])
			for _, v := range row.together[1:] {
				if hash(spelled, v) != want {
					t.Errorf("%s: %q and %q are two", spelled, row.together[0], v)
				}
			}
			for _, v := range row.apart {
				if hash(spelled, v) == want {
					t.Errorf("%s: %q and %q are one", spelled, row.together[0], v)
				}
			}
		}
		if hash(part, "ada") == hash(part, "Ada") {
			t.Errorf("%s: without a word of it two spellings are one", part)
		}
	}
	if hash("{user: {trim: true}}", " ") != hash("{user: {trim: true}}", "") {
		t.Error("a user of whitePattern is not a missing one, who counts by the address")
	}
}

// A user whose spelling is folded and who is missing skips the key, and lists show the spelling that counts.
func TestSpellingsInKeys(t *testing.T) {
	set := parsed(t, "rules: [{name: login, keys: [[ip], [{user: {fold: case, trim: true}}]], limits: [1/second]}]")
	var c arith.Charge
	if _, err := set.Resolve(&limiter.Request{User: " ", IP: "10.0.0.1"}, &c); err != nil || c.Len() != 1 {
		t.Errorf("%d keys, %v", c.Len(), err)
	}
	r := &limiter.Request{User: " Ada@X ", IP: "10.0.0.1"}
	if _, err := set.Resolve(r, &c); err != nil || c.Len() != 2 {
		t.Fatalf("%d keys, %v", c.Len(), err)
	}
	if name := string(set.AppendKeyName(nil, r, c.Key(1), nil)); name != "ada@x" {
		t.Errorf("the key is called %q", name)
	}
}

func TestSpellingErrors(t *testing.T) {
	for part, want := range map[string]string{
		"{user: {fold: lower}}":              "what can be folded is case",
		"{user: {}}":                         "it says nothing",
		"{user: {trim: false}}":              "it says nothing",
		"{ip: {fold: case}}":                 "ip has one spelling already",
		"{rule: {trim: true}}":               "rule has one spelling already",
		"{user: fold}":                       "{user: {fold: case, trim: true}}",
		"{usr: {trim: true}}":                `did you mean "user"?`,
		"{user: {trim: true, folded: case}}": "fold",
		"{user: {trim: true}}, user":         "in the key already",
	} {
		_, err := Parse("r.yaml", []byte("rules: [{name: r, key: ["+part+"], limits: [1/second]}]"), Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", part, err, want)
		}
	}
}

func parsed(t *testing.T, text string) *Set {
	t.Helper()
	set, err := Parse("r.yaml", []byte(text), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// A condition compares one spelling of a value, where a key counts several together.
func TestConditionsBesideFoldedKeysAreWarnedOf(t *testing.T) {
	for match, want := range map[string]string{
		"user: ada":                         "user: {pattern: '(?i)^BLANKSadaBLANKS$'}",
		"user: [a.b, 'o''n']":               "user: {pattern: '(?i)^BLANKS(a\\.b|o''n)BLANKS$'}",
		"not_user: ada":                     "not_user: {pattern: '(?i)^BLANKSadaBLANKS$'}",
		"attributes: {plan: [free, trial]}": "plan: {pattern: '(?i)^(free|trial)$'}",
		"attributes: {plan: {not: free}}":   "plan: {not: {pattern: '(?i)^free$'}}",
	} {
		want := strings.ReplaceAll(want, "BLANKS", whitePattern)
		file := "rules:\n- {name: a, key: [{user: {fold: case, trim: true}}], limits: [5/hour]}\n" +
			"- {name: b, key: [{'attr:plan': {fold: case}}], match: {attributes: {plan: }}, limits: [5/hour]}\n"
		instead := func(file string) (out []string) {
			for _, w := range parsed(t, file).Warnings() {
				if strings.Contains(w.Text, "byte by byte") {
					out = append(out, w.Instead)
				}
			}
			return out
		}
		rule := "- {name: c, key: [ip], match: {" + match + "}, limits: [5/hour]}\n"
		if got := instead(file + rule); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q, want %q", match, got, want)
		}
		if got := instead("rules:\n" + rule); len(got) > 0 {
			t.Errorf("%s: %q without a key that folds", match, got)
		}
		written := "- {name: c, key: [ip], match: {" + want + "}, limits: [5/hour]}\n"
		if strings.HasPrefix(want, "plan") {
			written = "- {name: c, key: [ip], match: {attributes: {" + want + "}}, limits: [5/hour]}\n"
		}
		if got := instead(file + written); len(got) > 0 {
			t.Errorf("what is written instead has warnings: %q", got)
		}
	}
	for _, match := range []string{`not_user: ""`, `user: {pattern: "^a"}`, `attributes: {plan: ["7", "8"]}`,
		`attributes: {plan: ""}`} {
		file := "rules: [{name: a, key: [{user: {fold: case}}, {'attr:plan': {fold: case}}], match: {" + match +
			"}, limits: [5/hour]}]"
		for _, w := range parsed(t, file).Warnings() {
			if strings.Contains(w.Text, "byte by byte") {
				t.Errorf("%s: %s", match, w.Text)
			}
		}
	}
}

// What a key takes off both ends of a value, the pattern that a warning proposes takes off, too, and nothing else.
func TestProposedPatternTrimsAsKeysDo(t *testing.T) {
	f := foldCase | trimBlanks
	text := f.pattern([]string{"mallory"})
	proposed := regexp.MustCompile(strings.TrimSuffix(strings.TrimPrefix(text, "{pattern: '"), "'}"))
	for r := range rune(0x30000) {
		if user := string(r) + "Mallory" + string(r); proposed.MatchString(user) != (f.of(user) == "mallory") {
			t.Errorf("%+q is %+q in a key, and %v matches it: %v", user, f.of(user), proposed, proposed.MatchString(user))
		}
	}
}

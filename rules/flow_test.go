package rules

import (
	"fmt"
	"strings"
	"testing"
)

// In braces, an element of a list may have colons without quotes, as outside of them.
func TestColonsInFlowStyle(t *testing.T) {
	for key, want := range map[string]string{
		"[attr:customer]":                     "[[attr:customer]]",
		"[attr:customer, path]":               "[[attr:customer path]]",
		"[ path , attr:customer ]":            "[[path attr:customer]]",
		"[attr:1, user]":                      "[[attr:1 user]]",
		"[attr:a:b]":                          "[[attr:a:b]]",
		"[attr:é]":                            "[[attr:é]]",
		"[attr:a b]":                          "[[attr:a b]]",
		"['attr:a', \"attr:b\", attr:c]":      "[[attr:a attr:b attr:c]]",
		"[\n   attr:a, # one\n   attr:b\n  ]": "[[attr:a attr:b]]",
	} {
		for _, file := range []string{
			"rules: [{name: a, match: {method: [GET], path: ^/}, key: " + key + ", limits: [5/second]}]",
			"rules:\n  - {name: a, limits: [5/second], key: " + key + "}\n",
			"{rules: [{name: a, limits: [5/second], key: " + key + "}]}",
			"rules:\n- name: a\n  limits: [5/second]\n  key: " + key + "\n",
		} {
			s, err := Parse("f", []byte(file), Options{})
			if err != nil {
				t.Errorf("%s: %v", file, err)
			} else if got := fmt.Sprint(s.Rules()[0].Keys); got != want {
				t.Errorf("%s: key %s, want %s", file, got, want)
			}
		}
	}
	s, err := Parse("f",
		[]byte("rules: [{name: a, limits: [5/second], keys: [[attr:a, ip], [attr:b]], match: {attributes: {x: [::1, "+
			"2001:db8::/32, fe80::, a:b], y: c:d}}}]"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(s.Rules()[0].Keys,
		s.Rules()[0].Attributes); got != "[[attr:a ip] [attr:b]] map[x:[2001:db8::/32 ::1 a:b fe80::] y:[c:d]]" {
		t.Errorf("got %s", got)
	}
}

// What follows a value with colons keeps its position.
func TestPositionsAfterColonsInFlowStyle(t *testing.T) {
	for file, want := range map[string]string{
		"rules: [{name: a, key: [attr:customer, usr], limits: [5/second]}]": `f:1:40: unknown part of a key "usr"`,
		"rules: [{name: a, key: [attr:x, atr:y], limits: [5/second]}]": `f:1:33: unknown part of a key ` +
			`"atr:y"`,
		"rules: [{name: a, key: [attr:x], limits: [5/secnd]}]":                  `f:1:43: "secnd" is not a duration`,
		"rules:\n- {name: a,\n   key: [attr:x,\n    :y], limits: [5/second]}\n": `f:4:5: unknown part of a key ":y"`,
		"rules: [{name: a, key: [attr: x], limits: [5/second]}]": `f:1:25: write attr:NAME without a ` +
			`blank`,
		"rules: [{name: a, match: {method: GET group: b}, limits: [5/second]}]": `f:1:35: "GET group: b" contains a ` +
			`colon followed by a blank: put a comma before "group"`,
		"rules: [{name: a, match: {method: [GET group: b]}, limits: [5/second]}]": `f:1:`,
		"rules: [{name: a, key: [attr:x path: b], limits: [5/second]}]": `f:1:25: "attr:x path: b" contains ` +
			`a colon followed by a blank: put a comma before "path"`,
		"rules: [{name: a, key: [attr:x\n y], limits: [5/second]}]":                   `f:`,
		"rules: [{name: a, key: [attr:], limits: [5/second]}]":                        `f:1:`,
		"rules: [{name: a, key: [attr:\"x\"], limits: [5/second]}]":                   `f:1:`,
		"rules: [{name: a, key: [attr :x], limits: [5/second]}]":                      `f:1:`,
		"rules: [{name: a, limits: [5/second], match: {attributes: {x: [\"a\":b]}}}]": `f:1:`,
	} {
		_, err := Parse("f", []byte(file), Options{})
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", file, err, want)
		}
	}
}

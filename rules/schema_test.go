package rules_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/goccy/go-yaml"

	"github.com/weirlimit/weir/rules"
)

// judge is a validator for as much of JSON Schema as the schema of rules files uses.
type judge struct{ root map[string]any }

// fits returns why a value does not fit a schema, or "".
func (j *judge) fits(schema, v any) string {
	s := schema.(map[string]any)
	for _, word := range sortedKeys(s) {
		if bad := j.word(s, word, v); bad != "" {
			return bad
		}
	}
	return ""
}

func sortedKeys(m map[string]any) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// word judges by one keyword of a schema.
func (j *judge) word(s map[string]any, word string, v any) string {
	text, isText := v.(string)
	number, isNumber := v.(float64)
	list, isList := v.([]any)
	object, isObject := v.(map[string]any)
	bad := false
	switch arg := s[word]; word {
	case "$schema", "$id", "$defs", "title":
	case "$ref":
		return j.fits(j.root["$defs"].(map[string]any)[strings.TrimPrefix(arg.(string), "#/$defs/")], v)
	case "type":
		if one, ok := arg.(string); ok {
			arg = []any{one}
		}
		kind := map[bool]string{isText: "string", isNumber: "number", isList: "array", isObject: "object",
			v == nil: "null"}[true]
		if _, ok := v.(bool); ok {
			kind = "boolean"
		}
		bad = !slices.Contains(arg.([]any), any(kind)) &&
			!(isNumber && number == float64(int64(number)) && slices.Contains(arg.([]any), any("integer")))
	case "enum":
		bad = !slices.Contains(arg.([]any), v)
	case "const":
		bad = v != arg
	case "anyOf":
		var why []string
		for _, one := range arg.([]any) {
			w := j.fits(one, v)
			if w == "" {
				return ""
			}
			why = append(why, w)
		}
		return strings.Join(why, ", and ")
	case "pattern":
		bad = isText && !regexp.MustCompile(arg.(string)).MatchString(text)
	case "minLength":
		bad = isText && utf8.RuneCountInString(text) < int(arg.(float64))
	case "maxLength":
		bad = isText && utf8.RuneCountInString(text) > int(arg.(float64))
	case "minimum":
		bad = isNumber && number < arg.(float64)
	case "maximum":
		bad = isNumber && number > arg.(float64)
	case "minItems":
		bad = isList && len(list) < int(arg.(float64))
	case "maxItems":
		bad = isList && len(list) > int(arg.(float64))
	case "maxProperties":
		bad = isObject && len(object) > int(arg.(float64))
	case "minProperties":
		bad = isObject && len(object) < int(arg.(float64))
	case "patternProperties":
		for _, name := range sortedKeys(object) {
			for pattern, form := range arg.(map[string]any) {
				if !regexp.MustCompile(pattern).MatchString(name) {
					continue
				}
				if why := j.fits(form, object[name]); why != "" {
					return name + ": " + why
				}
			}
		}
	case "items":
		for i, e := range list {
			if why := j.fits(arg, e); why != "" {
				return fmt.Sprintf("[%d]: %s", i, why)
			}
		}
	case "required":
		for _, name := range arg.([]any) {
			if _, ok := object[name.(string)]; isObject && !ok {
				return "lacks " + name.(string)
			}
		}
	case "propertyNames":
		for _, name := range sortedKeys(object) {
			if why := j.fits(arg, name); why != "" {
				return why
			}
		}
	case "properties":
		for _, name := range sortedKeys(object) {
			if p, ok := arg.(map[string]any)[name]; ok {
				if why := j.fits(p, object[name]); why != "" {
					return name + ": " + why
				}
			}
		}
	case "additionalProperties":
		known, _ := s["properties"].(map[string]any)
		for _, name := range sortedKeys(object) {
			if _, ok := known[name]; ok || named(s["patternProperties"], name) {
				continue
			}
			if arg == false {
				return "unknown " + name
			}
			if why := j.fits(arg, object[name]); why != "" {
				return name + ": " + why
			}
		}
	default:
		return "the judge does not know the keyword " + word
	}
	if bad {
		return fmt.Sprintf("%v against %s %v", v, word, s[word])
	}
	return ""
}

// named reports whether a name fits one of the patterns of a schema.
func named(patterns any, name string) bool {
	all, _ := patterns.(map[string]any)
	for pattern := range all {
		if regexp.MustCompile(pattern).MatchString(name) {
			return true
		}
	}
	return false
}

// schema is the schema, as a judge reads it.
var schema = sync.OnceValues(func() (out map[string]any, err error) {
	return out, json.Unmarshal(rules.Schema(), &out)
})

// judged returns why a file does not fit the schema, or "".
func judged(tb testing.TB, file string) string {
	tb.Helper()
	root, err := schema()
	if err != nil {
		tb.Fatal(err)
	}
	plain, err := asJSON(file)
	if err != nil {
		tb.Fatal(err, file)
	}
	return (&judge{root}).fits(root, plain)
}

// asJSON returns the values of a file, as a library reads them that knows nothing of rules.
func asJSON(file string) (plain any, err error) {
	var v any
	if err := yaml.Unmarshal([]byte(file), &v); err != nil {
		return nil, err
	}
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return plain, json.Unmarshal(data, &plain)
}

// fitsSchema holds a file that is valid against the schema. Files that the library cannot
// read by itself, and large ones, are left out.
func fitsSchema(tb testing.TB, file string) {
	tb.Helper()
	if _, test := tb.(*testing.T); !test || len(file) > 10_000 {
		return
	}
	if _, err := asJSON(quoted(file)); err != nil {
		return
	}
	if why := judged(tb, quoted(file)); why != "" {
		tb.Errorf("the schema refuses a valid file: %s\n%s", why, file)
	}
}

// Values that the decoder takes fit the schema.
func TestSchemaTakesWhatTheDecoderTakes(t *testing.T) {
	for _, fields := range []string{
		"limits: [5/second], cost: {Post: 2, dElEtE: 3, Version-Control: 1}", "limits: [{limit: 5, window: .5s}]",
		"limits: [5/.5s]", "limits: [' 5 / 1.5h ']",
		"limits: [5/second], max_share: .5%", "limits: [5/second], id_ttl: 1h30m", "limits: [5/second], max_share: 20%",
		"match: {path: true, not_path: 5}, limits: [5/second]", "limits: 5/second",
		`limits: [{limit: 5, window: 1s, weight: "00.5"}]`, "limits: [{limit: 1_000, window: 1s}]",
		"match: {host: '[::1]'}, limits: [5/second]", "limits: [5/second], unlimited: False",
	} {
		mustSet(t, "rules: [{name: a, "+fields+"}]", rules.Options{})
		if _, err := asJSON(quoted("rules: [{name: a, " + fields + "}]")); err != nil {
			t.Errorf("%s: %v", fields, err)
		}
	}
	for _, file := range goodFiles(t) {
		fitsSchema(t, file)
	}
}

// The file for editors is what the program prints.
func TestSchemaFile(t *testing.T) {
	have, err := os.ReadFile("../docs/rules.schema.json")
	if err != nil || !bytes.Equal(have, rules.Schema()) {
		t.Errorf("%v; docs/rules.schema.json is not the schema: run go run ./cmd/weir schema > docs/rules.schema.json", err)
	}
	if bytes.Contains(have, []byte("null,")) || bytes.Contains(have, []byte(": null")) {
		t.Error("a field has no form: see formOf")
	}
}

// Page, decoder and schema know the same fields and values: what the page gives as an
// example fits the schema, and what the decoder refuses for its name, kind or range does
// not.
func TestSchemaAgreesWithThePage(t *testing.T) {
	examples, refused := 0, 0
	for title, s := range referencePage(t) {
		for _, f := range s.fields {
			if len(f) != 5 {
				continue
			}
			name := unquote(f[0])
			files := []string{inFile(title, unquote(f[3]), algorithmsOf(s, f)[0])}
			if def := unquote(f[2]); f[2] == "`"+def+"`" {
				files = append(files, inFile(title, name+": "+def, algorithmsOf(s, f)[0]))
			}
			for _, file := range files {
				if why := judged(t, quoted(file)); why != "" {
					t.Errorf("%s: %s", file, why)
				}
				examples++
			}
			for _, m := range regexp.MustCompile("`([a-z0-9_:]+)`").FindAllStringSubmatch(f[1], -1) {
				if name == "from" || name == "pattern" || name == "block" || name == "limit" {
					break
				}
				if why := judged(t, inFile(title, name+": "+m[1], algorithmsOf(s, f)[0])); why != "" {
					t.Errorf("%s: %s: %s", name, m[1], why)
				}
			}
			if why := judged(t, inFile(title, name+": {qqq: [qqq]}", algorithmsOf(s, f)[0])); why == "" && name != "attributes" {
				t.Errorf("%s: a wrong value fits", name)
			}
		}
		for _, e := range s.errors {
			line := unquote(e[0])
			file := inFile(title, line, "")
			why := judged(t, quoted(file))
			beyond := slices.ContainsFunc([]string{"reserved", "rules_count", "regular expression", "within a network",
				"seems to be a pattern",
				"is not a wildcard", "is not a value", "no limit of this rule", "does not use", "0s is out of range", "401",
				"9624h", "unknown quota", "draws on quota", "is in shadow", "has no key", "not the rate", "not divisible",
				"give 1ms to 24h"}, func(part string) bool {
				return strings.Contains(e[1], part)
			})
			if (why == "") != beyond {
				t.Errorf("%s: the page says %q, the schema %q", line, e[1], why)
			}
			refused++
		}
	}
	if examples < 60 || refused < 30 {
		t.Errorf("%d examples and %d errors: was the page read?", examples, refused)
	}
	for title, known := range map[string]string{"The file": "", "A rule": "rule", "Match": "match", "A limit": "limit",
		"Defaults": "defaults", "Cost": "element", "Attributes": "attribute",
		"A quota": "quota", "A draw on a quota": "draw", "Drips": "drip"} {
		if why := judged(t, inFile(title, "qqqqqqqqqqqq: 1", "")); !strings.Contains(why, "unknown qqqqqqqqqqqq") {
			t.Errorf("%s (%s): an unknown field fits: %q", title, known, why)
		}
	}
}

// Schema and decoder agree on what a draw on alternatives may have.
func TestSchemaOfAlternatives(t *testing.T) {
	const file = "quotas: [{name: own, key: [user], limits: [50/hour]}, {name: pool, key: [rule], limits: [50/day]}, " +
		"{name: more, key: [rule], limits: [50/day]}]\nrules: [{name: r, quotas: [%s]}]\n"
	for draw, valid := range map[string]bool{
		"{any: [own, pool]}": true, "{any: [own, {name: pool, up_to: 80%}], cost: 5}": true,
		"{name: own, up_to: 80%}": true, "{any: [{name: own}, pool]}": true,
		"{name: own, cost: 5}, {any: [pool, more]}": true, "{any: [own, {name: pool, cost: 5}]}": false,
		"{any: [own, {any: [pool, more]}]}": false, "{any: [own]}": false, "{any: [own, pool], name: more}": false,
		"{any: [own, pool], up_to: 80%}": false, "{any: [own, {up_to: 80%}]}": false,
	} {
		text := fmt.Sprintf(file, draw)
		_, err := rules.Parse("f", []byte(text), rules.Options{})
		if why := judged(t, text); (err == nil) != valid || (why == "") != valid {
			t.Errorf("%s: valid %v, the decoder says %v, the schema %q", draw, valid, err, why)
		}
	}
}

// quoted puts elements with colons within braces in quotes, for the library.
func quoted(file string) string {
	return regexp.MustCompile(`([[ ])(attr:[a-z_]+)([],])`).ReplaceAllString(file, "$1\"$2\"$3")
}

// The files that people copy fit the schema.
func TestSchemaTakesFilesThatPeopleCopy(t *testing.T) {
	for _, name := range []string{"../examples/towns.yaml", "../deploy/weir/rules.yaml",
		"../cmd/node/internal/demo/rules.yaml"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if why := judged(t, string(text)); why != "" {
			t.Errorf("%s: %s", name, why)
		}
	}
}

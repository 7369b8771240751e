package config_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"gopkg.in/yaml.v2"

	"github.com/weirlimit/weir/internal/envoy/config"
)

func parse(text string) (*config.Config, error) {
	return config.Parse([]config.File{{Name: "config.basic.yaml", Data: []byte(text)}}, config.Options{})
}

// TestErrors has each error that the format's own program gives, with its words.
func TestErrors(t *testing.T) {
	const head = "domain: d\ndescriptors:\n"
	for text, want := range map[string]string{
		"domain: [": "error loading config file: yaml: line 1: did not find expected node content",
		"- a": "error loading config file: yaml: unmarshal errors:\n  line 1: cannot unmarshal !!seq into " +
			"map[interface {}]interface {}",
		"0.25: x\ndomain: d": "config error, key is not of type string: 0.25",
		"ratelimit: 1":       "config error, unknown key 'ratelimit'",
		head + "  - {key: a, rate_limit: {unit: second, requests_per_second: 2}}": "config error, unknown key " +
			"'requests_per_second'",
		"domain: d\ndescriptors: [a]":                     "config error, yaml file contains list of type other than map: a",
		head + "  - {key: a, value: 1.5}":                 "error checking config",
		head + "  - {key: a, value: 2^64}\n":              "", // a text
		head + "  - {key: a, value: 9223372036854775808}": "error checking config",
		"descriptors: []":                                 "config file cannot have empty domain",
		"":                                                "config file cannot have empty domain",
		head + "  - {value: x}":                           "descriptor has empty key",
		head + "  - {key: a}\n  - {key: a}":               "duplicate descriptor composite key 'd.a'",
		head + "  - {key: a, value: b_c}\n  - {key: a_b, value: c}": "duplicate descriptor composite " +
			"key 'd.a_b_c'",
		head + "  - {key: a, descriptors: [{key: b, value: 1}, {key: b, value: 1}]}": "duplicate descriptor composite " +
			"key 'd.a.b_1'",
		head + "  - {key: a, rate_limit: {unit: foo, requests_per_unit: 1}}":     "invalid rate limit unit 'foo'",
		head + "  - {key: a, rate_limit: {unit: unknown, requests_per_unit: 1}}": "invalid rate limit unit 'unknown'",
		head + "  - {key: a, rate_limit: {requests_per_unit: 1}}":                "invalid rate limit unit ''",
		head + "  - {key: a, rate_limit: {unlimited: true, unit: day}}": "should not specify rate limit " +
			"unit when unlimited",
		head + "  - {key: a, rate_limit: {unit: day, replaces: [{name: ''}]}}": "should not have an empty replaces " +
			"entry",
		head + "  - {key: a, rate_limit: {unit: day, name: n, replaces: [{name: n}]}}": "replaces should not contain name " +
			"of same descriptor",
		head + "  - {key: k, value: v, share_threshold: true}": "share_threshold can only be used " +
			"with wildcard values (containing '*'), but found key 'k_v'",
		head + "  - {key: k, rate_limit: {unit: day}, metadata: {x: {1: y}}}": "error parsing metadata: the key 1 " +
			"is not text",
		head + "  - {key: a, rate_limit: {unit: day, requests_per_unit: -1}}": "error loading config file: yaml: " +
			"unmarshal errors:\n  line 3: cannot unmarshal !!int `-1` into uint32",
		head + "  - {key: a, rate_limit: {unit: day, requests_per_unit: 4294967296}}": "error loading config file: yaml: " +
			"unmarshal errors:\n  line 3: cannot unmarshal !!int `4294967296` into uint32",
		head + "  - {key: a, rate_limit: {unit: day, requests_per_unit: \"1\"}}": "error loading config file: yaml: " +
			"unmarshal errors:\n  line 3: cannot unmarshal !!str `1` into uint32",
		// What is accepted.
		head + "  - {key: a, shadow_mode: yes, quota_mode: off, detailed_metric: y, value_to_metric: no}": "",
		head + "  - {key: a, value: yes}\n  - {key: a, value: 10}\n  - {key: a, value: 2020-01-01}":       "",
		// the last of two counts
		head + "  - {key: a, key: b}\n  - {key: a}":                                        "",
		head + "  - {key: a, descriptors: null, rate_limit: null, unit: day}":              "",
		head + "  - {key: a, rate_limit: {unit: WeeK}}":                                    "",
		head + "  - &x {key: a, rate_limit: {unit: day}}\n  - {<<: *x, key: b}":            "",
		head + "  - {key: a, rate_limit: {unit: day}, metadata: {x: [1, 1.5, {z: null}]}}": "",
	} {
		_, err := parse(text)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if want != "" {
			want = "config.basic.yaml: " + want
		}
		if got != want {
			t.Errorf("%s\n got %q\nwant %q", text, got, want)
		}
	}
}

func TestSeveralFiles(t *testing.T) {
	files := []config.File{
		{Name: "b.yaml", Data: []byte("domain: d\ndescriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 2}}]")},
		{Name: "a.yaml", Data: []byte("domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]")},
	}
	if _, err := config.Parse(files, config.Options{}); err == nil ||
		err.Error() != "b.yaml: duplicate domain 'd' in config file" {
		t.Error(err)
	}
	c, err := config.Parse(files, config.Options{MergeDomains: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "b"} {
		if l, _ := c.Lookup("d", []config.Entry{{Key: key, Value: "x"}}, nil); l == nil {
			t.Errorf("%s of a merged domain has no limit", key)
		}
	}
	files[1].Data = []byte("domain: d\ndescriptors: [{key: b}]")
	if _, err := config.Parse(files, config.Options{MergeDomains: true}); err == nil ||
		err.Error() != "b.yaml: duplicate descriptor composite key 'd.b'" {
		t.Error(err)
	}
}

// TestHostileFiles: neither depth nor aliases make a small file large.
func TestHostileFiles(t *testing.T) {
	deep := "domain: d\ndescriptors: " + strings.Repeat("[{key: a, descriptors: ", 5000) + strings.Repeat("}]", 5000)
	if _, err := parse(deep); err == nil {
		t.Error("5,000 levels are accepted")
	}
	bomb := "domain: d\nmetadata:\n  a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for i := byte('b'); i < 'j'; i++ {
		bomb += fmt.Sprintf("  %c: &%c [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", i-1), 10), ", "))
	}
	if _, err := parse(bomb); err == nil || !strings.Contains(err.Error(), "excessive aliasing") {
		t.Error(err)
	}
	wide := "domain: d\nx: &x [" + strings.TrimSuffix(strings.Repeat("{key: a}, ", 50), ", ") + "]\n"
	if _, err := parse(wide); err == nil {
		t.Error("an unknown key is accepted")
	}
}

// reference is the look-up a second time: from the file's own form, by regular expressions.
type reference struct {
	Domain      string
	Descriptors []refDescriptor
}

type refDescriptor struct {
	Key, Value     string
	RateLimit      *struct{ Name string } `yaml:"rate_limit"`
	ShareThreshold bool                   `yaml:"share_threshold"`
	Descriptors    []refDescriptor
}

func (d *refDescriptor) text() string {
	if d.Value == "" {
		return d.Key
	}
	return d.Key + "_" + d.Value
}

// limit returns the name of the limit, and what it counts by.
func (r *reference) limit(entries []config.Entry) (name, counted string) {
	ds := r.Descriptors
	for i, e := range entries {
		var found *refDescriptor
		wild := false
		for pass := range 3 {
			for j := range ds {
				d := &ds[j]
				pattern := "(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(d.text()), `\*`, ".*") + "$"
				if found == nil && (pass == 0 && d.text() == e.Key+"_"+e.Value ||
					pass == 1 && strings.Contains(d.text(), "*") && regexp.MustCompile(pattern).MatchString(e.Key+"_"+e.Value) ||
					pass == 2 && d.text() == e.Key) {
					found, wild = d, pass == 1
				}
			}
		}
		if found == nil {
			return "", ""
		}
		if wild && found.ShareThreshold {
			counted += fmt.Sprintf("%q/", found.text())
		} else {
			counted += fmt.Sprintf("%q=%q/", e.Key, e.Value)
		}
		if i == len(entries)-1 && found.RateLimit != nil {
			return found.RateLimit.Name, counted
		}
		ds = found.Descriptors
	}
	return "", ""
}

// TestLookupIsTheReference compares random files and requests with the reference.
func TestLookupIsTheReference(t *testing.T) {
	r := rand.New(rand.NewPCG(22, 1))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	serial, pairs, found, shared := 0, 0, 0, 0
	var descriptors func(depth int) []any
	descriptors = func(depth int) (out []any) {
		seen := map[string]bool{}
		for range 1 + r.IntN(4) {
			d := map[string]any{"key": pick("a", "b", "a_x", "a*")}
			text := d["key"].(string)
			if v := pick("", "", "x", "y", "x*", "*", "*y*", "_*"); v != "" {
				d["value"] = v
				text += "_" + v
			}
			if seen[text] {
				continue
			}
			seen[text] = true
			if r.IntN(3) > 0 {
				serial++
				d["rate_limit"] = map[string]any{"unit": "day", "requests_per_unit": 1, "name": fmt.Sprint("n", serial)}
			}
			if strings.Contains(text, "*") && r.IntN(2) == 0 {
				d["share_threshold"] = true
			}
			if depth < 2 && r.IntN(2) == 0 {
				d["descriptors"] = descriptors(depth + 1)
			}
			out = append(out, d)
		}
		return out
	}
	for range 1000 {
		data, err := yaml.Marshal(map[string]any{"domain": "d", "descriptors": descriptors(0)})
		if err != nil {
			t.Fatal(err)
		}
		c, err := parse(string(data))
		if err != nil {
			t.Fatalf("%v\n%s", err, data)
		}
		var ref reference
		if err := yaml.Unmarshal(data, &ref); err != nil {
			t.Fatal(err)
		}
		for range 15 {
			var entries []config.Entry
			for range 1 + r.IntN(3) {
				entries = append(entries, config.Entry{Key: pick("a", "b", "a_x"), Value: pick("", "x", "y", "xy", "xyx", "z\n")})
			}
			l, by := c.Lookup("d", entries, nil)
			name, counted := "", ""
			if l != nil {
				name = l.Name
				found++
				for _, e := range by {
					if strings.Contains(e.Key, "*") {
						counted += fmt.Sprintf("%q/", e.Key)
						shared++
					} else {
						counted += fmt.Sprintf("%q=%q/", e.Key, e.Value)
					}
				}
			}
			if wantName, wantCounted := ref.limit(entries); name != wantName || counted != wantCounted {
				t.Fatalf("%q: limit %q by %s, want %q by %s\n%s", entries, name, counted, wantName, wantCounted, data)
			}
			pairs++
		}
	}
	if pairs < 10_000 || found < 2000 || shared < 100 {
		t.Errorf("%d pairs, %d with a limit, %d of a shared counter: too few to show anything", pairs, found, shared)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("domain: d\ndescriptors: [{key: a, value: 'x*', rate_limit: {unit: day, requests_per_unit: 1}}]")
	f.Add("domain: d\ndescriptors: [{key: a, descriptors: [{key: b, metadata: {x: [1]}}]}]")
	f.Add("domain: d\ndescriptors: [{key: a, rate_limit: {unit: month, requests_per_unit: 1}, metadata: {weir: " +
		"{calendar: true, zone: Europe/Berlin, at: '06:00'}}}]")
	f.Add("domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}, metadata: {weir: " +
		"{algorithm: gcra, burst: 7}}}]")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parse(text)
		if err == nil && c.Domains() != 1 {
			t.Errorf("%d domains of one file", c.Domains())
		}
		if err != nil && !strings.HasPrefix(err.Error(), "config.basic.yaml: ") {
			t.Errorf("an error without the file's name: %v", err)
		}
	})
}

// An empty value is in the name of a detailed limit only, and of none whose levels share values.
func TestLabelsOfEmptyValues(t *testing.T) {
	const file = `
domain: d
descriptors:
  - {key: route, value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: path, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - key: host
    value: "*"
    share_threshold: true
    descriptors: [{key: path, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 1}}]
`
	c, err := parse(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		entries []config.Entry
		want    string
	}{
		{[]config.Entry{{"route", ""}}, "d.route"},
		{[]config.Entry{{"route", "a"}}, "d.route_a"},
		{[]config.Entry{{"path", ""}}, "d.path_"},
		{[]config.Entry{{"host", "h"}, {"path", ""}}, "d.host_*.path"},
		{[]config.Entry{{"host", "h"}, {"path", "a"}}, "d.host_*.path_a"},
	} {
		l, _ := c.Lookup("d", x.entries, nil)
		if got := strings.Join(l.Labels("d", x.entries), "."); got != x.want {
			t.Errorf("%v: %s, want %s", x.entries, got, x.want)
		}
	}
}

// Entries without an order that would have too many orders are cut off, which is not the same as without a limit.
func TestTooManyOrders(t *testing.T) {
	var text strings.Builder // each of 6 keys at each of 5 levels
	var write func(indent string, depth int)
	write = func(indent string, depth int) {
		fmt.Fprintf(&text, "%sdescriptors:\n", indent)
		for i := range 6 {
			fmt.Fprintf(&text, "%s  - key: k%d\n", indent, i)
			if depth > 1 {
				write(indent+"    ", depth-1)
			}
		}
	}
	text.WriteString("domain: d\n")
	write("", 5)
	c, err := parse(text.String())
	if err != nil {
		t.Fatal(err)
	}
	var entries []config.Entry
	for i := range 6 {
		entries = append(entries, config.Entry{Key: fmt.Sprint("k", i), Value: "v"})
	}
	if l, _, all := c.LookupUnordered("d", entries[:2]); l != nil || !all {
		t.Errorf("few orders: %v, %t", l, all)
	}
	if l, _, all := c.LookupUnordered("d", entries); l != nil || all {
		t.Errorf("many orders: %v, %t", l, all)
	}
}

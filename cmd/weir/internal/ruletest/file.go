// Package ruletest reads tests of a rules file, which a team keeps beside it, and runs them in virtual
// time: requests at instants, and what the rules are to answer.
package ruletest

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/yamltree"
	"github.com/weirlimit/weir/limiter"
)

// Bounds of a file of tests.
const (
	maxFile  = 256 << 10
	maxTimes = 1_000_000 // requests of all steps of one file
)

// File is a file of tests.
type File struct {
	// Rules is the name of the rules file, relative to the directory of this file.
	Rules string
	Tests []Test
}

// Test is one test: its requests are the only ones that have been counted.
type Test struct {
	Name  string
	Line  int
	Start time.Time
	Steps []Step
}

// Step is one request of a test, or the same several times, and what is expected of them.
type Step struct {
	Line, Column int
	After        time.Duration // since the step before, or the start
	Every        time.Duration // between the repetitions
	Times        int
	Request      limiter.Request
	// First is how many of the requests are to be allowed before all others are denied; -1: there is
	// no such expectation.
	First int
	// By is the rule that is to decide; nil: any. RetryAfter and Remaining are of the last request.
	By         *string
	RetryAfter *time.Duration
	Remaining  *uint64
}

// Problem is what is wrong with a file of tests, or what differs from it.
type Problem struct {
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Test   string `json:"test,omitempty"`
	Text   string `json:"text"`
}

// decoder decodes a tree and collects its problems.
type decoder struct {
	problems []Problem
	total    int
}

func (d *decoder) addAt(line, column int, format string, args ...any) {
	if len(d.problems) < 100 {
		d.problems = append(d.problems, Problem{Line: line, Column: column, Text: fmt.Sprintf(format, args...)})
	}
}

func (d *decoder) add(n *node, format string, args ...any) {
	d.addAt(n.Line, n.Column, format, args...)
}

// Parse reads a file of tests. If it has problems, the file is nil.
func Parse(data []byte) (*File, []Problem) {
	d := &decoder{}
	root := d.tree(data)
	if root == nil {
		return nil, d.problems
	}
	f, tests := new(File), (*node)(nil)
	d.mapping(root, "a file of tests", []field{
		{"rules", func(n *node) { f.Rules = d.text(n, "rules") }},
		{"tests", func(n *node) { tests = n }},
	})
	switch {
	case tests == nil:
		d.add(root, `the file has no tests: add "tests:", a list of tests with steps`)
	case tests.Kind != yamltree.List:
		d.add(tests, `"tests" is a list of tests`)
	default:
		for _, n := range tests.Items {
			f.Tests = append(f.Tests, d.test(n))
		}
	}
	if len(d.problems) > 0 {
		return nil, d.problems
	}
	return f, nil
}

// start is when a test begins unless it says another instant: a full minute, hour and day of windows.
func start() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

func (d *decoder) test(n *node) Test {
	t := Test{Line: n.Line, Start: start()}
	var with, steps *node
	d.mapping(n, "a test", []field{
		{"name", func(n *node) { t.Name = d.text(n, "name") }},
		{"start", func(n *node) {
			at, err := time.Parse(time.RFC3339, d.text(n, "start"))
			if err != nil || at.Before(time.Unix(0, 0)) {
				d.add(n, "start: %q is not a time after 1970: write it as 2026-12-31T23:59:59Z", n.Text)
			}
			t.Start = at
		}},
		{"with", func(n *node) { with = n }},
		{"steps", func(n *node) { steps = n }},
	})
	if t.Name == "" {
		d.add(n, "this test has no name")
	}
	if steps == nil || steps.Kind != yamltree.List || len(steps.Items) == 0 {
		d.add(n, `this test has no steps: write them as a list, as in steps: [{path: /login, expect: allowed}]`)
		return t
	}
	for _, s := range steps.Items {
		t.Steps = append(t.Steps, d.step(s, with))
	}
	return t
}

// step decodes a step. with has fields of requests that it inherits.
func (d *decoder) step(n, with *node) Step {
	s := Step{Line: n.Line, Column: n.Column, Times: 1, First: -1, Request: limiter.Request{Method: "GET"}}
	if with != nil {
		d.mapping(with, `"with"`, d.requestFields(&s.Request))
	}
	expect := ""
	d.mapping(n, "a step", append(d.requestFields(&s.Request),
		field{"after", func(n *node) { s.After = d.duration(n, "after") }},
		field{"every", func(n *node) { s.Every = d.duration(n, "every") }},
		field{"times", func(n *node) { s.Times = int(d.number(n, "times", 1, maxTimes)) }},
		field{"expect", func(n *node) {
			switch expect = d.text(n, "expect"); expect {
			case "allowed", "denied":
			default:
				d.add(n, `expect: %q is neither "allowed" nor "denied"; of several requests write allow_first: 10`, expect)
			}
		}},
		field{"allow_first", func(n *node) { s.First = int(d.number(n, "allow_first", 0, maxTimes)) }},
		field{"by", func(n *node) { s.By = new(d.text(n, "by")) }},
		field{"retry_after", func(n *node) { s.RetryAfter = new(d.duration(n, "retry_after")) }},
		field{"remaining", func(n *node) {
			s.Remaining = new(uint64(d.number(n, "remaining", 0, limiter.MaxUnits)))
		}},
	))
	switch {
	case n.Kind != yamltree.Mapping:
	case expect == "" && s.First < 0:
		d.add(n, `this step expects nothing: write expect: allowed, expect: denied, or allow_first: 10`)
	case expect != "" && s.First >= 0:
		d.add(n, `"expect" and "allow_first" exclude each other`)
	case s.First > s.Times:
		d.add(n, "allow_first is %d, and there are %d requests: write times: %d or more", s.First, s.Times, s.First)
	case expect == "allowed":
		s.First = s.Times
	case expect == "denied":
		s.First = 0
	}
	if s.RetryAfter != nil && s.First == s.Times && s.First >= 0 {
		d.add(n, `"retry_after" is of a request that is denied, and the last one here is to be allowed`)
	}
	if d.total += s.Times; d.total > maxTimes {
		d.add(n, "the file has more than %d requests", maxTimes)
		d.total = 0
	}
	return s
}

// requestFields are the fields of a request, as those of a check over HTTP.
func (d *decoder) requestFields(r *limiter.Request) []field {
	text := func(name string, to *string) field {
		return field{name, func(n *node) { *to = d.text(n, name) }}
	}
	return []field{
		text("path", &r.Path), text("method", &r.Method), text("user", &r.User), text("ip", &r.IP), text("group", &r.Group),
		text("tenant", &r.Tenant), text("rule", &r.Rule), text("id", &r.ID),
		{"cost", func(n *node) { r.Cost = limiter.Units(d.number(n, "cost", 0, limiter.MaxUnits)) }},
		{"hold", func(n *node) { r.Hold = d.duration(n, "hold") }},
		{"attributes", func(n *node) {
			if n.Kind != yamltree.Mapping {
				d.add(n, "attributes is a mapping of names to values, as in {plan: pro}")
				return
			}
			r.Attributes = map[string]string{}
			for i, k := range n.Keys {
				r.Attributes[k.Text] = d.text(n.Items[i], k.Text)
			}
		}},
	}
}

func (d *decoder) text(n *node, name string) string {
	if n.Kind != yamltree.Scalar {
		d.add(n, "%s is a single value", name)
	}
	return n.Text
}

func (d *decoder) number(n *node, name string, least, most int64) int64 {
	x, err := strconv.ParseInt(strings.ReplaceAll(d.text(n, name), "_", ""), 10, 64)
	if err != nil || x < least || x > most {
		d.add(n, "%s: %q is not a whole number from %d to %d", name, n.Text, least, most)
		return least
	}
	return x
}

func (d *decoder) duration(n *node, name string) time.Duration {
	text := d.text(n, name)
	x, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); err != nil && ok {
		var whole uint64
		whole, err = strconv.ParseUint(days, 10, 16)
		x = time.Duration(whole) * 24 * time.Hour
	}
	if err != nil || x < 0 || x > limiter.MaxWindow {
		d.add(n, "%s: %q is not a duration such as 30s, 1h30m or 2d", name, text)
		return 0
	}
	return x
}

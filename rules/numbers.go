package rules

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/yamltree"
	"github.com/weirlimit/weir/limiter"
)

// Bounds of the numbers that requests choose.
const (
	// maxNumbered bounds the names that all tables of one file give numbers. Each takes about
	// 200 bytes in each rule that uses the table.
	maxNumbered = 100_000
	// maxTableLimits bounds the different limits that all tables of a file make. Two files are in
	// use while one replaces the other, and a table of counters has room for 65,535 limits.
	maxTableLimits = 8192
	// maxNumberedName bounds a name in a table, in bytes.
	maxNumberedName = 255
)

// numbering is where a limit gets its number: from a table, by what the request is, or from
// the request itself.
type numbering struct {
	at     *node
	by     source
	stated bool // the number is that of the request, at most most
	most   int64
	of     []numbered
	window time.Duration // of the numbers, if they are written as rates; else 0
	rate   *node         // the first that is one
	plain  *node         // the first that is not
	file   string        // where the table is; empty: in the rules file
	bad    bool          // there were problems
}

// numbered is one entry of a table.
type numbered struct {
	name  string
	units int64
	at    *node
}

// source is the part of a request that chooses the number of a limit.
type source struct {
	kind partKind
	name string // of the attribute
}

// partTenant is beside the parts of keys: each key has the tenant, so no key names it.
const partTenant partKind = 255

// String returns the source as a rules file has it.
func (s source) String() string {
	if s.kind == partTenant {
		return "tenant"
	}
	return (part{kind: s.kind, name: s.name}).String()
}

func (s source) of(r *limiter.Request) string {
	switch s.kind {
	case partTenant:
		return r.Tenant
	case partUser:
		return r.User
	case partGroup:
		return groupOf(r)
	}
	return r.Attributes[s.name]
}

// choosing is which limits of a rule have numbers that each request chooses, and how.
type choosing struct {
	numbering
	limits []int
	tables []map[string]*limiter.Limit // parallel to limits; of stated numbers nil
	specs  []limiter.Spec              // likewise
}

// numbers is a decoder of numbers that requests choose.
type numbers struct{ *decoder }

// read decodes the long form of a number, such as {by: "attr:plan", of: {pro: 100/minute}, else:
// 10/minute} or {from: "attr:limit", most: 1000/minute, else: 10/minute}. It sets the number
// of the spec to the one of else.
func (d numbers) read(v *node, s *spec) {
	before := len(d.problems.list)
	n := &numbering{at: v}
	d.mapping(v, "the number of a limit", d.fields(n, s), numbersHint)
	has := func(name string) bool { return v.At(name) != nil || d.reported(v, name) }
	missing := func(text string) {
		if len(d.problems.list) == before {
			d.add(v, "%s", text)
		}
	}
	switch {
	case has("by") && has("from"):
		missing(`"by" chooses from a table and "from" takes the number that the request states: write one of them`)
	case has("by"):
		if !has("of") {
			missing(`this table has no "of": write the number of each plan, as in of: {free: 100/minute, pro: 1000/minute}`)
		}
		if has("most") {
			missing(`"most" bounds a number that the request states: remove it, or write "from" in place of "by" and "of"`)
		}
	case has("from"):
		if !has("most") {
			missing(`this limit has no "most": a request could state any number. Write the largest, such as most: ` +
				`10000/minute`)
		}
		if has("of") {
			missing(`"of" is a table, by which no number is stated: write "by" in place of "from", or remove it`)
		}
	default:
		missing(`this limit says neither "by" nor "from": write {by: "attr:plan", of: {free: 100/minute}, else: ` +
			`10/minute}, or {from: "attr:limit", most: 1000/minute, else: 10/minute}`)
	}
	if !has("else") {
		missing(`this limit has no "else": write what counts for a request without a number of its own, such as else: ` +
			`10/minute`)
	}
	n.bad = len(d.problems.list) > before
	if s.at["limit"] = v; n.bad {
		s.bad["limit"], s.bad["window"] = true, true // they depend on it
	}
	s.numbers = n
	if e := v.At("else"); e != nil && !n.bad {
		s.at["limit"] = e
	}
}

func numbersHint(name string) string {
	switch name {
	case "default":
		return `"default" is written as "else" here`
	case "max", "maximum":
		return quote(name) + ` is written as "most" here`
	case "window", "calendar", "algorithm", "burst", "name", "zone":
		return quote(name) + ` belongs beside "limit", as in {limit: {...}, ` + name + `: ...}`
	case "file":
		return `"file" belongs under "of", as in of: {file: plans.yaml}`
	}
	return ""
}

func (d numbers) fields(n *numbering, s *spec) []field {
	number := func(name string, to *int64) field {
		return field{name, func(_, v *node) {
			if d.scalar(v, name) {
				*to = d.number(v, v.Text, name, n)
			}
		}}
	}
	return []field{
		{"by", func(_, v *node) { d.source(v, n, "by") }},
		{"from", func(_, v *node) { n.stated = true; d.source(v, n, "from") }},
		number("most", &n.most),
		number("else", &s.Limit),
		{"of", func(_, v *node) { d.table(v, n) }},
	}
}

func (d numbers) source(v *node, n *numbering, field string) {
	const sources = `"attr:NAME", tenant, user or group`
	if !d.scalar(v, field) {
		return
	}
	p, bad := readPart(v)
	switch {
	case v.Text == "tenant":
		n.by = source{kind: partTenant}
	case strings.HasPrefix(v.Text, attributePrefix) && bad != "":
		d.add(v, "%s: %s", field, bad)
		return
	case bad == "" && (p.kind == partAttribute || p.kind == partUser || p.kind == partGroup):
		n.by = source{p.kind, p.name}
	default:
		d.add(v, "%s: %s does not choose a number: write %s", field, quote(v.Text), sources)
		return
	}
	if n.stated && n.by.kind != partAttribute {
		d.add(v, `from: a request states its number in an attribute: write from: "attr:NAME"`)
		return
	}
	if n.by.kind == partAttribute {
		d.mentions.add(v, n.by.name, `"attr:%s"`)
	}
}

// number decodes a number of units, or a rate, whose window must be the same in all numbers of one
// limit. It returns 0 if there is a problem.
func (d numbers) number(at *node, text, what string, n *numbering) int64 {
	units, window, bad := numberOf(text)
	switch {
	case bad != "":
		d.add(at, "%s: %s", what, bad)
		return 0
	case window == 0:
		n.plain = cmp.Or(n.plain, at)
	case n.rate == nil:
		n.rate, n.window = at, window
	case window != n.window:
		d.add(at, "%s: %s and, on line %d, %s have different windows: the numbers of one limit have one window. Write a "+
			"limit for each window", what, quote(text), n.rate.Line, quote(n.rate.Text))
		return 0
	}
	return units
}

// numberOf parses a number of units, such as 100, or a rate, such as 100/minute. The window of a
// number is 0.
func numberOf(text string) (units int64, window time.Duration, bad string) {
	if strings.Contains(text, "/") {
		units, window, bad = rate(text)
	} else {
		units, bad = integer(text)
	}
	if bad == "" && (units < 1 || units > limiter.MaxUnits) {
		bad = fmt.Sprintf("%d is out of range: give 1 to %d units", units, int64(limiter.MaxUnits))
	}
	return units, window, bad
}

// table decodes a table in the rules file, or one of a file beside it, see [Expand].
func (d numbers) table(v *node, n *numbering) {
	if v.Kind != yamltree.Mapping {
		d.add(v, "of: a table is a mapping of names to numbers, not %s: write of: {free: 100/minute, pro: "+
			"1000/minute}, or of: {file: plans.yaml}", v.Kind)
		return
	}
	if f := v.At("file"); f != nil && len(v.Keys) == 1 && (f.Kind == yamltree.Mapping || !isNumber(f.Text)) {
		d.numbersFile(f, n)
		return
	}
	if len(v.Keys) == 0 {
		d.add(v, "of: the table is empty: write the number of each plan, as in of: {free: 100/minute}")
	}
	for i, k := range v.Keys {
		switch item := v.Items[i]; {
		case item.Kind == yamltree.Empty:
			d.add(k, "%q has no number; give one or remove it", k.Text)
		case d.scalar(item, quote(k.Text)):
			d.entry(n, k.Text, item, item.Text)
		}
	}
}

// isNumber reports whether a value can be the number of a plan whose name is "file".
func isNumber(text string) bool {
	_, _, bad := numberOf(text)
	return bad == ""
}

func (d numbers) entry(n *numbering, name string, at *node, number string) {
	switch {
	case name == "":
		d.add(at, "a name in a table is empty; requests without a name count by else")
	case len(name) > maxNumberedName:
		d.add(at, "a name in a table has %d bytes; at most %d are allowed", len(name), maxNumberedName)
	default:
		if d.numbered++; d.numbered == maxNumbered+1 {
			d.add(at, "the tables of this file have more than %d names", maxNumbered)
		}
		if units := d.number(at, number, quote(name), n); units > 0 {
			n.of = append(n.of, numbered{name, units, at})
		}
	}
}

// settle sets the window of a limit whose numbers are rates, and reports what does not fit.
func (d numbers) settle(s *spec) {
	n := s.numbers
	if n == nil || n.bad || n.rate == nil {
		return
	}
	other := cmp.Or(s.at["window"], s.at["calendar"])
	switch {
	case n.plain != nil:
		d.add(n.plain, "%s has no window, and %s on line %d has one: write all numbers of a limit in one way, as in "+
			"100/minute, or without a window beside \"window: 1m\"", quote(n.plain.Text), quote(n.rate.Text), n.rate.Line)
	case other != nil:
		d.add(n.rate, "%s has a window, and the limit has one on line %d: write only the number, or remove the other",
			quote(n.rate.Text), other.Line)
	default:
		s.Window, s.at["window"] = n.window, n.rate
		return
	}
	n.bad, s.bad["limit"], s.bad["window"] = true, true, true
}

// note notes limit i of a rule or a quota if requests choose its number, and makes the limits
// of its table.
func (d numbers) note(r *definition, at *node, s *spec, l *limiter.Limit, i int) {
	n := s.numbers
	if n == nil || n.bad {
		return
	}
	c := &r.choosing
	switch {
	case c.at == nil:
		c.numbering = *n
	case c.by != n.by || c.stated != n.stated:
		d.add(at, "two limits of this %s take their numbers from different parts of the request, %s and, on line %d, %s: "+
			"make them %s", r.kind(), quote(n.by.String()), c.at.Line, quote(c.by.String()), r.two())
		return
	case c.stated && c.most != n.most:
		d.add(at, "two limits of this %s state one number and have different bounds, %d and, on line %d, %d: give them "+
			"one, or make them %s", r.kind(), n.most, c.at.Line, c.most, r.two())
		return
	}
	c.limits, c.specs, c.tables = append(c.limits, i), append(c.specs, s.Spec), append(c.tables, nil)
	made := map[int64]*limiter.Limit{s.Limit: l}
	limit := func(units int64, at *node) *limiter.Limit {
		have, ok := made[units]
		if ok {
			return have
		}
		spec := s.Spec
		spec.Limit = units
		if p := spec.Problems(); len(p) > 0 {
			d.add(at, "%d: %s", units, p[0].Text)
		} else if have, _ = limiter.NewLimit(spec); !n.stated {
			if d.tableLimits++; d.tableLimits == maxTableLimits+1 {
				d.add(at, "the tables of this file have more than %d different limits", maxTableLimits)
			}
		}
		made[units] = have
		return have
	}
	if n.stated {
		limit(n.most, n.at.At("most"))
		if n.most < s.Limit {
			d.decoder.doubt(n.at.At("else"), "", "else is %d, which is above most, %d: requests that state no number may "+
				"do more than any that states one", s.Limit, n.most)
		}
		return
	}
	table, highest := make(map[string]*limiter.Limit, len(n.of)), int64(0)
	for _, e := range n.of {
		if table[e.name] != nil {
			d.add(e.at, "%s is given twice in this table", quote(e.name))
			return
		}
		if table[e.name] = limit(e.units, e.at); table[e.name] == nil {
			return
		}
		highest = max(highest, e.units)
	}
	if highest < s.Limit && len(n.of) > 0 {
		d.decoder.doubt(n.at.At("else"), "", "else is %d, which is above each number of the table: a request that names "+
			"no plan, or an unknown one, may do more than any that names one", s.Limit)
	}
	c.tables[len(c.tables)-1] = table
}

// agree reports a rule that takes both a time zone and a number from its requests.
func (d numbers) agree(r *definition) {
	if r.choosing.at != nil && r.zoning.at != nil {
		d.add(r.choosing.at, "this %s takes a number from its requests, and on line %d a time zone: make them %s", r.kind(),
			r.zoning.at.Line, r.two())
	}
}

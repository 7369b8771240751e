package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/yamltree"
	"github.com/weirlimit/weir/limiter"
)

// costs are the costs of a check, in units. The first of the cases that a request fits
// decides; without cases the method does.
type costs struct {
	at      *node  // where the file sets them; nil if it does not
	def     uint64 // if nothing else fits
	methods []methodCost
	cases   []costCase
}

type methodCost struct {
	at     *node
	method string // in upper case
	cost   uint64
}

// costCase is what requests cost that fit its conditions.
type costCase struct {
	at    *node
	match matcher
	amount
}

// amount is a number of units, or one that an attribute of the request states.
type amount struct {
	units    uint64
	from     string // the attribute; empty: units
	min, max uint64
	def      uint64 // if the request lacks the attribute
}

func (c *costs) of(r *limiter.Request, ip *requestAddress) uint64 {
	for i := range c.methods {
		if equalUpper(c.methods[i].method, r.Method) {
			return c.methods[i].cost
		}
	}
	if k := c.fitting(r, ip); k != nil {
		return k.of(r)
	}
	return c.def
}

// fitting returns the case that decides, nil if there is none. No attribute that a settlement names is missing.
func (c *costs) fitting(r *limiter.Request, ip *requestAddress) *costCase {
	if len(c.cases) > 0 {
		r = limiter.WithActual(r)
	}
	for i := range c.cases {
		if m := &c.cases[i].match; m.acceptsPath(r.Path) && m.accepts(r, ip) {
			return &c.cases[i]
		}
	}
	return nil
}

// unnamed returns an error if a settlement that names attributes lacks the one from which a check of the same
// request takes its cost. what it costs belongs to is for the error.
func (c *costs) unnamed(r *limiter.Request, ip *requestAddress, what *counters) error {
	if !limiter.NamesActual(r) || what.limiter.Shadow {
		return nil // an experiment makes no request invalid
	}
	k := c.fitting(r, ip)
	if k == nil || k.from == "" {
		return nil
	}
	if _, named := limiter.ActualOf(r, k.from); named {
		return nil
	}
	return fmt.Errorf("%w: %s takes its cost from attribute %s, and the settlement does not say how much of it was "+
		"used: name it beside the others", limiter.ErrInvalid, what, quote(k.from))
}

// of returns the units. A value that is not a whole number, a negative one included,
// costs the maximum: it must not make a request cheaper than an honest value would.
func (a *amount) of(r *limiter.Request) uint64 {
	if a.from == "" {
		return a.units
	}
	if n, named := limiter.ActualOf(r, a.from); named {
		return min(max(n, a.min), a.max)
	}
	text := r.Attributes[a.from]
	if text == "" {
		return a.def
	}
	n := uint64(0)
	for i := range len(text) {
		digit := uint64(text[i] - '0')
		if digit > 9 {
			return a.max
		}
		if n = n*10 + digit; n > limiter.MaxUnits {
			n = limiter.MaxUnits + 1 // the rest may still not be a number
		}
	}
	return min(max(n, a.min), a.max)
}

// costing is a decoder of costs.
type costing struct{ *decoder }

func (d costing) costs(n *node, out *costs) {
	c := costs{at: n, def: 1}
	switch {
	case n.Kind == yamltree.Scalar:
		c.def, _ = d.units(n, "cost", 0)
	case n.Kind == yamltree.List:
		d.costCases(n, &c)
	case n.Kind == yamltree.Mapping && n.At("from") != nil:
		var a amount
		d.amount(n, &a, nil)
		c.cases = []costCase{{amount: a}}
	case n.Kind == yamltree.Mapping:
		d.methodCosts(n, &c)
	}
	*out = c
}

// methodCosts decodes a mapping of methods to costs.
func (d costing) methodCosts(n *node, c *costs) {
	if len(n.Keys) > maxCosts {
		d.add(n.Keys[maxCosts], "cost has %d methods; at most %d are allowed", len(n.Keys), maxCosts)
		return
	}
	for i, k := range n.Keys {
		method := upper(k.Text)
		switch {
		case k.Text == "default":
			c.def, _ = d.units(n.Items[i], "default", 0)
		case slices.ContainsFunc(c.methods, func(m methodCost) bool { return m.method == method }):
			d.add(k, "the cost of method %s is given twice", quote(method))
		case !slices.Contains(knownMethods(), method):
			d.add(k, "%s", unknownCost(k.Text, n, n.Items[i], matching(d).fields(&matcher{})))
		default:
			cost, _ := d.units(n.Items[i], "cost", 0)
			d.lowerMethod(k, cost, defaultCost(n))
			if cost == 0 {
				d.freeMethod(k, n)
			}
			c.methods = append(c.methods, methodCost{k, method, cost})
		}
	}
	slices.SortFunc(c.methods, func(a, b methodCost) int { return strings.Compare(a.method, b.method) })
}

// freeMethod notes a method that costs 0, and is probably meant to be free: a request that
// costs 0 is denied, too, while others have used up the limit. n is the mapping. An element of a
// list with that cost is taken as meant.
func (d costing) freeMethod(k, n *node) {
	method := upper(clip(k.Text))
	d.decoder.doubt(k, "not_method: "+method,
		"a %s costs 0, and is denied all the same while others have used up the limit: write \"not_method: %s\" in match "+
			"for requests that are not limited, or \"cost: [{method: %s, cost: 0}, {cost: %s}]\" if that is meant",
		method, method, method, defaultCost(n))
}

// defaultCost returns the default of a mapping of methods to costs, 1 if it has no valid one.
func defaultCost(n *node) string {
	if v := n.At("default"); v != nil && v.Kind == yamltree.Scalar {
		if _, bad := units(v.Text, 0); bad == "" {
			return v.Text
		}
	}
	return "1"
}

// unknownCost is the error for a field of the cost n that is no method.
func unknownCost(name string, n, value *node, conditions []field) string {
	cost, rest := "2", defaultCost(n)
	if _, bad := units(value.Text, 0); value.Kind == yamltree.Scalar && bad == "" {
		cost = value.Text
	}
	// write is a list of costs with a condition, and the author's numbers.
	write := func(condition, cost string) string {
		return fmt.Sprintf("cost: [{%s, cost: %s}, {cost: %s}]", condition, cost, rest)
	}
	switch {
	case name == "max", name == "min":
		most := "1000"
		if name == "max" && cost == value.Text {
			most = cost
		}
		return quote(name) + ` belongs to a cost that an attribute states, as in {from: "attr:tokens", max: ` + most + `}`
	case name == "cost":
		return quote(name) + " belongs in an element of a list: write " + write("path: ^/export", cost)
	case slices.ContainsFunc(conditions, func(f field) bool { return f.name == name }):
		condition, number := "path: ^/export", "50"
		if value.Kind == yamltree.Scalar {
			condition = name + ": " + plainText(clip(value.Text))
		}
		if v := n.At("cost"); v != nil && v.Kind == yamltree.Scalar {
			number = clip(v.Text)
		}
		return quote(name) + " belongs in an element of a list: write " + write(condition, number)
	}
	if strings.ContainsAny(name, "/^") {
		path := clip(name)
		if path[0] == '/' {
			path = "^" + path
		}
		return quote(name) + " is not a method; for a path write " + write("path: "+plainText(path), cost)
	}
	if s := nearest(name, []string{"default", "from"}); s != "" {
		return "unknown field " + quote(name) + " (in cost); did you mean " + quote(s) + "?"
	}
	likely := lowerMethods()
	if name != upper(name) { // in lower case it is rather an operation of the service than a rare method
		likely = strings.Fields("get head post put patch delete options trace connect unary stream message")
	}
	if s := nearest(strings.ToLower(name), likely); s != "" {
		return quote(name) + " is not a method; did you mean " + quote(upper(s)) + "?"
	}
	return quote(name) + " is not a method of HTTP or gRPC: for a path write " + write("path: ^/"+clip(name), cost) +
		", for a method of your own cost: [{method: " + clip(name) + ", cost: " + cost + "}]"
}

// knownMethods returns the registered methods of HTTP, and what the middleware for gRPC
// uses for methods.
func knownMethods() []string {
	return strings.Fields(`GET HEAD POST PUT PATCH DELETE OPTIONS TRACE CONNECT QUERY UNARY STREAM MESSAGE
		ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT COPY LABEL LINK LOCK MERGE MKACTIVITY MKCALENDAR MKCOL
		MKREDIRECTREF MKWORKSPACE MOVE ORDERPATCH PRI PROPFIND PROPPATCH REBIND REPORT SEARCH UNBIND UNCHECKOUT
		UNLINK UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL`)
}

func lowerMethods() []string {
	return strings.Fields(strings.ToLower(strings.Join(knownMethods(), " ")))
}

// costCases decodes a list of costs, of which the first that fits decides.
func (d costing) costCases(n *node, c *costs) {
	if len(n.Items) == 0 {
		d.add(n, "the list of costs is empty; leave it out if each request costs 1")
	}
	all := 0 // the line of a case that every request fits
	for _, item := range d.list(n, "cost", maxCosts) {
		k := costCase{at: item}
		if item.Kind != yamltree.Mapping {
			d.add(item, "an element of cost is a mapping such as {method: POST, cost: 5}, not %s", item.Kind)
			continue
		}
		if all > 0 {
			d.add(item, "this cost is never used: the element on line %d fits every request; put it last", all)
		}
		d.amount(item, &k.amount, matching(d).fields(&k.match))
		matching(d).contradiction(item, &k.match)
		if !d.conditional(item) {
			all = item.Line
		}
		c.cases = append(c.cases, k)
	}
}

// conditional reports whether an element of a list of costs has a condition.
func (d costing) conditional(n *node) bool {
	own := []string{"cost", "from", "default", "min", "max"}
	return slices.ContainsFunc(n.Keys, func(k *node) bool { return !slices.Contains(own, k.Text) })
}

// amount decodes an amount; conditions are the other fields that n may have, and nil if
// n is the whole cost of a rule.
func (d costing) amount(n *node, a *amount, conditions []field) {
	*a = amount{min: 1, max: limiter.MaxUnits, def: 1}
	given := make(map[string]*node)
	fields := append(d.amountFields(a, given), conditions...)
	what := "cost"
	if conditions != nil {
		fields = append(fields, d.caseFields(a, given)...)
		what = "an element of cost"
	}
	d.mapping(n, what, fields, func(name string) string {
		if conditions == nil && slices.Contains(knownMethods(), upper(name)) {
			cost, from, most := "5", "attr:tokens", "1000"
			for field, to := range map[string]*string{name: &cost, "from": &from, "max": &most} {
				if v := n.At(field); v != nil && v.Kind == yamltree.Scalar {
					*to = clip(v.Text)
				}
			}
			return fmt.Sprintf(`a cost has either methods or "from"; for both write a list, as in cost: [{method: %s, cost: `+
				`%s}, {from: %q, max: %s}]`, name, cost, from, most)
		}
		return ""
	})
	if given["from"] == nil {
		for _, name := range []string{"default", "min", "max"} {
			if k := given[name]; k != nil {
				d.add(k, `%q belongs to a cost that an attribute states: add from: "attr:NAME", or remove it`, name)
				return
			}
		}
		if given["cost"] == nil && !d.reported(n, "cost") && !d.reported(n, "from") {
			d.add(n, `this element has no cost: add "cost: 5", or from: "attr:NAME"`)
		}
		return
	}
	switch k := given["cost"]; {
	case k != nil:
		d.add(k, `"cost" and "from" exclude each other; the other one is on line %d`, given["from"].Line)
	case a.max == 0:
		d.add(given["max"], "max is 0, so every request would be free; give at least 1")
	case a.def == 0:
		d.add(given["default"], "default is 0, so a request without the attribute would be free; give at least 1")
	case a.min > a.max:
		d.add(given["min"], "min %d is above max %d", a.min, a.max)
	case a.def > a.max && given["default"] != nil:
		d.add(given["default"], "default %d is above max %d", a.def, a.max)
	}
}

// amountFields decodes the fields of a cost that an attribute states.
func (d costing) amountFields(a *amount, given map[string]*node) []field {
	return []field{
		{"from", func(k, v *node) { given["from"] = k; a.from = d.source(v) }},
		d.number("default", 1, &a.def, given), d.number("min", 0, &a.min, given), d.number("max", 1, &a.max, given),
	}
}

// caseFields decodes the further fields of an element of a list of costs.
func (d costing) caseFields(a *amount, given map[string]*node) []field {
	return []field{d.number("cost", 0, &a.units, given)}
}

// number returns a field for a number of units. One that is not valid is not given.
func (d costing) number(name string, least int64, out *uint64, given map[string]*node) field {
	return field{name, func(k, v *node) {
		if n, ok := d.units(v, name, least); ok {
			given[name], *out = k, n
		}
	}}
}

// source decodes the attribute that states a cost.
func (d costing) source(n *node) string {
	p, bad := readPart(n)
	if bad == "" && p.kind == partAttribute {
		d.mentions.add(n, p.name, `"attr:%s"`)
		return p.name
	}
	if bad != "" && n.Kind == yamltree.Scalar && strings.HasPrefix(n.Text, attributePrefix) {
		d.add(n, "from: %s", bad)
		return ""
	}
	d.add(n, `from: a cost comes from an attribute: write from: "attr:NAME"`)
	return ""
}

// units decodes a number of units, and reports whether it is one. A 0 is one even if least
// is 1: what it would mean is said elsewhere.
func (d costing) units(n *node, what string, least int64) (uint64, bool) {
	if n.Kind != yamltree.Scalar {
		d.add(n, "%s is a whole number of units, not %s", map[bool]string{true: "a cost", false: what}[what == "cost"],
			n.Kind)
		return 0, false
	}
	v, bad := units(n.Text, least)
	if bad != "" && v != 0 || bad != "" && strings.Trim(n.Text, "-0_") != "" {
		d.add(n, "%s: %s", what, bad)
		return 0, false
	}
	return uint64(v), true
}

package rules

import (
	"cmp"
	"strings"

	"github.com/weirlimit/weir/internal/yamltree"
	"github.com/weirlimit/weir/limiter"
)

// maxZonedLimits bounds the limits of a file whose time zone a request chooses. Such a
// limit can have as many variants in use as there are zones, about 600, and a table has
// room for 65,535 limits.
const maxZonedLimits = 64

// zoning is which limits of a rule have their time zone from an attribute of the request.
type zoning struct {
	from   string // the attribute
	at     *node  // the first of these limits
	zone   string // the default
	limits []int
}

type zones struct{ *decoder }

// optionValue reports whether a value has the form that an option takes.
func (d zones) optionValue(o *option, v *node) bool {
	if o.name == "zone" && v.Kind == yamltree.Mapping {
		return d.long(v)
	}
	if o.name == "drip" && v.Kind == yamltree.Mapping {
		return drips(d).long(v)
	}
	return d.scalar(v, o.name)
}

// long decodes the long form of a zone, {from: "attr:tz", default: Europe/Berlin},
// and reports whether it is valid, except for the name of the default.
func (d zones) long(n *node) bool {
	before := len(d.problems.list)
	d.mapping(n, "a zone", d.fields(), func(name string) string {
		if name == "attr" {
			return `write zone: "attr:NAME" without a blank`
		}
		return ""
	})
	if n.At("from") == nil && len(d.problems.list) == before {
		d.add(n, `this zone has no "from": write {from: "attr:NAME", default: %s}, or only the name of a zone`,
			limiter.DefaultZone)
	}
	return len(d.problems.list) == before
}

func (d zones) fields() []field {
	return []field{
		{"from", func(_, v *node) {
			if p, bad := readPart(v); bad != "" && v.Kind == yamltree.Scalar && strings.HasPrefix(v.Text, attributePrefix) {
				d.add(v, "from: %s", bad)
			} else if bad != "" || p.kind != partAttribute {
				d.add(v, `from: the zone of a request comes from an attribute: write from: "attr:NAME"`)
			}
		}},
		{"default", func(_, v *node) {
			if d.scalar(v, "default") && strings.HasPrefix(v.Text, attributePrefix) {
				d.add(v, "default: give the name of a zone, such as Europe/Berlin: it is for requests whose attribute names none")
			}
		}},
	}
}

// setZone sets a zone, or the default of one that comes from an attribute.
func setZone(s *limiter.Spec, n *node) string {
	s.Zone = n.Text
	switch {
	case n.Kind == yamltree.Mapping:
		if v := n.At("default"); v != nil {
			s.Zone = v.Text
		}
	case strings.HasPrefix(n.Text, attributePrefix):
		s.Zone = ""
		if _, bad := readPart(n); bad != "" {
			return "zone: " + bad
		}
	case n.Text == "":
		return "zone is empty: give an IANA name, such as Europe/Berlin or UTC, or remove it"
	}
	return calendarProblem(s, "zone")
}

// zoneAttribute returns the attribute that names the time zone, empty if the file does.
func zoneAttribute(n *node) string {
	if n.Kind == yamltree.Mapping {
		n = n.At("from")
	}
	if n == nil || n.Kind != yamltree.Scalar || !strings.HasPrefix(n.Text, attributePrefix) {
		return ""
	}
	p, _ := readPart(n)
	return p.name
}

// note notes limit i of a rule or a quota if a request chooses its time zone.
func (d zones) note(r *definition, n *node, s *spec, l *limiter.Limit, i int) {
	z := &r.zoning
	if s.zoneFrom == "" {
		return
	}
	if d.zoned++; d.zoned == maxZonedLimits+1 {
		d.add(n, "more than %d limits of this file take their zone from an attribute", maxZonedLimits)
	}
	zone := l.Spec().Zone
	switch {
	case z.at == nil:
		z.at, z.from, z.zone = n, s.zoneFrom, zone
	case z.from != s.zoneFrom:
		d.add(n, "two limits of this %s take their zone from different attributes, %s and, on line %d, %s: make them %s",
			r.kind(), quote(s.zoneFrom), z.at.Line, quote(z.from), r.two())
		return
	case z.zone != zone:
		d.add(n, "two limits of this %s have different default zones, %s and, on line %d, %s: give them one, or make them %s",
			r.kind(), quote(zone), z.at.Line, quote(z.zone), r.two())
		return
	}
	z.limits = append(z.limits, i)
}

// two says how limits that one rule or quota cannot have are written.
func (r *definition) two() string {
	if r.quota {
		return "two quotas"
	}
	return "two rules, the first with \"continue: true\""
}

// in returns the rule in the time zone that the request chooses by attribute zoneFrom. If
// it chooses none, that is the default zone, and in says so.
func (n *counters) in(r *limiter.Request) (*limiter.Rule, *Unzoned) {
	zone := r.Attributes[n.zoneFrom]
	rule, ok := n.limiter.In(zone)
	switch {
	case ok:
		return rule, nil
	case zone == "":
		return rule, n.noZone
	}
	return rule, n.badZone
}

// zoneInKey warns about a rule that counts by the attribute that names its time zone: each
// zone then has counters of its own.
func zoneInKey(r *definition) (out []Warning) {
	for _, parts := range r.keys {
		for _, p := range parts {
			if r.zoning.at != nil && p.kind == partAttribute && p.name == r.zoning.from {
				at := cmp.Or(r.keyNode, r.at)
				return append(out, newWarning(r, at, "",
					"%s counts by attribute %s, which also names its time zone: a caller has the whole limit in each zone. "+
						"Remove the attribute from the key; the zone of a counter may change", r.title(), quote(p.name)))
			}
		}
	}
	return nil
}

// oddZone notes a zone whose name says something else than it is.
func (d zones) oddZone(at *node) {
	if v := at.At("default"); v != nil {
		at = v
	}
	name := at.Text
	if sign, ok := strings.CutPrefix(name, "Etc/GMT"); ok && len(sign) > 1 && sign != "+0" && sign != "-0" {
		other := map[byte]string{'+': "-", '-': "+"}[sign[0]] + sign[1:]
		instead := "Etc/GMT" + other
		d.decoder.doubt(at, instead,
			"zone %s is UTC%s, the opposite of what it seems to say: write %s for UTC%s, or a place that has the time of "+
				"UTC%s if that is meant", quote(name), other, instead, sign, other)
		return
	}
	for _, x := range [][3]string{{"EST", "America/New_York", "America/Panama"},
		{"MST", "America/Denver", "America/Phoenix"}} {
		if name == x[0] {
			d.decoder.doubt(at, x[1],
				"zone %s has no daylight saving time: write %s for a place that has it, or %s for one that has none", quote(name),
				x[1], x[2])
		}
	}
}

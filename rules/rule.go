package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/yamltree"
	"github.com/weirlimit/weir/limiter"
)

// level is what both a rule and the defaults may set.
type level struct {
	settings    []setting // of limits; of several with one name the last wins
	unreachable limiter.Unreachable
	replication limiter.Replication
	leases      leasesField
	share       uint16 // share of the table, in thousandths; 0: all
	ids         idTimes
	shadow      bool
	keys        [][]part
	keyGiven    bool // the file sets a key
	keyNode     *node
	skip        bool // skip a key that lacks a part ("keys", not "key")
	costs       costs
}

// baseLevel returns what applies if the file sets nothing.
func baseLevel() level {
	return level{keys: [][]part{{{kind: partPath}, {kind: partUser}}}, costs: costs{def: 1}}
}

// levelFields decodes the fields that a rule and the defaults have in common.
func (d *decoder) levelFields(l *level) []field {
	l.settings = slices.Clip(l.settings) // so that rules do not overwrite each other's
	fields := limiting{d}.optionFields(&l.settings, nil)
	var given *node
	keys := func(read func(*node) ([][]part, bool)) func(k, v *node) {
		return func(k, v *node) {
			if given != nil {
				d.add(k, `"key" and "keys" exclude each other; the other one is on line %d`, given.Line)
				return
			}
			given = k
			l.keyGiven = true
			if parts, skip := read(v); parts != nil {
				l.keys, l.skip, l.keyNode = parts, skip, v
				d.mentions.addKey(v)
			}
		}
	}
	fields = append(fields, l.ids.fields(d)...)
	return append(fields,
		choice(d, "on_unreachable", &l.unreachable),
		choice(d, "replication", &l.replication),
		l.leases.field(d),
		d.share("max_share", &l.share),
		d.boolean("shadow", &l.shadow),
		field{"key", keys(keying{d}.key)},
		field{"keys", keys(keying{d}.keys)},
		field{"cost", func(_, v *node) { costing{d}.costs(v, &l.costs) }},
	)
}

// limiting is a decoder of limits.
type limiting struct{ *decoder }

// optionFields decodes the options of limits. It appends valid ones to settings, and
// puts the names of others into bad, unless that is nil.
func (d limiting) optionFields(settings *[]setting, bad map[string]bool) []field {
	fields := make([]field, 0, len(d.options)+8)
	for i := range d.options {
		o := &d.options[i]
		fields = append(fields, field{o.name, func(k, v *node) {
			ok := zones(d).optionValue(o, v)
			if ok {
				var scratch limiter.Spec
				if text := o.set(&scratch, v); text != "" {
					d.add(v, "%s", text)
					ok = false
				}
			}
			switch {
			case ok:
				if o.name == "zone" {
					zones(d).oddZone(v)
					d.mentions.add(v, zoneAttribute(v), `"attr:%s"`)
				}
				*settings = append(*settings, setting{o, k, v})
			case bad != nil:
				bad[o.name] = true
			}
		}})
	}
	return fields
}

// definition is a rule as the file defines it, or a quota.
type definition struct {
	level
	quota     bool
	line      int
	at        *node // the pattern, or else the rule: the position for warnings
	name      string
	match     matcher
	oddities  []oddity // values that are probably misspelt
	mentions  mentions
	limits    []*limiter.Limit
	written   []*node // parallel to limits
	zoning    zoning
	choosing  choosing
	draws     []drawing
	spare     []*node // fields that have no effect, since the rule is unlimited or has no limits of its own
	unlimited bool
	denial    *limiter.Denial // nil: it does not deny
	more      bool            // continue
	flawed    bool            // it has problems
}

func (r *definition) title() string {
	switch {
	case r.quota:
		return "quota " + quote(r.name)
	case r.name == "":
		return "the defaults"
	}
	return "rule " + quote(r.name)
}

// ruleNodes are fields of a rule, or of a quota, that are decoded after the others.
type ruleNodes struct{ name, limits, unlimited, deny, more, quotas *node }

func (d *decoder) rule(n *node, outer level) {
	r := definition{level: outer, line: n.Line, at: n}
	before := d.found()
	var at ruleNodes
	if n.Kind == yamltree.Empty {
		d.add(n, "this rule is empty")
		return
	}
	if d.mapping(n, "a rule", d.ruleFields(&r, &at), func(name string) string {
		return ruleHint(n, name)
	}); n.Kind != yamltree.Mapping {
		return
	}
	d.requireName(n, &r, at.name)
	if at.limits != nil {
		limiting{d}.ownLimits(&r, at.limits, len(outer.settings), before)
	}
	quoting{d}.draws(&r, at.quotas)
	r.oddities, d.oddities = d.oddities, nil
	r.mentions, d.mentions = d.mentions, nil
	counting := slices.DeleteFunc(slices.Clone(n.Keys), func(k *node) bool {
		return slices.Contains([]string{"name", "match", "unlimited", "deny", "continue"}, k.Text)
	})
	switch {
	case r.denial != nil:
		d.denying(&r, &at, counting)
	case r.unlimited && at.limits != nil:
		d.add(at.limits, `"unlimited: true" and "limits" exclude each other`)
	case r.unlimited && at.quotas != nil:
		d.add(at.quotas, `"unlimited: true" and "quotas" exclude each other: a rule with quotas needs no limits of its own`)
	case r.unlimited:
		r.spare = counting
	case at.limits != nil:
	case at.quotas != nil:
		r.spare = r.withoutLimits(counting)
	case at.unlimited == nil && len(r.match.groups) > 0 && len(counting) == 0:
		r.unlimited = true // a group without limits is unlimited
	case at.unlimited != nil && !isFalse(at.unlimited), at.unlimited == nil && d.reported(n, "unlimited"),
		at.deny != nil && !isFalse(at.deny), d.reported(n, "deny") && at.deny == nil, d.reported(n, "limits"),
		d.reported(n, "quotas"):
		// The problem was reported already.
	default:
		d.add(n, `this rule has no limits: add "limits", "unlimited: true" to let everything pass, or "deny: true" to let `+
			`nothing pass`)
	}
	alternating{d}.agree(&r, &at)
	if r.unlimited && r.more {
		d.add(at.more, `"continue: true" cannot be combined with "unlimited: true": the next match would limit the request `+
			`again`)
	}
	r.flawed = d.found() > before
	d.rules = append(d.rules, r)
}

// requireName decodes the name of a rule or a quota, which is n.
func (d *decoder) requireName(n *node, r *definition, name *node) {
	if name != nil {
		d.name(name, r)
	} else if !d.reported(n, "name") {
		d.add(n, `this %s has no name; names must be unique and appear in answers`, r.kind())
	}
}

func (r *definition) kind() string {
	if r.quota {
		return "quota"
	}
	return "rule"
}

// ownLimits decodes the limits of a rule or a quota, which inherits so many settings.
// before is the number of problems before it.
func (d limiting) ownLimits(r *definition, limits *node, inherited, before int) {
	d.used = make(map[*node]bool)
	r.limits, r.written = d.limits(limits, r)
	if d.found() == before {
		d.unused(r.settings[inherited:], r)
	}
}

// ruleFields decodes the fields of a rule, except those that it puts into the nodes.
func (d *decoder) ruleFields(r *definition, at *ruleNodes) []field {
	return append(d.levelFields(&r.level),
		field{"name", func(_, v *node) { at.name = v }},
		field{"match", func(_, v *node) {
			matching{d}.match(v, &r.match)
			if at := v.At("path"); at != nil {
				r.at = at
			}
		}},
		field{"limits", func(_, v *node) { at.limits = v }},
		field{"quotas", func(_, v *node) { at.quotas = v }},
		field{"unlimited", func(k, v *node) { at.unlimited = v; d.boolean("unlimited", &r.unlimited).read(k, v) }},
		field{"deny", func(_, v *node) { at.deny = v; r.denial = d.deny(v) }},
		field{"continue", func(k, v *node) { at.more = k; d.boolean("continue", &r.more).read(k, v) }},
	)
}

func isFalse(n *node) bool {
	b, bad := boolean(n)
	return n.Kind == yamltree.Scalar && bad == "" && !b
}

// ruleHint returns what to write for a field that a rule or a quota does not have.
func ruleHint(n *node, name string) string {
	switch name {
	case "path", "method", "methods", "group", "groups", "attributes", "ip", "host", "not_path", "not_method", "not_group",
		"not_ip", "not_host", "user", "users", "not_user":
		return fmt.Sprintf("%q belongs under \"match\"", name)
	case "limit", "window":
		return fmt.Sprintf(`%q belongs in an element of "limits", such as "limits: [%s]"`, name, shortLimit(n))
	}
	return ""
}

// shortLimit returns the short form of a limit with the limit and the window of a mapping,
// as far as it has valid ones.
func shortLimit(n *node) string {
	count, per := "5", "second"
	if v := n.At("limit"); v != nil && v.Kind == yamltree.Scalar {
		if _, _, bad := rate(v.Text); bad == "" {
			return v.Text
		}
		if _, bad := integer(v.Text); bad == "" {
			count = v.Text
		}
	}
	if v := n.At("window"); v != nil && v.Kind == yamltree.Scalar {
		if _, bad := duration(v.Text); bad == "" {
			per = v.Text
		}
	}
	return count + "/" + per
}

// name decodes the name of a rule or a quota.
func (d *decoder) name(n *node, r *definition) {
	name, ok := d.text(n, "the "+r.kind()+"'s name")
	switch first := d.names[name]; {
	case !ok:
	case name == limiter.RequestRule:
		d.add(n, "%q is reserved for limits that come with a request; choose another name", name)
	case first != nil && !r.quota && quotaNamed(d.quotas, name) >= 0:
		d.add(n, "there is a quota named %q on line %d; rules and quotas must have different names", name, first.Line)
	case first != nil:
		d.add(n, "there is another %s named %q on line %d; names must be unique", r.kind(), name, first.Line)
	default:
		d.names[name] = n
		r.name = name
	}
}

// limits decodes the limits of a rule or a quota, and returns where each valid one is
// written. It notes those whose time zone a request chooses.
func (d limiting) limits(n *node, r *definition) (out []*limiter.Limit, written []*node) {
	if n.Kind == yamltree.List && len(n.Items) == 0 {
		instead := `; write "unlimited: true" instead to let everything pass, or "deny: true" to let nothing pass`
		if r.quota {
			instead = ", and a quota needs at least one"
		}
		d.add(n, "the list of limits is empty%s", instead)
	}
	first := make(map[string]*node)
	for _, item := range d.list(n, "limits", limiter.MaxLimits) {
		s := d.limit(item, r)
		if s == nil {
			continue
		}
		name := cmp.Or(s.Name, s.DefaultName())
		if f := first[name]; f != nil {
			d.add(item, "two limits of this %s are named %q, the other one on line %d: give one a name, as in {name: other, "+
				"limit: %d, %s}", r.kind(), name, f.Line, max(s.Limit, 1), windowText(item, s))
			continue
		}
		first[name] = item
		l, err := limiter.NewLimit(s.Spec)
		if err != nil { // the problem was reported
			continue
		}
		if r.quota && l.Algorithm() == limiter.Concurrency {
			d.add(item, "a quota does not limit concurrency: write the limit into a rule")
		}
		zones(d).note(r, item, s, l, len(out))
		numbers(d).note(r, item, s, l, len(out))
		out, written = append(out, l), append(written, item)
	}
	numbers(d).agree(r)
	return out, written
}

// limit decodes one limit. Its spec may be invalid; the problems have then been
// reported. It returns nil if not even a name is known.
func (d limiting) limit(n *node, r *definition) *spec {
	inherited := r.settings
	s := &spec{at: make(map[string]*node), bad: make(map[string]bool)}
	var own []setting
	switch n.Kind {
	case yamltree.Scalar:
		var bad string
		if s.Limit, s.Window, bad = rate(n.Text); bad != "" {
			d.add(n, "%s", bad)
			return nil
		}
	case yamltree.Mapping:
		d.limitMapping(n, s, inherited, &own)
	default:
		d.add(n, "a limit is written as 5/second or as a mapping with limit and window; this is %s", n.Kind)
		return nil
	}
	if s.bad["algorithm"] {
		s.bad["burst"], s.bad["sub_windows"] = true, true // they depend on the limit
	}
	d.apply(s, inherited, own)
	for _, p := range s.Problems() {
		if s.bad[p.Field] {
			continue
		}
		at := cmp.Or(s.at[p.Field], n)
		text := p.Text
		if p.Field == "limit" && s.Limit == 0 && !r.quota {
			text += `; a rule that denies every request has "deny: true" in place of limits`
		}
		d.add(at, "%s", text)
	}
	drips(d).agree(s)
	if s.bad["name"] || s.Name == "" && s.Window <= 0 && s.Calendar == limiter.CalendarNone &&
		s.Algorithm != limiter.Concurrency {
		return nil
	}
	return s
}

// limitMapping decodes a limit in its long form.
func (d limiting) limitMapping(n *node, s *spec, inherited []setting, own *[]setting) {
	fields := d.limitFields(s, own)
	d.mapping(n, "a limit", fields, func(name string) string {
		switch name {
		case "rate", "per", "interval", "period", "unit", "units":
			return fmt.Sprintf(`unknown field %q (in a limit); write "limit" and "window", or the short form %s`, name,
				shortLimit(n))
		}
		if slices.Contains(append(idFieldNames(), "key", "cost", "replication", "leases", "unlimited", "deny", "continue",
			"quotas"), name) {
			return fmt.Sprintf("%q belongs in the rule, beside \"limits\"", name)
		}
		return ""
	})
	numbers(d).settle(s)
	for _, name := range []string{"limit", "window"} {
		if s.at[name] == nil && !s.bad[name] && (name == "limit" || s.at["calendar"] == nil && !windowless(inherited, *own)) {
			s.bad[name] = true
			if !d.reported(n, name) {
				d.add(n, "this limit has no %q", name)
			}
		}
	}
	if s.bad["calendar"] {
		s.bad["window"] = true
	}
}

// windowless reports whether the algorithm of a limit is concurrency, which has no window.
func windowless(inherited, own []setting) bool {
	last := ""
	for _, o := range slices.Concat(inherited, own) {
		if o.option.name == "algorithm" {
			last = o.value.Text
		}
	}
	return last == limiter.Concurrency.String()
}

func (d limiting) limitFields(s *spec, own *[]setting) []field {
	return append(d.optionFields(own, s.bad),
		field{"name", func(_, v *node) {
			name, ok := d.text(v, "the limit's name")
			s.Name, s.bad["name"] = name, !ok
		}},
		field{"limit", func(_, v *node) {
			if v.Kind == yamltree.Mapping {
				numbers(d).read(v, s)
				return
			}
			d.limitField(v, s, "limit", func() (bad string) { s.Limit, bad = integer(v.Text); return bad })
		}},
		field{"window", func(_, v *node) {
			d.limitField(v, s, "window", func() (bad string) { s.Window, bad = duration(v.Text); return bad })
		}},
		field{"calendar", func(_, v *node) { d.calendarField(v, s) }},
	)
}

// limitField decodes the number or the window of a limit.
func (d limiting) limitField(v *node, s *spec, name string, read func() string) {
	s.at[name] = v
	if !d.scalar(v, name) {
		s.bad[name] = true
		return
	}
	if bad := read(); bad != "" {
		s.bad[name] = true
		if name == "limit" && strings.Contains(v.Text, "/") {
			count, per, _ := strings.Cut(v.Text, "/")
			bad = fmt.Sprintf(`%s has a window in it: write "limit: %s" and "window: %s", or the short form %s by itself`,
				quote(v.Text), clip(strings.TrimSpace(count)), clip(strings.TrimSpace(per)), clip(v.Text))
		}
		d.add(v, "%s: %s", name, bad)
	}
}

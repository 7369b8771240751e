package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/internal/recent"
	"github.com/weirlimit/weir/internal/yamltree"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// A quota has limits of its own, as a rule has, and no conditions. Requests are counted by
// it because a rule draws on it: to the decider it is one more rule that matches. So its
// counters are the same whichever rule draws, and are decided together with those of the
// rule.

// drawing is a draw on a quota as the file defines it.
type drawing struct {
	quota int // its index in the file; -1 if there is none
	at    *node
	costs costs
	given bool  // costs are those of the draw, else those of the rule
	upTo  uint8 // percent of the quota's limits that the draw may use; 0: all
	any   uint8 // which alternative it is, from 1; 0: it is none
}

// quoting is a decoder of quotas and of draws on them.
type quoting struct{ *decoder }

// all decodes the quotas of a file.
func (d quoting) all(list *node, outer level) {
	if list.Kind != yamltree.List {
		d.add(list, `"quotas" is a list of quotas, not %s`, list.Kind)
		return
	}
	for _, n := range d.list(list, "quotas", maxQuotas) {
		d.quota(n, outer)
	}
}

func (d quoting) quota(n *node, outer level) {
	outer.costs = costs{}
	q := definition{level: outer, quota: true, line: n.Line, at: n}
	before := d.found()
	var at ruleNodes
	if n.Kind == yamltree.Empty {
		d.add(n, "this quota is empty")
		return
	}
	if d.mapping(n, "a quota", d.fields(&q, &at), func(name string) string {
		return quotaHint(n, name)
	}); n.Kind != yamltree.Mapping {
		return
	}
	d.decoder.requireName(n, &q, at.name)
	if at.limits != nil {
		limiting(d).ownLimits(&q, at.limits, len(outer.settings), before)
	} else if !d.reported(n, "limits") {
		d.add(n, `this quota has no limits: add "limits", as in limits: [1000/hour]`)
	}
	if !q.keyGiven && !d.reported(n, "key") && !d.reported(n, "keys") {
		d.add(n, `this quota has no key: write "key: [user]" for a counter for each user, or "key: [rule]" to count all `+
			`requests together`)
	}
	q.oddities, d.oddities = d.oddities, nil
	q.mentions, d.mentions = d.mentions, nil
	q.flawed = d.found() > before
	d.quotas = append(d.quotas, q)
}

// quotaFields decodes the fields of a quota, except those that it puts into the nodes.
func (d quoting) fields(q *definition, at *ruleNodes) []field {
	fields := slices.DeleteFunc(d.levelFields(&q.level), func(f field) bool {
		return f.name == "cost" || slices.Contains(idFieldNames(), f.name)
	})
	return append(fields,
		field{"name", func(_, v *node) { at.name = v }},
		field{"limits", func(_, v *node) { at.limits = v }},
	)
}

func quotaHint(n *node, name string) string {
	switch name {
	case "cost":
		quota, cost := "units", "5"
		if v := n.At("name"); v != nil && v.Kind == yamltree.Scalar {
			quota = yamlText(clip(v.Text))
		}
		if v := n.At("cost"); v.Kind == yamltree.Scalar {
			if _, bad := units(v.Text, 0); bad == "" {
				cost = v.Text
			}
		}
		return fmt.Sprintf(`"cost" belongs to a draw on the quota: in a rule write quotas: [{name: %s, cost: %s}]`, quota,
			cost)
	case "match", "unlimited", "continue", "id_ttl", "hold", "on_expiry":
		return quote(name) + " belongs in the rules that draw on the quota"
	}
	return ruleHint(n, name)
}

// quotaNamed returns the index of a quota, -1 if there is none.
func quotaNamed(quotas []definition, name string) int {
	return slices.IndexFunc(quotas, func(q definition) bool { return q.name == name })
}

// draws decodes the draws of a rule on quotas; n is nil if it has none.
func (d quoting) draws(r *definition, n *node) {
	if n == nil {
		return
	}
	if n.Kind == yamltree.List && len(n.Items) == 0 {
		d.add(n, "the list of quotas is empty; remove it")
	}
	for _, item := range d.list(n, "quotas", maxDraws) {
		var name *node
		w := drawing{quota: -1, at: item}
		switch item.Kind {
		case yamltree.Scalar:
			name = item
		case yamltree.Mapping:
			if item.At("any") != nil {
				alternating(d).draw(r, item)
				continue
			}
			d.mapping(item, "a draw on a quota", d.drawFields(&w, &name), drawHint)
			if name == nil {
				if !d.reported(item, "name") {
					cost := "5"
					if v := item.At("cost"); v != nil && v.Kind == yamltree.Scalar {
						cost = clip(v.Text)
					}
					d.add(item, "this draw has no name: write the quota's, as in {name: units, cost: %s}", cost)
				}
				continue
			}
			w.at = name
		default:
			d.add(item, "a draw on a quota is the quota's name, or a mapping such as {name: units, cost: 5}; this is %s",
				item.Kind)
			continue
		}
		if d.scalar(name, "the name of a quota") {
			d.draw(r, name.Text, w)
		}
	}
	keys := len(r.keys)
	if len(r.limits) == 0 {
		keys = 0
	}
	most := 0 // of the alternatives, of which a check has one
	for _, w := range r.draws {
		if n := len(d.quotas[w.quota].keys); w.any > 0 {
			most = max(most, n)
		} else {
			keys += n
		}
	}
	keys += most
	if keys > limiter.MaxKeys {
		d.add(n, "this rule and the quotas it draws on count by %d keys together; at most %d are allowed", keys,
			limiter.MaxKeys)
	}
}

// draw adds a draw on the named quota to a rule.
func (d quoting) draw(r *definition, name string, w drawing) {
	w.quota = quotaNamed(d.quotas, name)
	switch {
	case w.quota < 0 && d.names[name] != nil:
		d.add(w.at, "%s is a rule on line %d, not a quota: a rule draws on quotas only", quote(name), d.names[name].Line)
	case w.quota < 0 && len(d.quotas) == 0:
		d.add(w.at, "there is no quota %s: the file defines none; at its top level write quotas: [{name: %s, key: [user], "+
			"limits: [1000/hour]}]", quote(name), yamlText(clip(name)))
	case w.quota < 0:
		known := make([]string, len(d.quotas))
		for i := range d.quotas {
			known[i] = d.quotas[i].name
		}
		d.add(w.at, "%s", unknown("quota", name, known))
	case slices.ContainsFunc(r.draws, func(o drawing) bool { return o.quota == w.quota }):
		d.add(w.at, "this rule draws on quota %s already: write one draw, with the sum as its cost", quote(name))
	case r.shadow && !d.quotas[w.quota].shadow:
		d.add(w.at, "this rule is in shadow and quota %s is not, so the draw could deny requests: write \"shadow: true\" "+
			"in the quota, or remove the draw", quote(name))
	default:
		d.ceilings(&w)
		r.draws = append(r.draws, w)
	}
}

func (d quoting) drawFields(w *drawing, name **node) []field {
	return []field{
		{"name", func(_, v *node) { *name = v }},
		{"cost", func(_, v *node) { w.given = true; costing(d).costs(v, &w.costs) }},
		{"up_to", func(_, v *node) { d.upTo(v, w) }},
		{"any", func(_, v *node) {}}, // see alternating
	}
}

// upTo decodes how much of a quota a draw may use.
func (d quoting) upTo(v *node, w *drawing) {
	if !d.scalar(v, "up_to") {
		return
	}
	digits, percent := strings.CutSuffix(v.Text, "%")
	n, err := strconv.ParseUint(digits, 10, 8)
	switch {
	case !percent || err != nil || n < 1 || n > 100:
		d.add(v, "up_to %s is not a part of the quota: give 1%% to 99%%, such as 80%%", quote(v.Text))
	case n == 100:
		d.add(v, "up_to: a draw without it may use all of the quota: remove it, or give 1%% to 99%%")
	default:
		w.upTo = uint8(n)
	}
}

// ceilings reports a draw up to a part of a quota whose denials concern others.
func (d quoting) ceilings(w *drawing) {
	q := &d.quotas[w.quota]
	for _, l := range q.limits {
		why := ""
		switch {
		case w.upTo == 0:
		case l.CountRejected() != limiter.CountNone:
			why = "counts rejected requests, so those that only this draw denies would use what is left for others"
		case l.Spec().Block > 0:
			why = "has a block, so a request that only this draw denies would block all others"
		}
		if why != "" {
			d.add(w.at, "this draw is up to %d%% of quota %s, and its limit %s %s: remove that from the limit, or draw without "+
				"up_to", w.upTo, quote(q.name), quote(l.Name()), why)
		}
	}
}

func drawHint(name string) string {
	switch name {
	case "quota":
		return `"quota" is written as "name" here, as in {name: units, cost: 5}`
	case "key", "keys", "limit", "limits", "window", "calendar", "shadow":
		return fmt.Sprintf("%q belongs in the quota, at the top level of the file", name)
	}
	return ""
}

// withoutLimits returns the fields of a rule without limits of its own that have no effect
// beside its draws.
func (r *definition) withoutLimits(fields []*node) []*node {
	effective := append(idFieldNames(), "quotas")
	if slices.ContainsFunc(r.draws, func(w drawing) bool { return !w.given }) {
		effective = append(effective, "cost")
	}
	return slices.DeleteFunc(fields, func(k *node) bool { return slices.Contains(effective, k.Text) })
}

// undrawn warns about quotas on which no rule draws.
func undrawn(quotas, rules []definition) (out []Warning) {
	for i := range quotas {
		q := &quotas[i]
		if slices.ContainsFunc(rules, func(r definition) bool {
			return slices.ContainsFunc(r.draws, func(w drawing) bool { return w.quota == i })
		}) {
			continue
		}
		instead := "quotas: [" + yamlText(q.name) + "]"
		out = append(out, newWarning(q, q.at, instead,
			"no rule draws on quota %s, so it counts nothing: write %q in a rule, or remove the quota", quote(q.name), instead))
	}
	return out
}

// lackingQuota warns about a rule that draws on a quota whose key has an attribute that
// the rule does not ask for.
func lackingQuota(r *definition, quotas []definition) (out []Warning) {
	for _, w := range r.draws {
		q := &quotas[w.quota]
		if q.skip {
			continue
		}
		for _, p := range slices.Concat(q.keys...) {
			if p.kind == partAttribute && !r.match.asksFor(p.name) && !r.match.spelt(p.name) &&
				!slices.Contains(partNames(), p.name) {
				instead := "match: {attributes: {" + yamlText(p.name) + ": }}"
				out = append(out, newWarning(r, w.at, instead,
					"rule %s draws on quota %s, which counts by attribute %s, and all requests without it share one counter: write "+
						"%q, and a later rule for requests without it, which have no limit otherwise. Only these match attributes: "+
						"{%s: \"\"}",
					quote(r.name), quote(q.name), quote(p.name), instead, yamlText(p.name)))
			}
		}
	}
	return out
}

// draw is a rule's draw on a quota, in the form that Resolve needs.
type draw struct {
	quota *counters
	costs *costs // nil: those of the rule
	upTo  uint8
	any   uint8
	// parts has the quota's rule up to upTo percent, and its variants; nil if that is 0.
	parts *recent.Made[*limiter.Rule, *limiter.Rule]
	// onward has these rules as those of an alternative whose denials lead to the next; nil if they do not.
	onward *recent.Made[*limiter.Rule, *limiter.Rule]
}

// newDraws returns the draws of a rule on the quotas of a set.
func newDraws(def *definition, quotas []counters) (out []draw) {
	last := uint8(0)
	for _, w := range def.draws {
		last = max(last, w.any)
	}
	for i := range def.draws {
		w := draw{quota: &quotas[def.draws[i].quota], upTo: def.draws[i].upTo, any: def.draws[i].any}
		if w.upTo > 0 {
			w.parts = recent.NewMade(func(r *limiter.Rule) *limiter.Rule { return r.UpTo(w.upTo) })
		}
		if w.any > 0 && w.any < last {
			w.onward = recent.NewMade((*limiter.Rule).Onward)
		}
		if def.draws[i].given {
			w.costs = &def.draws[i].costs
		}
		out = append(out, w)
	}
	return out
}

// draw adds the counters of the quotas on which a rule draws. cost is that of the rule.
// Keys of the charge from number first on belong to the rule, so they are not those of a
// quota; those before may be, if another rule that matches draws on it.
func (u *rule) draw(r *limiter.Request, c *arith.Charge, ip *requestAddress, which whichRules, cost uint64,
	first int) (unzoned *Unzoned, _ error) {
	var mine, last *draw
	if u.alternatives > 0 {
		able, n := u.able(r)
		mine, last = able[min(int(u.alternative), n-1)], able[n-1]
	}
	for i := range u.draws {
		w := &u.draws[i]
		if !which.have(w.quota.limiter) || w.any > 0 && w != mine {
			continue
		}
		units, from := cost, &u.costs
		if w.costs != nil && !r.Cost.Given() {
			units, from = w.costs.of(r, ip), w.costs
		}
		if err := from.unnamed(r, ip, w.quota); err != nil {
			return nil, err
		}
		u, err := w.quota.charge(r, c, units, first)
		if err != nil {
			return nil, err
		}
		unzoned = cmp.Or(unzoned, u)
		w.ceil(c, w != last)
	}
	return unzoned, nil
}

// ceil lets a charge use no more of the quota than the draw may. Of several draws the lowest counts. It also says of an
// alternative that its denials lead on, if another one comes after it.
func (w *draw) ceil(c *arith.Charge, more bool) {
	if w.upTo == 0 && w.onward == nil {
		return
	}
	for i := range c.Len() {
		k := c.Key(i)
		if k.Rule.Name != w.quota.limiter.Name {
			continue
		}
		if have := k.Rule.Ceiling(); w.upTo > 0 && (have == 0 || have > w.upTo) {
			k.Rule = w.parts.Of(k.Rule)
		}
		if more && w.onward != nil {
			k.Rule = w.onward.Of(k.Rule)
		}
	}
}

// merge adds a cost to key i of the rule, if the charge has it among its first keys.
func merge(c *arith.Charge, first int, rule *limiter.Rule, i int, cost uint64) bool {
	for n := range first {
		if k := c.Key(n); k.Rule.Name == rule.Name && int(k.Index) == i { // a variant may have been made anew
			k.Draw(cost)
			return true
		}
	}
	return false
}

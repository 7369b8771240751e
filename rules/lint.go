package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/internal/yamltree"
	"github.com/weirlimit/weir/limiter"
)

// oddity is a value that is valid and probably misspelt.
type oddity struct {
	at      *node
	field   string
	instead string // what is probably meant
	text    string // what to say; empty: the value is no known method
}

// notes warns about oddities, and about fields that have no effect.
func (r *definition) notes() (out []Warning) {
	for _, o := range r.oddities {
		if o.text != "" {
			out = append(out, newWarning(r, o.at, o.instead, "%s: %s", r.title(), o.text))
			continue
		}
		out = append(out, newWarning(r, o.at, o.instead,
			"%s %s in %s is not a method of HTTP or gRPC, and probably fits no request; write %q",
			o.field, quote(o.at.Text), r.title(), o.instead))
	}
	if len(r.spare) > 0 {
		names := make([]string, len(r.spare))
		for i, k := range r.spare {
			names[i] = quote(k.Text)
		}
		why, instead := "is unlimited and counts nothing", "write limits in place of \"unlimited: true\""
		switch {
		case r.denial != nil:
			why, instead = "denies its requests and counts nothing", `write limits in place of "deny"`
		case !r.unlimited:
			why, instead = "has no limits of its own", "add limits; what a quota counts is set there"
		}
		out = append(out, newWarning(r, r.spare[0], "", "rule %s %s, so these fields have no effect: %s. Remove them, or %s",
			quote(r.name), why, strings.Join(names, ", "), instead))
	}
	return out
}

// fixedLengths warns about windows that are called month or year. They have 30 and 365
// days, and begin and end with no month.
func fixedLengths(r *definition) (out []Warning) {
	for i, n := range r.written {
		at, name := n, ""
		if n.Kind == yamltree.Scalar {
			_, name, _ = strings.Cut(n.Text, "/")
		} else if w := n.At("window"); w != nil {
			at, name = w, w.Text
		}
		name = strings.TrimSpace(name)
		if name != "month" && name != "year" {
			continue
		}
		days, _ := unit(name)
		spec := r.limits[i].Spec()
		fixed, calendar := fmt.Sprintf("window: %dd", days/day), "calendar: "+name+" in place of the window"
		if n.Kind == yamltree.Scalar {
			fixed, calendar = fmt.Sprintf("{limit: %d, %s}", spec.Limit, fixed),
				fmt.Sprintf("{limit: %d, calendar: %s}", spec.Limit, name)
		}
		also := ", or " + calendar + " for those of the calendar"
		if spec.Algorithm != limiter.FixedWindow && (spec.Algorithm != limiter.SlidingCounter || n.At("algorithm") != nil) ||
			n.At("align") != nil {
			also = "" // it has no calendar
		}
		out = append(out, newWarning(r, at, fixed,
			"a window of a %s is %d days long and follows no calendar: write %s for %d days%s",
			name, days/day, fixed, days/day, also))
	}
	return out
}

// lacking warns about keys with an attribute that the rule does not ask for. All
// requests without the attribute then share one counter.
func lacking(r *definition) (out []Warning) {
	if len(r.limits) == 0 || r.skip || r.keyNode == nil {
		return nil
	}
	for _, parts := range r.keys {
		for i, p := range parts {
			if p.kind != partAttribute || r.match.asksFor(p.name) || r.match.spelt(p.name) ||
				slices.Contains(partNames(), p.name) {
				continue
			}
			at := r.keyNode
			if at.Kind == yamltree.List && i < len(at.Items) {
				at = at.Items[i]
			}
			instead := "match: {attributes: {" + yamlText(p.name) + ": }}"
			out = append(out, newWarning(r, at, instead,
				"rule %s counts by attribute %s, and all requests without it share one counter: "+
					"write %q, and a later rule for requests without it, which have no limit otherwise. Only these match attributes: "+
					"{%s: \"\"}",
				quote(r.name), quote(p.name), instead, yamlText(p.name)))
		}
	}
	return out
}

// pairsOfCallers warns about a key of address and user: each pair of them has a counter, and a
// caller who varies either is not limited. As a key in a list of keys it is taken as meant.
func pairsOfCallers(r *definition) (out []Warning) {
	if len(r.limits) == 0 || r.skip || r.keyNode == nil {
		return nil
	}
	for _, parts := range r.keys {
		var ip, user, pair []string
		for _, p := range parts {
			text := plainText(p.String())
			pair = append(pair, text)
			if p.kind != partUser {
				ip = append(ip, text)
			}
			if p.kind != partIP {
				user = append(user, text)
			}
		}
		if len(ip) == len(pair) || len(user) == len(pair) {
			continue
		}
		key := func(parts []string) string { return "[" + strings.Join(parts, ", ") + "]" }
		instead := "keys: [" + key(ip) + ", " + key(user) + "]"
		out = append(out, newWarning(r, r.keyNode, instead,
			"%s counts each pair of address and user apart, so neither an address with many users nor a user at many "+
				"addresses has a limit: "+
				"write %q for a limit of each, or \"keys: [%s]\" if pairs are meant",
			r.title(), instead, key(pair)))
	}
	return out
}

// crossed warns about as many keys as limits: each key has each of the limits, and often one limit for each is meant. A
// limit with a name of its own says that all are meant.
func crossed(r *definition) []Warning {
	if len(r.keys) < 2 || len(r.keys) != len(r.limits) || !r.skip || r.keyNode == nil {
		return nil
	}
	var rates, keys []string
	for i, n := range r.written {
		l := r.limits[i]
		if n.Kind == yamltree.Mapping && n.At("name") != nil {
			return nil
		}
		rates = append(rates, strconv.FormatUint(l.Limit(), 10)+"/"+l.Period())
		k := key{parts: r.keys[i]}
		keys = append(keys, k.String())
	}
	return []Warning{newWarning(r, r.keyNode, "continue: true",
		"%s counts by each key with each limit: %s has %s, and so has %s. For %s by %s and %s by %s write two %ss, the "+
			"first with %q, %q and \"continue: true\". "+
			"If all are meant, give a limit a name, as in {name: burst, limit: %d, %s}",
		r.title(), keys[0], strings.Join(rates, " and "), keys[1], rates[0], keys[0], rates[1], keys[1], r.kind(),
		"key: "+keys[0], "limits: ["+rates[0]+"]", r.limits[0].Limit(),
		windowText(r.written[0], &spec{Spec: r.limits[0].Spec()}))}
}

// asksFor reports whether only requests with an attribute fit.
func (m *matcher) asksFor(name string) bool {
	return slices.ContainsFunc(m.attributes, func(a attribute) bool { return a.name == name && !a.accepts("") })
}

// yamlText returns a text as YAML within braces has it.
func yamlText(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == "" &&
		s[0] != '-' {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}

// neverReached warns about rules whose requests all go to an earlier rule.
func neverReached(rules []definition, e *effort) (out []Warning) {
	for i := range rules {
		for j := range rules[:i] {
			if rules[j].more {
				continue
			}
			if !e.spend(rules[j].match.coverWork(&rules[i].match), &rules[i]) {
				return out
			}
			if !rules[j].match.covers(&rules[i].match) {
				continue
			}
			instead, both := "continue: true", fmt.Sprintf(", or write \"continue: true\" in rule %s if both are to count",
				quote(rules[j].name))
			advice := "Move it before that rule" + both
			switch {
			case rules[j].unlimited || rules[j].denial != nil && !rules[j].shadow:
				instead, advice = "", "Move it before that rule"
			case rules[j].shadow:
				advice = fmt.Sprintf("That rule is in shadow, so nothing limits them: write \"continue: true\" in rule %s",
					quote(rules[j].name))
			}
			out = append(out, newWarning(&rules[i], rules[i].at, instead,
				"rule %s never matches: all its requests go to rule %s on line %d. %s. A request that names the rule still "+
					"finds it",
				quote(rules[i].name), quote(rules[j].name), rules[j].line, advice))
			break
		}
	}
	return out
}

// covers reports whether each request that fits o certainly fits m.
func (m *matcher) covers(o *matcher) bool {
	return m.coversPath(o) &&
		subset(m.methods, o.methods) && excluded(m.notMethods, o.methods, o.notMethods) &&
		subset(m.groups, o.groups) && excluded(m.notGroups, o.groups, o.notGroups) &&
		m.coversIPs(o) && (len(m.hosts) == 0 || len(o.hosts) > 0 && hostsWithin(o.hosts, m.hosts)) &&
		(len(m.notHosts) == 0 || slices.Equal(m.notHosts, o.notHosts)) &&
		(!m.user.given() || m.user.covers(&o.user)) &&
		!slices.ContainsFunc(m.attributes, func(a attribute) bool { return !a.coveredBy(o) })
}

// subset reports whether a request with one of the words of o has one of m. No words
// mean any.
func subset(m, o []string) bool {
	return len(m) == 0 || len(o) > 0 && !slices.ContainsFunc(o, func(w string) bool { return !slices.Contains(m, w) })
}

// excluded reports whether none of the words can occur: o lists others, or excludes them,
// too.
func excluded(words, o, notO []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool {
		return !slices.Contains(notO, w) && (len(o) == 0 || slices.Contains(o, w))
	})
}

// coversPath reports whether each path that fits o certainly fits m.
func (m *matcher) coversPath(o *matcher) bool {
	if m.notPath != nil && (o.notPath == nil || o.notPath.text != m.notPath.text) {
		return false
	}
	p, q := m.path, o.path
	switch {
	case p == nil, p.loose == looseAll, q != nil && p.text == q.text:
		return true
	case q == nil, q.loose != notLoose, p.loose != notLoose:
		return false
	}
	for _, b := range q.begins {
		if b.proves == provesWhole && p.matches(b.text) {
			continue
		}
		if !slices.ContainsFunc(p.begins, func(a beginning) bool {
			return a.proves == provesMatch && strings.HasPrefix(b.text, a.text)
		}) {
			return false
		}
	}
	return true
}

// coveredBy reports whether each request that fits o certainly has this attribute.
func (a *attribute) coveredBy(o *matcher) bool {
	i := slices.IndexFunc(o.attributes, func(b attribute) bool { return b.name == a.name })
	return i >= 0 && a.covers(&o.attributes[i])
}

// covers reports whether each value that fits b certainly fits a.
func (a *attribute) covers(b *attribute) bool {
	if b.lists() {
		return !slices.ContainsFunc(b.is.list, func(v string) bool { return b.accepts(v) && !a.accepts(v) })
	}
	if a.is.any && !a.not.given {
		return !b.accepts("")
	}
	return a.is.same(&b.is) && (!a.not.given || a.not.same(&b.not))
}

func (s *values) same(o *values) bool {
	return s.given == o.given && s.any == o.any && slices.Equal(s.list, o.list) && s.pattern.String() == o.pattern.String()
}

// slashes warns about rules for one path that leave out the same path with a slash at
// the end, or without it, if no other rule tells the two apart.
func slashes(rules []definition, e *effort) (out []Warning) {
	for i := range rules {
		r := &rules[i]
		if r.unlimited || r.match.path == nil {
			continue
		}
		for _, b := range r.match.path.begins {
			path := strings.TrimSuffix(b.text, "/")
			other := path + "/"
			if b.text != path {
				other = path
			}
			if b.proves != provesWhole || path == "" {
				continue
			}
			if !e.spend(2*r.match.pathWork(b.text, other), r) { // withSlash repeats it
				return out
			}
			if !r.match.acceptsPath(b.text) {
				continue
			}
			if r.match.acceptsPath(other) {
				if w, ok := r.countedApart(path); ok {
					out = append(out, w)
					break
				}
				continue
			}
			apart, ok := toldApart(rules, b.text, other, r, e)
			if !ok {
				return out
			}
			if apart {
				continue
			}
			instead, write := "", "match both"
			if both := withSlash(r.match.path.text, b.text, other); both != "" {
				instead = "path: '" + strings.ReplaceAll(both, "'", "''") + "'"
				write = "write " + instead + " to match both"
			}
			out = append(out, newWarning(r, r.at, instead,
				"rule %s matches %s and not %s, which many services take for the same: %s (httplimit removes slashes at the end)",
				quote(r.name), quote(b.text), quote(other), write))
			break
		}
	}
	return out
}

// toldApart reports whether a rule matches the second of two paths and not the first. It
// returns false if the effort does not suffice to find out; r is the rule concerned.
func toldApart(rules []definition, path, other string, r *definition, e *effort) (apart, ok bool) {
	for i := range rules {
		m := &rules[i].match
		if !e.spend(m.pathWork(path, other), r) {
			return false, false
		}
		if m.acceptsPath(other) && !m.acceptsPath(path) {
			return true, true
		}
	}
	return false, true
}

// countedApart warns about a rule that counts a path with a slash at the end and without
// it separately, only because the file sets no key.
func (r *definition) countedApart(path string) (Warning, bool) {
	if _, open := openEnded(r); open || r.keyGiven || !r.countsByPath() || len(r.limits) == 0 {
		return Warning{}, false
	}
	const instead = "key: [rule, user]"
	return newWarning(r, r.at, instead,
		"rule %s has no key, so %s and %s have a limit each for each user; write %q to count them together, or \"key: "+
			"[path, user]\" to keep them apart",
		quote(r.name), quote(path), quote(path+"/"), instead), true
}

// withSlash returns a pattern that matches a path, and the same with a slash at the end;
// empty if it finds none that a file may have.
func withSlash(pattern, path, other string) string {
	for _, out := range []string{strings.TrimSuffix(strings.TrimSuffix(pattern, "$"), "/") + "/?$",
		pattern + "|^" + regexp.QuoteMeta(other) + "$"} {
		if len(out) > maxPattern {
			continue
		}
		if p, _, err := newPattern(out); err == nil && p != nil && p.matches(path) && p.matches(other) {
			return out
		}
	}
	return ""
}

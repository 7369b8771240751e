package rules

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/yamltree"
	"github.com/weirlimit/weir/limiter"
)

// doubt notes a value that is valid and probably means something else.
func (d *decoder) doubt(at *node, instead, format string, args ...any) {
	d.oddities = append(d.oddities, oddity{at: at, instead: instead, text: fmt.Sprintf(format, args...)})
}

// conditionName reports whether an attribute has the name of a condition of a match.
func conditionName(name string) bool {
	name = strings.TrimPrefix(name, "not_")
	return slices.Contains([]string{"path", "method", "group", "ip", "user"}, name)
}

// misplaced notes a condition that is probably indented under "attributes" by mistake.
// It returns false if that is certain, and then adds the error.
func (d matching) misplaced(k, v *node) bool {
	// asksForUser says the latter.
	if !conditionName(k.Text) || strings.HasSuffix(k.Text, "user") && v.Kind == yamltree.Empty {
		return true
	}
	instead := k.Text + ":"
	if v.Kind == yamltree.Scalar {
		instead = strings.TrimSpace(instead + " " + plainText(v.Text))
	}
	const format = "%s under attributes is an attribute of that name, not the request's %s: write %q in match, beside " +
		"attributes"
	what := strings.TrimPrefix(k.Text, "not_")
	if v.Kind == yamltree.Scalar && (seemsPattern(v.Text) || strings.HasPrefix(v.Text, "/")) {
		d.add(k, format, quote(k.Text), what, instead)
		return false
	}
	d.decoder.doubt(k, instead, format, quote(k.Text), what, instead)
	return true
}

// plainText returns a value as a file has it, in quotes if YAML would read it otherwise.
func plainText(s string) string {
	if strings.ContainsAny(s, `'"{}[]:,#&*!|>%@\`) {
		return "'" + strings.ReplaceAll(s, "'", "''") + "'"
	}
	return s
}

// templatePart returns the length of a part of a path template, such as {id}, with which a
// text begins; 0 if it begins with none. segment is whether a segment of the path begins
// there, which may also be written as :id or <id>.
func templatePart(s string, segment bool) int {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
	if segment && s[0] == ':' && len(s) > 1 && strings.IndexByte(letters, s[1]) >= 0 {
		return len(s) - len(strings.TrimLeft(s[1:], letters+"0123456789"))
	}
	end := strings.IndexByte(s, '}')
	if segment && s[0] == '<' {
		end = strings.IndexByte(s, '>')
	} else if s[0] != '{' {
		return 0
	}
	if end < 2 {
		return 0
	}
	name := strings.TrimSuffix(s[1:end], "*")
	if _, of, ok := strings.Cut(name, ":"); ok && s[0] == '<' { // <int:id>
		name = of
	}
	if name == "" || !strings.ContainsRune(letters, rune(name[0])) || strings.Trim(name, letters+"0123456789.-") != "" {
		return 0
	}
	return end + 1
}

// withoutTemplate returns a pattern with [^/]+ in place of the parts of a template, and
// the last of these; empty if there is none.
func withoutTemplate(text string) (fixed, found string) {
	var b strings.Builder
	for i := 0; i < len(text); {
		n := templatePart(text[i:], i > 0 && text[i-1] == '/')
		switch {
		case n > 0:
			found = text[i : i+n]
			b.WriteString("[^/]+")
		case text[i] == '\\' && i+2 < len(text) && strings.IndexByte("pPx", text[i+1]) >= 0 && text[i+2] == '{':
			n = 3 // a class such as \p{Greek}
			b.WriteString(text[i : i+n])
		case text[i] == '\\' && i+1 < len(text):
			n = 2
			b.WriteString(text[i : i+n])
		default:
			n = 1
			b.WriteByte(text[i])
		}
		i += n
	}
	return b.String(), found
}

// unlikePattern notes a path that is probably written as a template or with wildcards.
func (d matching) unlikePattern(n *node, what string, p *pattern) {
	if p == nil {
		return
	}
	fixed, found := withoutTemplate(p.text)
	write := func(fixed string) string {
		if fixed[0] == '/' {
			fixed = "^" + fixed
		}
		return patternText(what, fixed)
	}
	if found != "" {
		instead := write(fixed)
		d.decoder.doubt(n, instead,
			"%s %s is a regular expression, in which %s stands for itself: write %s for any one segment", what, quote(p.text),
			quote(found), instead)
		return
	}
	tree, err := syntax.Parse(p.text, syntax.Perl)
	if err != nil || !starredSlash(tree) || !strings.Contains(p.text, "/*") {
		return
	}
	fixed = p.text
	if rest, ok := strings.CutSuffix(strings.TrimSuffix(fixed, "$"), "/*"); ok {
		fixed = rest + "/"
	}
	instead := write(strings.ReplaceAll(fixed, "/*", "/[^/]*"))
	d.decoder.doubt(n, instead,
		`%s %s is a regular expression, in which "/*" stands for any number of slashes: write %s, or "/?" for one slash or `+
			`none`,
		what, quote(p.text), instead)
}

// starredSlash reports whether a tree repeats a slash with a star.
func starredSlash(re *syntax.Regexp) bool {
	if re.Op == syntax.OpStar && re.Sub[0].Op == syntax.OpLiteral && string(re.Sub[0].Rune) == "/" {
		return true
	}
	return slices.ContainsFunc(re.Sub, starredSlash)
}

func (d matching) groups(n *node, what string) []string {
	for _, v := range d.list(n, what, maxChoices) {
		switch {
		case v.Kind != yamltree.Scalar:
		case v.Text == "*":
			d.add(v, `%s: "*" is not a wildcard; remove it to match any group`, what)
		case seemsPattern(v.Text):
			d.add(v, "%s: %s seems to be a pattern, and a group is compared as it stands: write the names as a list, as in "+
				"%s: [free, gold], or match on an attribute, as in attributes: {plan: {pattern: '%s'}}",
				what, quote(v.Text), what, asPattern(v.Text))
		default:
			d.groupText(v, what)
			if n.Kind == yamltree.Scalar && what == "group" && anyone(v.Text) {
				d.decoder.doubt(v, "",
					"%s: %s is compared as it stands: remove it to match any group, or write %s: [%s] for one of that name",
					what, quote(v.Text), what, v.Text)
			}
			d.networkElsewhere(v, what, v.Text)
		}
	}
	return d.choices(n, what, false)
}

// groupText notes a group that is compared as it stands, and probably means a list of groups or
// all others.
func (d matching) groupText(v *node, what string) {
	if rest, ok := negated(v.Text); ok {
		instead := "not_" + what + ": " + plainText(rest)
		if what != "group" {
			instead = "group: " + plainText(rest)
		}
		d.decoder.doubt(v, instead, "%s: %s is compared as it stands: write %q for all others", what, quote(v.Text), instead)
	} else if list := commaList(v.Text); list != "" {
		instead := what + ": " + list
		d.decoder.doubt(v, instead, "%s: %s is compared as it stands: write %q for either of these", what, quote(v.Text),
			instead)
	}
}

// lowerMethod notes a method in lower case that few services have. It is probably meant
// as an operation or a path.
func (d costing) lowerMethod(k *node, cost uint64, rest string) {
	method := upper(k.Text)
	if method == k.Text ||
		slices.Contains(strings.Fields("GET HEAD POST PUT PATCH DELETE OPTIONS TRACE CONNECT UNARY STREAM MESSAGE"), method) {
		return
	}
	name := clip(k.Text)
	instead := fmt.Sprintf("cost: [{path: ^/%s, cost: %d}, {cost: %s}]", name, cost, rest)
	d.decoder.doubt(k, instead, "%s is the cost of the HTTP method %s: write %q for a path, or the method in upper case",
		quote(k.Text), method, instead)
}

// freesTooMuch warns about a pattern that frees requests from a limit and may match in the
// middle of a path: a caller who can add to a path, as in /login/health, is not limited.
func freesTooMuch(r *definition) (out []Warning) {
	check := func(p *pattern, field string) {
		if !p.matchesAnywhere() {
			return
		}
		instead := beginningWith(field, p.text)
		out = append(out, newWarning(r, r.at, instead,
			"rule %s: %s %s matches anywhere in a path, so requests such as %s are not limited by it: write %s for paths that "+
				"begin so",
			quote(r.name), field, quote(p.text), quote("/login"+clip(p.text)), instead))
	}
	if r.unlimited {
		check(r.match.path, "path")
	} else {
		check(r.match.notPath, "not_path")
	}
	return out
}

// most returns the highest cost that a request may certainly have.
func (c *costs) most() uint64 {
	most := c.def
	for _, m := range c.methods {
		most = max(most, m.cost)
	}
	for i := range c.cases {
		if a := &c.cases[i].amount; a.from == "" {
			most = max(most, a.units)
		} else {
			most = max(most, a.min, a.def)
		}
	}
	return most
}

// burstOfAny returns how much a limit admits at once.
func burstOfAny(s limiter.Spec) float64 {
	if isBucket(s.Algorithm) {
		return burstOf(s)
	}
	return float64(s.Limit)
}

// switchedOff warns about a shadow rule that takes requests from a later rule in force. The
// limits of that rule then do not count for them.
func switchedOff(rules []definition, e *effort) (out []Warning) {
	for i := range rules {
		r := &rules[i]
		if !r.shadow || r.more || r.unlimited {
			continue
		}
		for j := i + 1; j < len(rules); j++ {
			o := &rules[j]
			if o.shadow || o.unlimited {
				continue
			}
			if !e.spend(2*r.match.coverWork(&o.match)+r.match.meetWork(&o.match), r) {
				return out
			}
			if r.match.disjoint(&o.match) || r.match.covers(&o.match) { // neverReached says the latter
				continue
			}
			const instead = "continue: true"
			out = append(out, newWarning(r, r.at, instead,
				"rule %s is in shadow and ends the matching: the limits of rule %s on line %d are off for requests that both "+
					"match. Write %q in rule %s",
				quote(r.name), quote(o.name), o.line, instead, quote(r.name)))
			break
		}
	}
	return out
}

// nothingFollows warns about a last rule with "continue: true", such as a ceiling over all requests: those of an
// earlier rule that ends the matching do not count in it.
func nothingFollows(rules []definition, e *effort) []Warning {
	last := len(rules) - 1
	if last < 1 || !rules[last].more || rules[last].denial != nil {
		return nil
	}
	r := &rules[last]
	for j := range rules[:last] {
		o := &rules[j]
		if o.more || o.shadow || o.unlimited || o.denial != nil {
			continue
		}
		switch {
		// neverReached says the latter
		case !e.spend(2*o.match.coverWork(&r.match)+o.match.meetWork(&r.match), r), o.match.covers(&r.match):
			return nil
		case !o.match.disjoint(&r.match):
			return []Warning{newWarning(r, r.at, "",
				"rule %s has \"continue: true\" and no rule follows it: requests of rule %s on line %d end there, and do not "+
					"count in it. "+
					"Move it before that rule if it is to count them, or leave \"continue\" out", quote(r.name), quote(o.name),
				o.line)}
		}
	}
	return nil
}

// meetWork returns an upper bound of the steps that disjoint takes beyond those of covers.
func (m *matcher) meetWork(o *matcher) int {
	steps := len(m.ips)*len(o.ips) + len(m.groups)*len(o.notGroups) + len(m.methods)*len(o.notMethods)
	for i := range m.attributes {
		for j := range o.attributes {
			steps += m.attributes[i].meetWork(&o.attributes[j])
		}
	}
	steps += m.user.meetWork(&o.user)
	if p, q := m.path, o.path; p != nil && q != nil {
		steps += len(p.begins) * len(q.begins)
		for _, b := range p.begins {
			steps += q.work(b.text)
		}
		for _, b := range q.begins {
			steps += p.work(b.text)
		}
	}
	return steps
}

// meetWork returns an upper bound of the steps that valuesApart takes.
func (a *attribute) meetWork(b *attribute) int {
	return 1 + len(a.is.list)*(len(b.is.list)+len(b.not.list)) + len(a.not.list)*len(b.is.list)
}

// disjoint reports whether certainly no request fits both.
func (m *matcher) disjoint(o *matcher) bool {
	return apart(m.methods, o.methods, m.notMethods, o.notMethods) ||
		apart(m.groups, o.groups, m.notGroups, o.notGroups) ||
		m.path.disjoint(o.path) || ipsApart(m, o) || attributesApart(m, o) || valuesApart(&m.user, &o.user) ||
		hostsApart(m.hosts, o.hosts)
}

// apart reports whether no word is accepted by two conditions, of which each has a list
// of words or a list of excluded words.
func apart(a, b, notA, notB []string) bool {
	if len(a) > 0 && len(b) > 0 {
		return !slices.ContainsFunc(a, func(w string) bool { return slices.Contains(b, w) })
	}
	return len(a) > 0 && !slices.ContainsFunc(a, func(w string) bool { return !slices.Contains(notB, w) }) ||
		len(b) > 0 && !slices.ContainsFunc(b, func(w string) bool { return !slices.Contains(notA, w) })
}

func hostsApart(a, b []string) bool {
	wild := func(h string) bool { return h[0] == '*' }
	return len(a) > 0 && len(b) > 0 && !slices.ContainsFunc(a, wild) && !slices.ContainsFunc(b, wild) &&
		apart(a, b, nil, nil)
}

func ipsApart(m, o *matcher) bool {
	if len(m.ips) == 0 || len(o.ips) == 0 {
		return false
	}
	for _, p := range m.ips {
		if slices.ContainsFunc(o.ips, p.Overlaps) {
			return false
		}
	}
	return true
}

// attributesApart reports whether the conditions on one attribute exclude each other.
func attributesApart(m, o *matcher) bool {
	for i := range m.attributes {
		for j := range o.attributes {
			a, b := &m.attributes[i], &o.attributes[j]
			if a.name == b.name && valuesApart(a, b) {
				return true
			}
		}
	}
	return false
}

// valuesApart reports whether certainly no value fits both conditions.
func valuesApart(a, b *attribute) bool {
	never := func(a, b *attribute) bool {
		return a.lists() && !slices.ContainsFunc(a.is.list, func(v string) bool { return a.accepts(v) && b.accepts(v) })
	}
	return never(a, b) || never(b, a)
}

// lists reports whether the condition has a list of all values that fit.
func (a *attribute) lists() bool { return a.is.given && !a.is.any && a.is.pattern == nil }

// disjoint reports whether certainly no path fits both patterns.
func (p *pattern) disjoint(q *pattern) bool {
	if p == nil || q == nil || p.loose != notLoose || q.loose != notLoose {
		return false
	}
	for _, a := range p.begins {
		for _, b := range q.begins {
			switch {
			case a.proves == provesWhole:
				if q.matches(a.text) {
					return false
				}
			case b.proves == provesWhole:
				if p.matches(b.text) {
					return false
				}
			case strings.HasPrefix(a.text, b.text) || strings.HasPrefix(b.text, a.text):
				return false
			}
		}
	}
	return true
}

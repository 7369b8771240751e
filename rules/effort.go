package rules

import (
	"fmt"
	"strings"

	"github.com/weirlimit/weir/internal/yamltree"
)

// maxEffort bounds the work of each kind of warning that compares rules with each other,
// in steps of patterns: all kinds together take 100,000,000 at most. Without patterns
// that suffices for the pairs of 1,200 rules.
const (
	maxEffort = 100_000_000 / 4
	pairWork  = 33 // steps that the comparison of two rules without patterns may take
)

// effort is the work that one kind of warning may still take in a file.
type effort struct {
	left  int
	ended *definition // the rule at which the effort was used up; nil: it was enough
}

// spend takes steps from the effort, and reports whether it suffices. r is the rule that
// is looked at.
func (e *effort) spend(steps int, r *definition) bool {
	if e.ended == nil && steps > e.left {
		e.ended = r
	}
	e.left -= min(steps, e.left)
	return e.ended == nil
}

// incomplete warns about kinds of warnings that could not be looked for in all rules.
func incomplete(kinds ...*effort) (out []Warning) {
	for _, e := range kinds {
		if e.ended == nil || len(out) > 0 && e.ended.line >= out[0].Line {
			continue
		}
		w := newWarning(e.ended, e.ended.at, "",
			"from rule %s on, the rules were not compared with all others, since there are too many or their patterns are too "+
				"large: "+
				"some warnings may be missing. Lower the repetition counts of patterns, or check a part of the file by itself",
			quote(e.ended.name))
		w.Incomplete = true
		out = []Warning{w}
	}
	return out
}

// work returns an upper bound of the steps that matches takes for a text.
func (p *pattern) work(text string) int {
	if p == nil {
		return 0
	}
	steps := len(p.begins) + 1
	if p.re == nil || p.need != "" && !strings.Contains(text, p.need) {
		return steps
	}
	run := p.size * (len(text) + 1)
	if p.loose != notLoose {
		return steps + run
	}
	for _, b := range p.begins {
		if b.proves >= provesLine && strings.HasPrefix(text, b.text) {
			steps += run
		}
	}
	return steps
}

// pathWork returns an upper bound of the steps that acceptsPath takes for two paths.
func (m *matcher) pathWork(a, b string) int {
	return pairWork + m.path.work(a) + m.path.work(b) + m.notPath.work(a) + m.notPath.work(b)
}

// coverWork returns an upper bound of the steps that covers takes.
func (m *matcher) coverWork(o *matcher) int {
	steps := pairWork + len(m.methods)*len(o.methods) + len(m.notMethods)*(len(o.methods)+len(o.notMethods)) +
		len(m.groups)*len(o.groups) + len(m.notGroups)*(len(o.groups)+len(o.notGroups)) +
		len(m.ips)*len(o.ips) + len(m.notIPs)*(len(o.ips)+len(o.notIPs)) + len(m.notHosts) + 2*len(m.hosts)*len(o.hosts)
	if p, q := m.path, o.path; p != nil && q != nil && p.loose == notLoose && q.loose == notLoose && p.text != q.text {
		for _, b := range q.begins {
			if steps += len(p.begins); b.proves == provesWhole {
				steps += p.work(b.text)
			}
		}
	}
	for i := range m.attributes {
		a := &m.attributes[i]
		steps += len(o.attributes)
		for j := range o.attributes {
			if b := &o.attributes[j]; b.name == a.name {
				steps += a.coverWork(b)
			}
		}
	}
	return steps + m.user.coverWork(&o.user)
}

// coverWork returns an upper bound of the steps that covers takes.
func (a *attribute) coverWork(b *attribute) (steps int) {
	for _, v := range b.is.list {
		steps += a.work(v) + b.work(v)
	}
	return steps
}

// work returns an upper bound of the steps that accepts takes for a value.
func (a *attribute) work(v string) int {
	return 1 + len(a.is.list) + len(a.not.list) + a.is.pattern.work(v) + a.not.pattern.work(v)
}

// anyHost warns about rules that limit by the host of a request, where a request that
// names another host finds no limit: any client can name any host.
func anyHost(rules []definition, e *effort) (out []Warning) {
	name := ""
	for i := range rules {
		r := &rules[i]
		if r.unlimited || r.shadow || r.denial != nil || len(r.match.hosts)+len(r.match.notHosts) == 0 {
			continue
		}
		bare := r.match
		bare.hosts, bare.notHosts = nil, nil
		covered := false
		for j := range rules {
			o := &rules[j]
			if !e.spend(o.match.coverWork(&bare), r) {
				return out
			}
			if j != i && !o.unlimited && !o.shadow && (j > i || o.more) && o.match.covers(&bare) {
				covered = true
				break
			}
		}
		if covered {
			continue
		}
		if name == "" {
			name = freeName(rules, "other_hosts")
		}
		instead := "- {name: " + name + ", key: [ip], limits: [" + firstLimit(r) + "]}"
		out = append(out, newWarning(r, r.at, instead,
			"rule %s limits by host, and a client can name any host: no later rule limits the same requests with another one. "+
				"Add one at the end, such as %s",
			quote(r.name), instead))
	}
	return out
}

// firstLimit returns the first limit of a rule that is written in the short form.
func firstLimit(r *definition) string {
	for _, n := range r.written {
		if n.Kind == yamltree.Scalar {
			return clip(n.Text)
		}
	}
	return "60/minute"
}

// freeName returns a name that no rule has.
func freeName(rules []definition, like string) string {
	taken := make(map[string]bool, len(rules))
	for i := range rules {
		taken[rules[i].name] = true
	}
	name := like
	for n := 2; taken[name]; n++ {
		name = fmt.Sprintf("%s_%d", like, n)
	}
	return name
}

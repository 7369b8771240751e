package rules

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/weirlimit/weir/limiter"
)

// variants returns the rule with variants by the numbers that requests choose.
func (c *choosing) variants(r *limiter.Rule) *limiter.Rule {
	if c.stated {
		recent := new([recentNumbers]atomic.Pointer[limiter.Rule])
		return r.Varied(limiter.ChosenByNumber, func(base *limiter.Rule, text string) *limiter.Rule {
			return c.variant(base, text, recent)
		})
	}
	limits := make(map[string][]*limiter.Limit)
	for i, table := range c.tables {
		for name, l := range table {
			if limits[name] == nil {
				limits[name] = slices.Clone(r.Limits)
			}
			limits[name][c.limits[i]] = l
		}
	}
	made := make(map[string]*limiter.Rule, len(limits))
	out := r.Varied(limiter.ChosenByName, func(_ *limiter.Rule, name string) *limiter.Rule { return made[name] })
	for name, list := range limits {
		made[name] = out.Variant(name, list)
	}
	return out
}

// recentNumbers bounds the variants by stated numbers that one rule keeps.
const recentNumbers = 256

// variant returns the variant for a number that a request states, nil if it states none, or one
// under which a limit would not be valid.
func (c *choosing) variant(base *limiter.Rule, text string, recent *[recentNumbers]atomic.Pointer[limiter.Rule],
) *limiter.Rule {
	n := statedNumber(text, c.most)
	if n == 0 {
		return nil
	}
	at := &recent[n%recentNumbers]
	if have := at.Load(); have != nil && have.Choice() == text {
		return have
	}
	text = strconv.FormatInt(n, 10)
	if have := at.Load(); have != nil && have.Choice() == text {
		return have
	}
	limits := slices.Clone(base.Limits)
	for i, spec := range c.specs {
		spec.Limit = n
		l, err := limiter.NewLimit(spec)
		if err != nil {
			return nil
		}
		limits[c.limits[i]] = l
	}
	v := base.Variant(text, limits)
	at.Store(v)
	return v
}

// statedNumber returns the number that a text states in decimal digits, at most most. It returns 0 for
// a text that states none from 1 on, such as an empty one, or one with a sign, a blank or a point.
func statedNumber(text string, most int64) int64 {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil { // there are only digits, so it is too large
		return most
	}
	return min(n, most)
}

// Unzoned is a rule or quota whose default time zone counts a request, since the request
// names no other, or whose number for requests that choose none ("else") does.
type Unzoned struct {
	// Rule is the name of the rule or the quota.
	Rule string
	// Missing reports that the request lacks the attribute with the zone, or what chooses the
	// number. Otherwise it has a value that is not the name of a time zone, not in the table, or not
	// a number.
	Missing bool
	// Number reports that it is about a number, not about a zone.
	Number bool
}

// highest returns the highest limit that a request may choose in place of limit i of the rule, l.
func (c *choosing) highest(i int, l *limiter.Limit) *limiter.Limit {
	n := slices.Index(c.limits, i)
	if n < 0 {
		return l
	}
	if c.stated {
		spec := c.specs[n]
		spec.Limit = c.most
		if most, err := limiter.NewLimit(spec); err == nil && most.Limit() > l.Limit() {
			return most
		}
	}
	for _, other := range c.tables[n] {
		if other.Limit() > l.Limit() {
			l = other
		}
	}
	return l
}

// hashText returns what the numbers mean, in a normal form.
func (c *choosing) hashText() string {
	if c.at == nil {
		return "" // so other files keep the hash of versions without them
	}
	var b strings.Builder
	fmt.Fprintf(&b, " numbers of %d by %q", c.limits, c.by.String())
	if c.stated {
		fmt.Fprintf(&b, " at most %d", c.most)
	}
	for _, table := range c.tables {
		b.WriteString(" table")
		for _, name := range slices.Sorted(maps.Keys(table)) {
			fmt.Fprintf(&b, " %q=%d", name, table[name].Limit())
		}
	}
	return b.String()
}

func (c *choosing) info() (out Numbers) {
	if c == nil {
		return out
	}
	out = Numbers{By: c.by.String(), Most: uint64(c.most)}
	for i, at := range c.limits {
		l := LimitNumbers{Limit: at}
		for name, limit := range c.tables[i] {
			put(&l.Of, name, limit.Limit())
		}
		out.Limits = append(out.Limits, l)
	}
	return out
}

// Numbers says how each request chooses the numbers of limits of a rule. The limits of the rule itself
// are for requests that choose none.
type Numbers struct {
	// By is what chooses: tenant, user, group or an attribute, such as "attr:plan"; empty: nothing
	// does.
	By string
	// Most, if it is not 0, is the largest number that counts of those that requests state in the
	// attribute. Otherwise the limits have tables.
	Most uint64
	// Limits are those whose numbers are chosen, in the order of the rule's.
	Limits []LimitNumbers
}

// LimitNumbers are the numbers of one limit.
type LimitNumbers struct {
	// Limit is the index of the limit in its rule.
	Limit int
	// Of has the number of each name of the table, in units; nil if requests state it.
	Of map[string]uint64
}

// maxShownNumbers bounds the names that [Numbers.String] lists.
const maxShownNumbers = 20

// String describes the numbers, such as "by attr:plan: free 100, pro 1000", with at most 20 names of
// each limit; empty if requests choose none.
func (n Numbers) String() string {
	switch {
	case n.By == "":
		return ""
	case n.Most > 0:
		return fmt.Sprintf("from %s, at most %d", n.By, n.Most)
	}
	var b strings.Builder
	b.WriteString("by " + n.By)
	for _, l := range n.Limits {
		names := slices.Sorted(maps.Keys(l.Of))
		for i, name := range names[:min(len(names), maxShownNumbers)] {
			fmt.Fprintf(&b, "%s %s %d", map[bool]string{true: ":", false: ","}[i == 0], name, l.Of[name])
		}
		if more := len(names) - maxShownNumbers; more > 0 {
			fmt.Fprintf(&b, " and %d more", more)
		}
	}
	return b.String()
}

// chosen returns the variant of the counters' rule that a request chooses. If it chooses none, that is
// the rule of else, and chosen says so.
func (n *counters) chosen(r *limiter.Request) (*limiter.Rule, *Unzoned) {
	choice := n.chosenBy.of(r)
	rule, ok := n.limiter.In(choice)
	switch {
	case ok:
		return rule, nil
	case choice == "":
		return rule, n.noZone
	}
	return rule, n.badZone
}

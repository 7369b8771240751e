package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/transport"
)

var errAnother = errors.New("it is of another version")

// ruleNews is what the node has seen of changes of its rules.
type ruleNews struct {
	mu      sync.Mutex
	hash    uint64
	text    []byte // the file
	since   time.Time
	known   []RuleLine
	changed []string
	warned  []transport.RuleWarning // of the file
}

// look notes that other rules are in force.
func (n *ruleNews) look(c *Console) {
	node := c.config.Node()
	hash, text := node.RulesHash(), node.RulesFile()
	n.mu.Lock()
	defer n.mu.Unlock()
	same := !n.since.IsZero() && hash == n.hash
	if same && bytes.Equal(text, n.text) {
		return
	}
	now := linesOf(node.Rules())
	if !n.since.IsZero() && !same {
		n.changed = changes(n.known, now)
		c.events.add(c.config.Now(), "rules: "+strings.Join(n.changed, ", "))
	}
	if !same { // else the lines have moved
		n.hash, n.since = hash, c.config.Now().UTC()
	}
	set, _ := rules.Parse("rules", text, rules.Options{}) // nil without a file
	n.text, n.known, n.warned = text, now, WarningsOf(set)
}

// WarningsOf returns the warnings of a set of rules, nil: none.
func WarningsOf(set *rules.Set) []transport.RuleWarning {
	out := []transport.RuleWarning{}
	if set != nil {
		for _, w := range set.Warnings() {
			out = append(out, transport.RuleWarning{Line: w.Line, Column: w.Column, Rule: w.Rule, Text: w.Text,
				Instead: w.Instead})
		}
	}
	return out
}

// file returns the rules of the file in force, and its warnings. They must not be changed.
func (n *ruleNews) file() ([]RuleLine, []transport.RuleWarning) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.known, n.warned
}

// UnsettledText is what is wrong with a rule on concurrency at a node where no client may settle.
const UnsettledText = "a rule limits how many requests are under way at a time, and clients may not settle them: " +
	"each takes its slot until its hold ends; start the node with --allow-refunds"

// Slots returns the name of the first rule of a node that limits concurrency, empty if there is none.
func Slots(n *weir.Node) string {
	for _, r := range n.Rules() {
		if slices.ContainsFunc(r.Rule.Limits, func(l *limiter.Limit) bool { return l.Algorithm() == limiter.Concurrency }) {
			return r.Rule.Name
		}
	}
	return ""
}

// RuleLine is a rule in words.
type RuleLine struct {
	Name string `json:"name"`
	// Line is the line of the file where it begins.
	Line int `json:"line"`
	// Keys are what it counts by, each the parts of one key.
	Keys   [][]string `json:"keys"`
	Limits []string   `json:"limits"`
	// Quotas are those on which it draws.
	Quotas    []string `json:"quotas,omitempty"`
	Shadow    bool     `json:"shadow,omitempty"`
	Deny      bool     `json:"deny,omitempty"`
	Unlimited bool     `json:"unlimited,omitempty"`

	whole string // all of it
}

func linesOf(list []rules.RuleInfo) []RuleLine {
	out := make([]RuleLine, len(list))
	for i := range list {
		r := &list[i]
		x := RuleLine{Name: r.Rule.Name, Line: r.Line, Keys: r.Keys, Limits: []string{}, Shadow: r.Rule.Shadow,
			Deny: r.Rule.Deny != nil, Unlimited: r.Unlimited}
		for _, l := range r.Rule.Limits {
			x.Limits = append(x.Limits, l.Name()+": "+l.String())
		}
		if text := r.Numbers.String(); text != "" {
			x.Limits = append(x.Limits, text)
		}
		for _, d := range r.Draws {
			name := d.Quota.Name
			if d.Alternative == 1 {
				name = "first of " + name
			}
			if d.UpTo > 0 {
				name += fmt.Sprintf(" up to %d%%", d.UpTo)
			}
			if d.Alternative > 1 {
				x.Quotas[len(x.Quotas)-1] += ", " + name
				continue
			}
			x.Quotas = append(x.Quotas, name)
		}
		if x.Keys == nil {
			x.Keys = [][]string{}
		}
		x.whole = fmt.Sprintf("%+v %v %v %v %v %v %v %v %+v %v %v %v %+v %v %v %v", r.Conditions, r.Keys, r.SkipMissing,
			r.Cost, r.CostByMethod, r.CostCases, r.IDTTL, r.ZoneFrom, x.Quotas, r.Unlimited, r.Continue, x.Limits, r.Rule.Deny,
			r.Rule.OnUnreachable, r.Rule.Replication, fmt.Sprintf("%+v", r.Numbers.Limits))
		out[i] = x
	}
	return out
}

// maxChanges bounds the changes that are named.
const maxChanges = 20

// changes says how two sets of rules differ.
func changes(before, now []RuleLine) []string {
	out, had := []string{}, map[string]*RuleLine{}
	for i := range before {
		had[before[i].Name] = &before[i]
	}
	for i := range now {
		switch was := had[now[i].Name]; {
		case was == nil:
			out = append(out, now[i].Name+" is new")
		case was.whole != now[i].whole || was.Shadow != now[i].Shadow:
			out = append(out, now[i].Name+" changed")
		}
		delete(had, now[i].Name)
	}
	for i := range before {
		if had[before[i].Name] != nil {
			out = append(out, before[i].Name+" is gone")
		}
	}
	if len(out) == 0 {
		out = append(out, "the order or the quotas changed")
	}
	if len(out) > maxChanges {
		out = append(out[:maxChanges], fmt.Sprintf("and %d more", len(out)-maxChanges))
	}
	return out
}

// InForce is which rules a member has.
type InForce struct {
	Member string    `json:"member"`
	Hash   string    `json:"hash"`
	Since  time.Time `json:"since"`
	// Changed says what the last reload changed; empty: there was none since the start.
	Changed []string `json:"changed,omitempty"`
}

func (c *Console) inForce() InForce {
	n := &c.rules
	n.look(c)
	n.mu.Lock()
	defer n.mu.Unlock()
	return InForce{Member: c.name(), Hash: fmt.Sprintf("%016x", n.hash), Since: n.since, Changed: n.changed}
}

// Rules are those in force.
type Rules struct {
	// File is the rules file of the node that was asked, and Name what it is called.
	File string `json:"file"`
	// Rules are in the order of the file. Warnings are what the file makes the node warn of.
	Rules    []RuleLine              `json:"rules"`
	Warnings []transport.RuleWarning `json:"warnings"`
	// Members have the version of each.
	Members []InForce `json:"members"`
	Missing []Missing `json:"missing"`
	// Same reports that all members that answered have the same rules.
	Same bool `json:"same"`
}

func (c *Console) allRules(ctx context.Context, one bool) (*Rules, error) {
	node := c.config.Node()
	out := &Rules{File: string(node.RulesFile()), Missing: []Missing{}, Same: true, Members: []InForce{c.inForce()}}
	out.Rules, out.Warnings = c.rules.file() // which is read once: pages are made each second
	if name := Slots(node); name != "" && c.config.Unsettled {
		out.Warnings = append(slices.Clip(out.Warnings), transport.RuleWarning{Rule: name, Text: UnsettledText})
	}
	if one {
		return out, nil
	}
	var err error
	out.Missing, err = gather(ctx, c, question{Kind: "rules"}, func(member string, f *InForce) error {
		f.Member = member
		out.Members = append(out.Members, *f)
		out.Same = out.Same && f.Hash == out.Members[0].Hash
		return nil
	})
	slices.SortFunc(out.Members, func(a, b InForce) int { return strings.Compare(a.Member, b.Member) })
	return out, err
}

// serveRules serves /v1/rules.
func (c *Console) serveRules(w http.ResponseWriter, r *http.Request, by transport.AdminCaller) {
	err := only(r, "one")
	if err == nil {
		err = by.MayAll()
	}
	var out *Rules
	if err == nil {
		out, err = c.allRules(r.Context(), r.URL.Query().Get("one") == "true")
	}
	answer(w, &by, out, err)
}

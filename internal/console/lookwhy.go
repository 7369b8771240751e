package console

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/denials"
	"github.com/weirlimit/weir/internal/overrides"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/transport"
)

// whyLook answers: why may someone not?
type whyLook struct {
	Path       string `json:"path"`
	Method     string `json:"method,omitempty"`
	User       string `json:"user,omitempty"`
	IP         string `json:"ip,omitempty"`
	Group      string `json:"group,omitempty"`
	Rule       string `json:"rule,omitempty"`
	Tenant     string `json:"tenant,omitempty"`
	Attributes string `json:"attributes,omitempty"`

	Asked     bool                 `json:"asked"`
	Error     string               `json:"error,omitempty"`
	Says      string               `json:"answer,omitempty"`
	Allowed   bool                 `json:"allowed"`
	Answer    *limiter.Answer      `json:"decision,omitempty"`
	Limits    []whyLimit           `json:"limits,omitempty"`
	Rules     []string             `json:"matched,omitempty"`
	Past      []denials.Taken      `json:"past"`
	Count     uint64               `json:"past_count"`
	Missing   []Missing            `json:"missing"`
	Override  *overrides.Entry     `json:"override,omitempty"`
	Explained *limiter.Explanation `json:"explanation,omitempty"`
}

type whyLimit struct {
	limiter.LimitExplanation
	Answer limiter.LimitAnswer `json:"decision"`
}

// Counted is the state of the counter, without what has a place of its own.
func (l *whyLimit) Counted() []limiter.Field {
	return slices.DeleteFunc(slices.Clone(l.State), func(f limiter.Field) bool {
		return f.Name == "copy" || ofHolds(f.Name)
	})
}

// Copy says which member has a copy.
func (l *whyLimit) Copy() string {
	for _, f := range l.State {
		if f.Name == "copy" {
			return strings.TrimPrefix(f.Value, "at ")
		}
	}
	return ""
}

// ofHolds reports whether a field of a state is about what is reserved or lent.
func ofHolds(field string) bool { return field == "held" || field == "hold" || field == "lent" }

// Held is what is reserved or lent of the limits.
func (w *whyLook) Held() (out []heldRow) {
	for i := range w.Limits {
		for _, f := range w.Limits[i].State {
			if ofHolds(f.Name) {
				out = append(out, heldOf(w.Limits[i].Name, f))
			}
		}
	}
	return out
}

// heldRow is one charge that is reserved or lent, all of a limit together, or who has borrowed them.
type heldRow struct {
	Limit, Units string
	Until        time.Time
	Then         string
}

// heldOf reads a field, such as 3 until 2026-11-29T12:55:35.119395Z, then given back.
func heldOf(limit string, f limiter.Field) heldRow {
	units, rest, _ := strings.Cut(f.Value, " until ")
	at, then, ok := strings.Cut(rest, ", ")
	if until, err := time.Parse("2006-01-02T15:04:05.999999Z", at); f.Name == "hold" && ok && err == nil {
		return heldRow{limit, units, until, then}
	}
	if units, rest, ok = strings.Cut(f.Value, ", "); f.Name == "held" && ok {
		return heldRow{Limit: limit, Units: units, Then: rest + " together"}
	}
	return heldRow{Limit: limit, Then: "lent: " + f.Value}
}

// Used is how much is used, as a part of 100.
func (l *whyLimit) Used() int {
	most := cmp.Or(l.Answer.Capacity, l.Answer.Limit)
	if most == 0 {
		return 0
	}
	return int(100 * (most - min(most, l.Answer.Remaining)) / most)
}

// UsedText says it in numbers.
func (l *whyLimit) UsedText() string {
	most := cmp.Or(l.Answer.Capacity, l.Answer.Limit)
	return group(most-min(most, l.Answer.Remaining)) + " of " + group(most)
}

// Again is how long to wait, empty for not at all.
func (l *whyLimit) Again() string {
	if l.Answer.RetryAfterMs == nil {
		return ""
	}
	return long(time.Duration(*l.Answer.RetryAfterMs) * time.Millisecond)
}

// requestOf returns the request that the page is about. Attributes are lines NAME=VALUE.
func (w *whyLook) requestOf() (limiter.Request, error) {
	q := limiter.Request{Path: w.Path, Method: w.Method, User: w.User, IP: w.IP, Group: w.Group, Rule: w.Rule,
		Tenant: w.Tenant}
	for line := range strings.Lines(w.Attributes) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			return q, invalid("an attribute is written NAME=VALUE, one in each line")
		}
		if q.Attributes == nil {
			q.Attributes = map[string]string{}
		}
		q.Attributes[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return q, nil
}

func readWhy(get func(string) string, tenant string) *whyLook {
	w := &whyLook{Path: get("path"), Method: strings.ToUpper(get("method")), User: get("user"), IP: get("ip"),
		Group: get("group"), Rule: get("rule"), Tenant: get("tenant"), Attributes: get("attributes"), Past: []denials.Taken{},
		Missing: []Missing{}}
	if tenant != "" {
		w.Tenant = tenant
	}
	w.Asked = w.Path != "" || w.Rule != ""
	return w
}

func (c *Console) lookWhy(ctx context.Context, asked url.Values, by *transport.AdminCaller) (*whyLook, error) {
	w := readWhy(asked.Get, by.Tenant())
	if !w.Asked {
		return w, nil
	}
	q, err := w.requestOf()
	if err == nil {
		err = by.Admit(&q, w.Tenant, transport.ActionExplain)
	}
	var e *limiter.Explanation
	if err == nil {
		e, err = c.config.Node().Explain(ctx, q)
	}
	if err != nil {
		w.Error = strings.TrimPrefix(err.Error(), limiter.ErrInvalid.Error()+": ")
		return w, nil
	}
	e.Commands = nil // they may have the login of a store
	w.Explained, w.Answer, w.Allowed, w.Rules = e, &e.Answer, e.Answer.Allowed, e.Rules
	for i := range e.Limits {
		w.Limits = append(w.Limits, whyLimit{LimitExplanation: e.Limits[i], Answer: e.Answer.Limits[i]})
	}
	w.Says = w.sentence()
	who := cmp.Or(w.User, w.IP)
	ip, _ := rules.OverrideAddress(w.IP)
	set := weir.Administered(c.config.Node()).Rules.Load()
	for _, o := range c.Overriding.latest() {
		concerns := o.User != "" && set.SameUser(o.Rule, o.User, w.User) || o.IP != "" && o.IP == ip
		if concerns && o.Tenant == w.Tenant && (o.Rule == e.Answer.Rule || slices.Contains(e.Rules, o.Rule)) &&
			(w.Override == nil || o.User == w.User && o.User != "" || w.Override.User == "") {
			w.Override = &o
		}
	}
	if who == "" || c.config.Denials == nil {
		return w, nil
	}
	d, err := c.denied(ctx, denials.Query{User: who, Tenant: w.Tenant, Most: 20}, false)
	if err != nil {
		return nil, err
	}
	w.Missing = d.Missing
	for i := range d.Keys {
		if k := &d.Keys[i]; slices.Contains(e.Rules, k.Rule) || k.Rule == e.Answer.Rule {
			w.Count += k.Count
			w.Past = append(w.Past, k.Samples...)
		}
	}
	slices.SortFunc(w.Past, func(a, b denials.Taken) int { return b.Time.Compare(a.Time) })
	w.Past = w.Past[:min(len(w.Past), 12)]
	return w, nil
}

// sentence is the answer in words.
func (w *whyLook) sentence() string {
	a, who := w.Answer, cmp.Or(w.User, w.IP, "This request")
	switch {
	case a.Overridden && !a.Allowed && a.Never:
		return who + " may not: an override denies it."
	case a.Deny != nil:
		return who + " may not: rule " + a.Rule + " denies every request."
	case a.Never:
		return who + " may never: the cost is more than the limit " + a.BlockedBy + " ever allows."
	case !a.Allowed:
		for i := range w.Limits {
			l := &w.Limits[i]
			if l.Name == a.BlockedBy {
				return fmt.Sprintf("%s may not: %s used in %s; free again in %s.", who, l.UsedText(), l.Name, l.Again())
			}
		}
		return who + " may not, by rule " + a.Rule + "."
	case a.Source == limiter.SourceNone.String() && len(w.Rules) == 0:
		return who + " may: no rule matches this request."
	case len(w.Limits) == 0:
		return who + " may: rule " + a.Rule + " has no limit for it."
	}
	least := &w.Limits[0]
	for i := range w.Limits {
		if w.Limits[i].Used() > least.Used() {
			least = &w.Limits[i]
		}
	}
	return fmt.Sprintf("%s may: %s used in %s.", who, least.UsedText(), least.Name)
}

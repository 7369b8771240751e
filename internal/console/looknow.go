package console

import (
	"cmp"
	"context"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/denials"
	"github.com/weirlimit/weir/internal/history"
)

// nowLook answers: is anything wrong?
type nowLook struct {
	Span    string    `json:"span"`
	Checks  float64   `json:"checks_per_second"`
	Refused float64   `json:"refused_percent"`
	Policy  float64   `json:"by_policy_per_second"`
	P99Ms   float64   `json:"p99_ms"`
	Rules   []ruleRow `json:"rules"`
	Missing []Missing `json:"missing"`
	History *History  `json:"history"`
}

type ruleRow struct {
	Rule      string    `json:"rule"`
	PerSecond float64   `json:"checks_per_second"`
	Percent   float64   `json:"refused_percent"`
	Worst     string    `json:"worst_key,omitempty"`
	Minute    uint64    `json:"worst_refused_last_minute,omitempty"`
	Since     time.Time `json:"worst_since,omitzero"`
	sample    *denials.Taken
	line      []float64
}

func (r *ruleRow) Why() string { return whyLink(r.Rule, "", r.sample) }

// last is over how much time a rate is taken.
const last = 10 * time.Second

// rate returns the rate of the last seconds of a line, per second.
func rate(line []uint64, step time.Duration) float64 {
	n := max(1, int(last/step))
	sum := uint64(0)
	for _, v := range line[max(0, len(line)-n):] {
		sum += v
	}
	return float64(sum) / (float64(n) * step.Seconds())
}

func perSecond(line []uint64, step time.Duration) []float64 {
	out := make([]float64, len(line))
	for i, v := range line {
		out[i] = float64(v) / step.Seconds()
	}
	return out
}

func (c *Console) lookNow(ctx context.Context, q url.Values) (*nowLook, error) {
	span, ok := history.SpanOf(q.Get("span"))
	if !ok {
		return nil, invalid("span must be 5m, 1h or 1d")
	}
	h, err := shared(ctx, &c.snapshots, "history "+span.Name, func(ctx context.Context) (*History, error) {
		return c.history(ctx, span, false)
	})
	if err != nil {
		return nil, err
	}
	out := &nowLook{Span: span.Name, History: h, Missing: h.Missing, Rules: []ruleRow{}}
	out.Checks = rate(h.Allowed, span.Step) + rate(h.Denied, span.Step)
	if out.Checks > 0 {
		out.Refused = 100 * rate(h.Denied, span.Step) / out.Checks
	}
	out.Policy = rate(h.ByPolicy, span.Step)
	for _, us := range h.P99Us[max(0, len(h.P99Us)-max(1, int(last/span.Step))):] {
		out.P99Ms = math.Max(out.P99Ms, float64(us)/1000)
	}
	d, err := c.recent(ctx)
	if err != nil {
		return nil, err
	}
	for name, x := range h.Rules {
		row := ruleRow{Rule: name, PerSecond: rate(x.Checks, span.Step), line: perSecond(x.Denied, span.Step)}
		if row.PerSecond > 0 {
			row.Percent = 100 * rate(x.Denied, span.Step) / row.PerSecond
		}
		for i := range d.Keys {
			if k := &d.Keys[i]; k.Rule == name && k.LastMinute > row.Minute {
				row.Worst, row.Minute, row.Since = cmp.Or(k.Key, "each request"), k.LastMinute, k.First
				if n := len(k.Samples); n > 0 {
					row.sample = &k.Samples[n-1]
				}
			}
		}
		out.Rules = append(out.Rules, row)
	}
	slices.SortFunc(out.Rules, func(a, b ruleRow) int {
		return cmp.Or(cmp.Compare(b.PerSecond*b.Percent, a.PerSecond*a.Percent), cmp.Compare(b.PerSecond, a.PerSecond),
			strings.Compare(a.Rule, b.Rule))
	})
	return out, nil
}

// recent gathers what was refused in the last hour, or nothing if nothing is recorded.
func (c *Console) recent(ctx context.Context) (*Denied, error) {
	if c.config.Denials == nil {
		return &Denied{}, nil
	}
	return shared(ctx, &c.snapshots, "recent", func(ctx context.Context) (*Denied, error) {
		return c.denied(ctx, denials.Query{Since: c.config.Now().Add(-time.Hour), Most: 200}, false)
	})
}

// Chart draws what was decided.
func (n *nowLook) Chart() any {
	h := n.History
	step := time.Duration(h.StepMs) * time.Millisecond
	policy, allowed := perSecond(h.ByPolicy, step), perSecond(h.Allowed, step)
	for i := range allowed { // what a policy allowed is drawn once
		allowed[i] = math.Max(0, allowed[i]-policy[i])
	}
	c := chart{title: "checks a second: refused, by policy and allowed, over " + n.Span, start: h.Start, step: step,
		marks: h.Events, bands: []band{{"refused", "refused", perSecond(h.Denied, step)},
			{"policy", "by policy", policy}, {"allowed", "allowed", allowed}}}
	return c.draw()
}

func (n *nowLook) Line(name string) any {
	h := n.History
	step := time.Duration(h.StepMs) * time.Millisecond
	all, refused := perSecond(h.Allowed, step), perSecond(h.Denied, step)
	out := make([]float64, len(all))
	for i := range all {
		switch name {
		case "checks":
			out[i] = all[i] + refused[i]
		case "refused":
			if s := all[i] + refused[i]; s > 0 {
				out[i] = refused[i] / s
			}
		case "policy":
			out[i] = float64(h.ByPolicy[i])
		case "wait":
			out[i] = float64(h.P99Us[i])
		}
	}
	return spark(thin(out), name)
}

// Spark draws the refusals of a rule.
func (r *ruleRow) Spark() any { return spark(thin(r.line), "refused") }

// thin returns at most 60 values, each the highest of some.
func thin(line []float64) []float64 {
	const most = 60
	if len(line) <= most {
		return line
	}
	out, per := make([]float64, 0, most), (len(line)+most-1)/most
	for i := 0; i < len(line); i += per {
		out = append(out, slices.Max(line[i:min(i+per, len(line))]))
	}
	return out
}

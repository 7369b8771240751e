package replay

import (
	"fmt"
	"strings"

	"github.com/weirlimit/weir/cmd/weir/internal/term"
	"github.com/weirlimit/weir/limiter"
)

// Plain returns the reports as lines of tab-separated fields, for pipes and files. They
// depend only on the logs and rules, not on the time taken.
func Plain(reports []Report, top int) string {
	var b strings.Builder
	for i := range reports {
		if i > 0 {
			b.WriteByte('\n')
		}
		r := &reports[i]
		if len(reports) > 1 {
			fields(&b, "rules_file", r.RulesFile)
		}
		r.plainTotals(&b)
		r.plainRules(&b)
		for _, k := range r.Top(top) {
			fields(&b, "top_denied", k.Key, "denied", k.Denied, "rule", k.Rule)
		}
		r.plainSeries(&b)
		if i > 0 {
			c := r.Since(reports[0].Result)
			fields(&b, "compared_with", reports[0].RulesFile, "newly_denied", c.NewlyDenied, "newly_allowed", c.NewlyAllowed)
		}
	}
	return b.String()
}

// fields writes a line. Strings, which may come from a log, are cleaned for printing.
func fields(b *strings.Builder, values ...any) {
	for i, v := range values {
		if i > 0 {
			b.WriteByte('\t')
		}
		if s, ok := v.(string); ok {
			v = term.Clean(s)
		}
		fmt.Fprint(b, v)
	}
	b.WriteByte('\n')
}

func (r *Report) plainTotals(b *strings.Builder) {
	fields(b, "requests", r.Requests)
	fields(b, "allowed", r.Allowed)
	fields(b, "denied", r.Denied)
	if r.HasShadow {
		fields(b, "shadow_denied", r.ShadowDenied)
	}
	fields(b, "unmatched", r.Unmatched)
	fields(b, "skipped_lines", r.SkippedLines)
	fields(b, "first", stamp(r.First))
	fields(b, "last", stamp(r.Last))
}

func (r *Report) plainRules(b *strings.Builder) {
	for _, rule := range r.Rules {
		row := []any{rule.kind(), rule.Name, "allowed", rule.Allowed, "denied", rule.Denied}
		if rule.Shadow {
			row = append(row, "shadow_denied", rule.ShadowDenied)
		}
		row = append(row, "keys", rule.Keys)
		fields(b, row...)
		for _, l := range rule.Limits {
			row := []any{"limit", rule.Name + "/" + l.Name, "allowed", l.Allowed, "denied", l.Denied}
			if rule.Shadow {
				row = append(row, "shadow_denied", l.ShadowDenied)
			}
			fields(b, row...)
		}
	}
}

func (r *RuleResult) kind() string {
	if r.Quota {
		return "quota"
	}
	return "rule"
}

func (r *Report) plainSeries(b *strings.Builder) {
	a, d := r.course()
	for _, c := range []course{a, d} {
		fields(b, "over_time", c.name, "from", stamp(r.SeriesStart), "each", r.slotName(), "most", c.most, c.line)
	}
}

type course struct {
	name string
	line string
	most int
}

// course returns the lines of allowed and of denied requests, each on its own scale.
func (r *Report) course() (allowed, denied course) {
	a, d := make([]int, len(r.Series)), make([]int, len(r.Series))
	for i, s := range r.Series {
		a[i], d[i] = s.Allowed, s.Denied
		allowed.most, denied.most = max(allowed.most, s.Allowed), max(denied.most, s.Denied)
	}
	allowed.name, allowed.line = "allowed", term.Sparkline(a)
	denied.name, denied.line = "denied", term.Sparkline(d)
	return allowed, denied
}

func stamp(t limiter.Tick) string { return t.Time().Format("2006-01-02T15:04:05Z") }

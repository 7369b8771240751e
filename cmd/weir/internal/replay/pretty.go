package replay

import (
	"fmt"
	"strings"

	"github.com/weirlimit/weir/cmd/weir/internal/term"
)

// Pretty returns the reports for a terminal, in aligned columns.
func Pretty(reports []Report, top int, s term.Style) string {
	var b strings.Builder
	if len(reports) == 1 {
		reports[0].pretty(&b, top, s)
	} else {
		compare(&b, reports, top, s)
	}
	return b.String()
}

func text(s string) term.Cell { return term.Cell{Text: term.Clean(s)} }

func number(n int) term.Cell { return term.Cell{Text: term.Count(n)} }

// alarm returns a number, in red if it is not 0.
func alarm(n int, s term.Style) term.Cell {
	c := number(n)
	if n > 0 {
		c.Paint = s.Red
	}
	return c
}

func (r *Report) title() string {
	return fmt.Sprintf("%s from %s to %s UTC, replayed in %.2f s\n\n", term.Plural(r.Requests, "request"),
		r.First.Time().Format("2006-01-02 15:04:05"), r.Last.Time().Format("2006-01-02 15:04:05"), r.Spent.Seconds())
}

func (r *Report) pretty(b *strings.Builder, top int, s term.Style) {
	b.WriteString(r.title())
	var totals term.Table
	share := func(n int) term.Cell { return term.Cell{Text: term.Percent(n, r.Requests)} }
	totals.Row(text("allowed"), number(r.Allowed), share(r.Allowed))
	totals.Row(text("denied"), alarm(r.Denied, s), share(r.Denied))
	if r.HasShadow {
		totals.Row(text("denied in shadow"), number(r.ShadowDenied), share(r.ShadowDenied))
	}
	totals.Row(text("unmatched"), number(r.Unmatched), share(r.Unmatched))
	totals.Row(text("lines skipped"), number(r.SkippedLines))
	b.WriteString(totals.String() + "\n")
	r.prettySeries(b, s)
	b.WriteByte('\n')
	r.prettyRules(b, s)
	r.prettyTop(b, top, s)
}

func (r *Report) prettySeries(b *strings.Builder, s term.Style) {
	a, d := r.course()
	fmt.Fprintf(b, "%s\n", s.Bold("over time, a column for each "+r.slotName()))
	fmt.Fprintf(b, "allowed  %s  most %s\n", s.Green(a.line), term.Count(a.most))
	fmt.Fprintf(b, "denied   %s  most %s\n", s.Red(d.line), term.Count(d.most))
}

func (r *Report) prettyRules(b *strings.Builder, s term.Style) {
	var t term.Table
	t.Head(s.Bold, "rule and limits", "allowed", "denied", "keys", "")
	for _, rule := range r.Rules {
		name := text(rule.Name)
		if rule.Quota {
			name = text("quota " + rule.Name)
		}
		t.Row(name, number(rule.Allowed), alarm(rule.Denied, s), number(rule.Keys),
			shadowNote(rule.Shadow, rule.ShadowDenied))
		for _, l := range rule.Limits {
			t.Row(text("  "+l.Name), number(l.Allowed), alarm(l.Denied, s), text(""), shadowNote(rule.Shadow, l.ShadowDenied))
		}
	}
	b.WriteString(t.String())
}

func shadowNote(shadow bool, n int) term.Cell {
	if !shadow {
		return term.Cell{}
	}
	return term.Cell{Text: term.Count(n) + " in shadow"}
}

func (r *Report) prettyTop(b *strings.Builder, top int, s term.Style) {
	keys := r.Top(top)
	if len(keys) == 0 {
		return
	}
	var t term.Table
	t.Head(s.Bold, "most denied keys", "denied", "rule")
	for _, k := range keys {
		t.Row(keyCell(k.Key, s), alarm(k.Denied, s), text(k.Rule))
	}
	b.WriteString("\n" + t.String())
}

// keyCell cuts a key so that a third of the line remains for the columns after it.
func keyCell(key string, s term.Style) term.Cell {
	return term.Cell{Text: term.Cut(term.Clean(key), s.Width*2/3)}
}

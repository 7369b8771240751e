package replay

import (
	"fmt"
	"strings"

	"github.com/weirlimit/weir/cmd/weir/internal/term"
)

// comparison is a table with one column for each result.
type comparison struct {
	reports []Report
	style   term.Style
	table   term.Table
}

// compare writes several results side by side.
func compare(b *strings.Builder, reports []Report, top int, s term.Style) {
	c := &comparison{reports: reports, style: s}
	names := []string{""}
	for _, r := range reports {
		names = append(names, r.RulesFile)
	}
	c.table.Head(s.Bold, names...)
	c.totals()
	c.rules()
	c.distinct()
	c.keys(top)
	b.WriteString(reports[0].title() + c.table.String())
	for i := range reports {
		fmt.Fprintf(b, "\n%s, ", s.Bold(term.Clean(reports[i].RulesFile)))
		reports[i].prettySeries(b, s)
	}
}

func (c *comparison) row(name string, cell func(r *Report) term.Cell) {
	cells := []term.Cell{{Text: term.Cut(term.Clean(name), c.style.Width/2)}}
	for i := range c.reports {
		cells = append(cells, cell(&c.reports[i]))
	}
	c.table.Row(cells...)
}

func (c *comparison) section(name string) {
	c.table.Row()
	c.table.Head(c.style.Bold, name)
}

func (c *comparison) totals() {
	c.row("allowed", func(r *Report) term.Cell { return number(r.Allowed) })
	c.row("denied", func(r *Report) term.Cell { return alarm(r.Denied, c.style) })
	c.row("denied, of all", func(r *Report) term.Cell { return text(term.Percent(r.Denied, r.Requests)) })
	c.row("denied in shadow", func(r *Report) term.Cell { return number(r.ShadowDenied) })
	c.row("unmatched", func(r *Report) term.Cell { return number(r.Unmatched) })
	c.row("lines skipped", func(r *Report) term.Cell { return number(r.SkippedLines) })
	since := func(pick func(Change) int) func(*Report) term.Cell {
		return func(r *Report) term.Cell {
			if r == &c.reports[0] {
				return text("-")
			}
			return number(pick(r.Since(c.reports[0].Result)))
		}
	}
	c.row("newly denied", since(func(ch Change) int { return ch.NewlyDenied }))
	c.row("newly allowed", since(func(ch Change) int { return ch.NewlyAllowed }))
}

// rules adds a row for every rule and limit of any of the files.
func (c *comparison) rules() {
	var names []string
	cells := map[string]map[*Result]term.Cell{}
	add := func(r *Result, name string, denied int, note term.Cell) {
		if cells[name] == nil {
			names, cells[name] = append(names, name), map[*Result]term.Cell{}
		}
		if note.Text == "" {
			note = alarm(denied, c.style)
		}
		cells[name][r] = note
	}
	for i := range c.reports {
		r := c.reports[i].Result
		for _, rule := range r.Rules {
			add(r, rule.Name, rule.Denied, shadowNote(rule.Shadow, rule.ShadowDenied))
			for _, l := range rule.Limits {
				add(r, rule.Name+"/"+l.Name, l.Denied, shadowNote(rule.Shadow, l.ShadowDenied))
			}
		}
	}
	c.section("denied by")
	for _, name := range names {
		c.row(name, func(r *Report) term.Cell {
			if cell, ok := cells[name][r.Result]; ok {
				return cell
			}
			return text("-")
		})
	}
}

// distinct adds a row for every rule of any of the files with its number of keys.
func (c *comparison) distinct() {
	var names []string
	keys := map[string]map[*Result]int{}
	for _, r := range c.reports {
		for _, rule := range r.Rules {
			if keys[rule.Name] == nil {
				names, keys[rule.Name] = append(names, rule.Name), map[*Result]int{}
			}
			keys[rule.Name][r.Result] = rule.Keys
		}
	}
	c.section("distinct keys of")
	for _, name := range names {
		c.row(name, func(r *Report) term.Cell {
			if n, ok := keys[name][r.Result]; ok {
				return number(n)
			}
			return text("-")
		})
	}
}

// keys adds a row for each key that is among the most denied of any file.
func (c *comparison) keys(top int) {
	var names []string
	counts := map[string]map[*Result]int{}
	for _, r := range c.reports {
		for _, k := range r.Top(top) {
			if counts[k.Key] == nil {
				names, counts[k.Key] = append(names, k.Key), map[*Result]int{}
			}
		}
	}
	if len(names) == 0 {
		return
	}
	for _, r := range c.reports {
		// By name only: the files may use other names for the rule.
		for k, n := range r.denied {
			if of := counts[k.key]; of != nil {
				of[r.Result] += n
			}
		}
	}
	c.section("most denied keys")
	for _, name := range names {
		c.row(name, func(r *Report) term.Cell { return alarm(counts[name][r.Result], c.style) })
	}
}

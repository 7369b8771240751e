package console

import (
	"context"
	"strings"

	"github.com/weirlimit/weir/internal/history"
	"github.com/weirlimit/weir/internal/overrides"
	"github.com/weirlimit/weir/transport"
)

type rulesLook struct {
	*Rules
	Lines   []fileLine        `json:"-"`
	Active  []overrides.Entry `json:"overrides"`
	Compare *compared         `json:"compared,omitempty"`
}

// fileLine is a line of the rules file, with what there is to say of it.
type fileLine struct {
	Number    int
	Text      string
	Rule      string
	PerSecond float64
	Percent   float64
	Warnings  []transport.RuleWarning
	Overrides int
}

func (c *Console) lookRules(ctx context.Context) (*rulesLook, error) {
	all, err := shared(ctx, &c.snapshots, "rules", func(ctx context.Context) (*Rules, error) {
		return c.allRules(ctx, false)
	})
	if err != nil {
		return nil, err
	}
	span := history.Spans()[0]
	h, err := shared(ctx, &c.snapshots, "history "+span.Name, func(ctx context.Context) (*History, error) {
		return c.history(ctx, span, false)
	})
	if err != nil {
		return nil, err
	}
	active := c.config.Overrides.Active(c.config.Now())
	out := &rulesLook{Rules: all, Active: active}
	begin := make(map[int][]*RuleLine) // by line
	for i := range all.Rules {
		r := &all.Rules[i]
		begin[r.Line] = append(begin[r.Line], r)
	}
	n := 0
	for text := range strings.Lines(all.File) {
		if n++; n > maxLines {
			break
		}
		line := fileLine{Number: n, Text: strings.TrimRight(text, "\r\n")}
		for _, r := range begin[n] {
			line.Rule = r.Name
			if x := h.Rules[r.Name]; x != nil {
				if line.PerSecond = rate(x.Checks, span.Step); line.PerSecond > 0 {
					line.Percent = 100 * rate(x.Denied, span.Step) / line.PerSecond
				}
			}
			for _, o := range active {
				if o.Rule == r.Name {
					line.Overrides++
				}
			}
		}
		for _, w := range all.Warnings {
			if w.Line == n {
				line.Warnings = append(line.Warnings, w)
			}
		}
		out.Lines = append(out.Lines, line)
	}
	return out, nil
}

// maxLines bounds the lines of a rules file that are shown.
const maxLines = 5000

package console

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter/table"
)

const pagedRules = `
version: 1
rules:
  - {name: log, match: {path: "^/log"}, key: [user], limits: [
    {name: first, limit: 50000, window: 1h, algorithm: sliding_log},
    {name: second, limit: 50000, window: 2h, algorithm: sliding_log}]}
  - {name: each, match: {path: "^/each"}, key: [user], limits: [{limit: 1000, window: 1h}]}
`

func paged(t *testing.T, ask func(q exported) []Answered) (*weir.Node, *gathering, map[string]int) {
	t.Helper()
	n, err := weir.Open(t.Context(), weir.Config{Rules: []byte(pagedRules), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	c := New(Config{Node: func() *weir.Node { return n }, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Ask: func(_ context.Context, text []byte) ([]Answered, error) {
			var q question
			if err := json.Unmarshal(text, &q); err != nil || q.Kind != "counters" {
				t.Errorf("it asks %s", text)
			}
			return ask(*q.Export), nil
		}})
	lines := map[string]int{}
	return n, &gathering{mover: mover{c}, wanted: make([]bool, 2*table.Partitions), pages: map[string]int{},
		write: func(of []json.RawMessage) error {
			for _, l := range of {
				lines[string(l)]++
			}
			return nil
		}}, lines
}

// An export has each counter once, wherever pages end, and one of a rule only those of that rule.
func TestAnExportOfManyPages(t *testing.T) {
	asked := 0
	n, g, lines := paged(t, func(exported) []Answered { asked++; return nil })
	const users = 6000
	for u := range users {
		for _, path := range []string{"/log", "/each"} {
			if _, err := n.Check(t.Context(), weir.Request{Path: path, User: fmt.Sprint(u), Cost: weir.Units(3)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for rule, want := range map[string]int{"": 3 * users, "log": 2 * users, "each": users} {
		clear(lines)
		asked = 0
		end, err := g.export(t.Context(), exported{Last: 2 * table.Partitions, Rule: rule}, g.write)
		if err != nil || end.Counters != want || len(lines) != want || end.Unowned != 0 || len(end.Missing) > 0 {
			t.Fatalf("rule %q: %d lines, want %d; %+v, %v", rule, len(lines), want, end, err)
		}
		if least := 2 * table.Partitions / mostParts; asked <= least {
			t.Errorf("rule %q: no page ends within a partition", rule)
		}
	}
}

// A member whose answers for a partition have no end is told, and the partition is no one's: it says the same again, or
// goes on for ever.
func TestAnswersWithoutAnEnd(t *testing.T) {
	for name, further := range map[string]func(position) position{
		"the same":  func(p position) position { return p },
		"backwards": func(p position) position { return position{Lines: p.Lines - 1} },
		"for ever":  func(p position) position { return position{Key: p.Key + 1} },
	} {
		asked := 0
		answer := func(from position) *page {
			next := further(from)
			return &page{Parts: []partLines{{Part: 7, Lines: []json.RawMessage{json.RawMessage("1")}}}, Next: &next}
		}
		_, g, _ := paged(t, func(q exported) []Answered {
			asked++
			text, err := json.Marshal(answer(q.From))
			if err != nil || q.First != 7 || q.Last != 8 {
				t.Errorf("%+v, %v", q, err)
			}
			return []Answered{{Member: "n2", Text: text}}
		})
		g.pages["n2"] = mostPages - 3
		begun := position{Key: 5, Lines: 5}
		err := g.rest(t.Context(), 7, of{&page{Next: &begun}, "n2"})
		if err != nil || !g.wanted[7] || asked == 0 || asked > 3 {
			t.Errorf("%s: it is asked %d times, wanted %t, %v", name, asked, g.wanted[7], err)
		}
		if !slices.ContainsFunc(g.end.Missing, func(m Missing) bool { return m.Member == "n2" }) {
			t.Errorf("%s: %+v", name, g.end)
		}
		if pages, err := g.ask(t.Context()); err != nil || len(pages) != 1 || pages[0].member != "" {
			t.Errorf("%s: it is believed further: %+v, %v", name, pages, err)
		}
	}
}

// A partition that moves between two pages is exported from its beginning.
func TestAPartitionMovesBetweenPages(t *testing.T) {
	_, g, _ := paged(t, func(exported) []Answered { return []Answered{{Member: "n2", Text: []byte(`{"parts": []}`)}} })
	begun := position{Key: 5}
	if err := g.rest(t.Context(), 7, of{&page{Next: &begun}, "n2"}); err != nil || !g.wanted[7] || len(g.end.Missing) > 0 {
		t.Errorf("wanted %t, %+v, %v", g.wanted[7], g.end, err)
	}
}

// A node where no client may settle says so beside the rules that hold slots.
func TestRulesThatNobodySettles(t *testing.T) {
	const slots = "version: 1\nrules:\n  - {name: slots, key: [user], hold: 30s, limits: [{limit: 10, algorithm: " +
		"concurrency}]}\n"
	for _, row := range []struct {
		rules     string
		unsettled bool
		want      int
	}{{slots, true, 1}, {slots, false, 0}, {pagedRules, true, 0}} {
		n, err := weir.Open(t.Context(), weir.Config{Rules: []byte(row.rules), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		c := New(Config{Node: func() *weir.Node { return n }, Now: time.Now, Log: slog.New(slog.DiscardHandler),
			Unsettled: row.unsettled})
		out, err := c.allRules(t.Context(), true)
		if err != nil || len(out.Warnings) != row.want || row.want > 0 && out.Warnings[0].Rule != "slots" {
			t.Errorf("%+v: %+v, %v", row, out, err)
		}
	}
}

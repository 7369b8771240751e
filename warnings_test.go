package weir_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// A rule that has used its max_share is reported as that, and the table as not full. If
// the table is full, too, that has a warning of its own.
func TestAUsedShareIsTold(t *testing.T) {
	for mode, fate := range map[weir.Overflow]string{weir.OverflowDeny: "denied",
		weir.OverflowAllow: "allowed and not counted"} {
		var log bytes.Buffer
		now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
		n, err := weir.Open(t.Context(), weir.Config{
			Rules: []byte("rules:\n  - {name: search, match: {path: ^/s}, key: [user], limits: [10/day], max_share: 20%}\n  " +
				"- {name: other, key: [user], limits: [10/day]}\n"),
			MaxKeys: 10, Overflow: mode, Logger: slog.New(slog.NewTextHandler(&log, nil)), Now: func() time.Time { return now },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		ask := func(path string, times int) {
			t.Helper()
			for i := range times {
				if _, err := n.Check(context.Background(), weir.Request{Path: path, User: fmt.Sprint("user ", i)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		used := `rule "search" has used its max_share: its new keys are ` + fate
		if ask("/s", 4); !slices.Equal(n.Warnings(), []string{used}) || strings.Count(log.String(), "\n") != 1 ||
			!strings.Contains(log.String(), "rule=search checks=1") || strings.Contains(log.String(), "full") {
			t.Errorf("%v: warnings %q, logged %s", mode, n.Warnings(), &log)
		}
		if s := n.Stats(); s.Overflowed != 2 || s.OverflowedBy[table.BoundShare] != 2 {
			t.Errorf("%v: %+v", mode, s)
		}
		ask("/o", 9)
		if w := n.Warnings(); len(w) != 2 || !strings.Contains(w[0], "is full (10 of 10 keys") ||
			!strings.Contains(w[0], "keys are "+fate) || w[1] != used || strings.Count(log.String(), "\n") != 2 {
			t.Errorf("%v: warnings %q, logged %s", mode, w, &log)
		}
		if s := n.Stats(); s.Overflowed != 3 || s.OverflowedBy != [table.Bounds]int64{table.BoundTable: 1,
			table.BoundShare: 2} {
			t.Errorf("%v: %+v", mode, s)
		}
	}
}

// A full table is logged once a minute, with the rule and the number of checks, and is a
// warning for as long. The answer says so, and that nothing is left.
func TestAFullTableIsTold(t *testing.T) {
	for mode, allowed := range map[weir.Overflow]bool{weir.OverflowDeny: false, weir.OverflowAllow: true} {
		var log bytes.Buffer
		now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
		n, err := weir.Open(t.Context(), weir.Config{
			Rules:   []byte("rules:\n  - {name: day, key: [user], limits: [10/day]}\n"),
			MaxKeys: 1, Overflow: mode, Logger: slog.New(slog.NewTextHandler(&log, nil)), Now: func() time.Time { return now },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		ask := func(user string) *weir.Decision {
			t.Helper()
			var d weir.Decision
			if err := n.CheckInto(context.Background(), &weir.Request{User: user}, &d); err != nil {
				t.Fatal(err)
			}
			return &d
		}
		ask("ada")
		if w := n.Warnings(); w != nil || log.Len() != 0 {
			t.Errorf("%v: before it is full: %q, %s", mode, w, &log)
		}
		for i := range 130 { // two minutes and ten seconds
			d := ask(fmt.Sprint("user ", i))
			if l := d.Limit(0); d.Allowed != allowed || !l.Overflow || !allowed && l.Remaining != 0 {
				t.Fatalf("%v: %+v", mode, l)
			}
			now = now.Add(time.Second)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 3 || !strings.Contains(lines[0], "level=WARN") ||
			!strings.Contains(lines[0], "rule=day checks=1 keys=1 max_keys=1") ||
			!strings.Contains(lines[2], "checks=60") || strings.Contains(lines[0], "are denied") == allowed {
			t.Errorf("%v: logged %d lines: %s", mode, len(lines), &log)
		}
		if w := n.Warnings(); len(w) != 1 || !strings.Contains(w[0], `1 of 1 keys`) || !strings.Contains(w[0], `"day"`) {
			t.Errorf("%v: warnings %q", mode, w)
		}
		now = now.Add(time.Minute)
		if w := n.Warnings(); w != nil {
			t.Errorf("%v: a minute later: %q", mode, w)
		}
	}
}

// A key that has as many reservations as it may have is told as that: no name of a limit helps.
func TestAKeyFullOfReservationsIsTold(t *testing.T) {
	var log bytes.Buffer
	n, err := weir.Open(t.Context(), weir.Config{
		Rules: []byte("rules:\n  - {name: day, key: [user], limits: [1000000/day]}\n"), Overflow: weir.OverflowDeny,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	var d weir.Decision
	for i := range limiter.MaxHoldEntries + 1 {
		if err := n.CheckInto(t.Context(), &weir.Request{User: "ada", ID: fmt.Sprint(i), Hold: time.Hour}, &d); err != nil ||
			d.Allowed != (i < limiter.MaxHoldEntries) {
			t.Fatalf("reservation %d: %+v, %v", i, d, err)
		}
	}
	if w := n.Warnings(); !slices.Equal(w,
		[]string{`a key of rule "day" has as many reservations as one key may have: further ones are denied`}) {
		t.Errorf("warnings %q", w)
	}
	if s := log.String(); !strings.Contains(s, "settle reservations when their requests end") ||
		!strings.Contains(s, "rule=day checks=1") || strings.Contains(s, "the same name") {
		t.Errorf("logged %s", s)
	}
}

package demo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// actor is a simulated user who sends requests repeatedly.
type actor struct {
	name    string
	request limiter.Request
	every   time.Duration
}

// cast returns the actors: one who keeps to the limits, one who exceeds them, one who
// tries passwords, and one without limits.
func cast() []actor {
	return []actor{
		{"ada", limiter.Request{Path: "/towns", Method: "GET", User: "ada"}, time.Second},
		{"bob", limiter.Request{Path: "/towns", Method: "GET", User: "bob"}, time.Second / 12},
		{"eve", limiter.Request{Path: "/login", Method: "POST", IP: "192.0.2.66"}, time.Second},
		{"root", limiter.Request{Path: "/towns", Method: "GET", User: "root", Group: "admin"}, time.Second / 5},
	}
}

// tally counts the results of requests.
type tally struct {
	asked, allowed, failed int
	denied                 map[string]int // by the name of the limit that denied
}

func (t *tally) add(d *limiter.Decision, err error) {
	t.asked++
	switch {
	case err != nil:
		t.failed++
	case d.Allowed:
		t.allowed++
	default:
		if t.denied == nil {
			t.denied = map[string]int{}
		}
		if by := d.BlockedBy(); by != nil {
			t.denied[by.FullName()]++
		}
	}
}

// scene is the state of a running demo.
type scene struct {
	nodes  []Node
	actors []actor

	mu    sync.Mutex
	total []tally // by actor
	last  []tally // since the last line
}

func newScene(nodes []Node) *scene {
	s := &scene{nodes: nodes, actors: cast()}
	s.total, s.last = make([]tally, len(s.actors)), make([]tally, len(s.actors))
	return s
}

// play sends the requests of actor i to the nodes in turn until the context ends.
func (s *scene) play(ctx context.Context, i int) {
	a := &s.actors[i]
	tick := time.NewTicker(a.every)
	defer tick.Stop()
	var d limiter.Decision
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := s.nodes[n%len(s.nodes)].CheckInto(ctx, &a.request, &d)
		if ctx.Err() != nil {
			return // the request may have failed for that reason
		}
		s.mu.Lock()
		s.total[i].add(&d, err)
		s.last[i].add(&d, err)
		s.mu.Unlock()
	}
}

// line describes what happened since the last line, in 80 columns.
func (s *scene) line(elapsed time.Duration) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%5s ", elapsed.Round(time.Second))
	denied, failed := map[string]int{}, 0
	for i := range s.actors {
		t := &s.last[i]
		fmt.Fprintf(&b, "  %s %d/%d", s.actors[i].name, t.allowed, t.asked)
		for limit, n := range t.denied {
			denied[limit] += n
		}
		failed += t.failed
		*t = tally{}
	}
	if most, n := busiest(denied); n > 0 {
		fmt.Fprintf(&b, "  denied %d, most by %s", n, most)
	}
	if failed > 0 {
		fmt.Fprintf(&b, "  failed %d", failed)
	}
	return b.String()
}

// busiest returns the limit that denied most, and the number of all denials.
func busiest(denied map[string]int) (most string, all int) {
	for _, limit := range slices.Sorted(maps.Keys(denied)) {
		all += denied[limit]
		if denied[limit] > denied[most] {
			most = limit
		}
	}
	return most, all
}

// counts lists counts by name.
func counts(by map[string]int) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(by)) {
		list = append(list, fmt.Sprintf("%s %d", name, by[name]))
	}
	return strings.Join(list, ", ")
}

// summary describes what happened in total.
func (s *scene) summary(elapsed time.Duration) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "\nIn %v:\n\n  %-6s %7s %7s %7s   %s\n", elapsed.Round(100*time.Millisecond), "user", "asked",
		"allowed", "denied", "by")
	for i, a := range s.actors {
		t := &s.total[i]
		row := fmt.Sprintf("  %-6s %7d %7d %7d   %s", a.name, t.asked, t.allowed, t.asked-t.allowed-t.failed,
			counts(t.denied))
		b.WriteString(strings.TrimRight(row, " ") + "\n")
	}
	return b.String()
}

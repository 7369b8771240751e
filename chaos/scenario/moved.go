//go:build linux

package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/chaos/fleet"
)

// moved is a rule of limits that recover, whose counters are handed over between nodes
// whose clocks differ. The clients of every run do not ask about it: it is judged here, by
// what its algorithm promises.
type moved struct {
	name, algorithm string
	limit           int
	window          time.Duration
}

func movedRules() []moved {
	return []moved{
		{"moved-window", "sliding_window", 5, time.Second},
		{"moved-window-long", "sliding_window", 10, 5 * time.Second},
		{"moved-log", "sliding_log", 5, time.Second},
		{"moved-gcra", "gcra", 5, time.Second},
		{"moved-gcra-long", "gcra", 10, 5 * time.Second},
	}
}

// most returns the most checks that a rule admits within a span that is shorter than its
// window.
func (r *moved) most(span time.Duration) int {
	if r.algorithm == "gcra" { // a burst, and what becomes free meanwhile
		return r.limit + int(time.Duration(r.limit)*span/r.window)
	}
	return r.limit
}

// yamlOfMoved writes the rules as lines of a rules file.
func yamlOfMoved() string {
	var b strings.Builder
	for _, r := range movedRules() {
		fmt.Fprintf(&b, "  - {name: %s, match: {path: \"^/%s$\"}, key: [user], limits: [{limit: %d, window: %dms, "+
			"algorithm: %s}]}\n", r.name, r.name, r.limit, r.window.Milliseconds(), r.algorithm)
	}
	return b.String()
}

// movedKeys is how many keys of each rule are asked about, movedPause the time between two
// checks of one key.
const (
	movedKeys  = 6
	movedPause = 40 * time.Millisecond
)

// movedKey is one key, and what was admitted of it.
type movedKey struct {
	rule   moved
	user   string
	given  []span
	denied int
}

// span is when a check was asked and when it was answered.
type span struct{ call, back time.Duration }

// judge returns an error if more was admitted within a span than the rule promises. An
// admission counts if it was asked for and answered within it, so it was decided there.
func (k *movedKey) judge() error {
	for i := range k.given {
		from := k.given[i].call
		for _, g := range k.given[i:] { // in the order of their calls
			if g.call-from >= k.rule.window {
				break
			}
			n := 0
			for _, h := range k.given[i:] {
				if h.call >= from && h.back <= g.back {
					n++
				}
			}
			if within := g.back - from; within < k.rule.window && n > k.rule.most(within) {
				return fmt.Errorf("%s of %s: %d admitted within %v from %v on, at most %d", k.rule.name, k.user, n, within, from,
					k.rule.most(within))
			}
		}
	}
	return nil
}

// ask asks one node after the other about the key until ctx ends. What cannot be asked, or
// is answered by a policy, does not count.
func (k *movedKey) ask(ctx context.Context, began time.Time, nodes []*fleet.Node) {
	for i := 0; fleet.Wait(ctx, movedPause) == nil; i++ {
		call := time.Since(began)
		status, text, err := nodes[i%len(nodes)].Post(ctx, "/v1/check", check{"/" + k.rule.name, k.user})
		back := time.Since(began)
		var a struct {
			Allowed bool
			Source  string
		}
		if err != nil || status != http.StatusOK && status != http.StatusTooManyRequests || json.Unmarshal(text, &a) != nil {
			continue
		}
		switch {
		case a.Source != "owner" && a.Source != "heir":
		case a.Allowed:
			k.given = append(k.given, span{call, back})
		default:
			k.denied++
		}
	}
}

// clocksApart is a rolling restart with clocks that differ by 300 ms to 5 s, while limits
// that recover within seconds are used up: none of them gives more than it promises where
// its counter is handed over.
func (s *stage) clocksApart() fault {
	f := s.clocks()
	var keys []*movedKey
	for _, r := range movedRules() {
		for i := range movedKeys {
			keys = append(keys, &movedKey{rule: r, user: fmt.Sprintf("%s-%d-%d", r.name, i, s.rng.Uint32())})
		}
	}
	rolls := f.breaks
	f.breaks = func(ctx context.Context) error {
		asked, stop := context.WithCancel(ctx)
		defer stop()
		var asking sync.WaitGroup
		began := time.Now()
		for i, k := range keys {
			asking.Go(func() { k.ask(asked, began, append(s.Nodes()[i%s.size:s.size:s.size], s.Nodes()[:i%s.size]...)) })
		}
		err := errors.Join(rolls(ctx), fleet.Wait(ctx, 2*time.Second))
		stop()
		asking.Wait()
		return err
	}
	f.shown = func(context.Context) error {
		for _, k := range keys {
			if k.denied == 0 || len(k.given) < 2*k.rule.limit {
				return fmt.Errorf("%s of %s: %d admitted and %d denied by owners tell nothing", k.rule.name, k.user, len(k.given),
					k.denied)
			}
			if err := k.judge(); err != nil {
				s.broken = append(s.broken, err)
			}
		}
		return nil
	}
	return f
}

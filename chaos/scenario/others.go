//go:build linux

package scenario

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/history"
	"github.com/weirlimit/weir/chaos/netlab"
)

// others returns what needs a fleet of its own, and mixes.
func others() []Scenario {
	wrong := []time.Duration{5 * time.Second, -5 * time.Second, 0, 2 * time.Second}
	return []Scenario{
		{Name: "clocks", About: "clocks 5 s ahead and 5 s behind, and a rolling restart", Clock: wrong,
			make: (*stage).clocks},
		{Name: "clocks-apart",
			About: "clocks that differ by 300 ms, 4.7 s and 5 s, and a rolling restart while limits that recover within " +
				"seconds are used up", Clock: []time.Duration{0, 300 * time.Millisecond, 5 * time.Second},
			make: (*stage).clocksApart},
		{Name: "clocks-kill", About: "clocks 5 s ahead and 5 s behind, and kill -9 of one node", Clock: wrong,
			make: (*stage).clocksKill},
		{Name: "redis-cut", About: "counters in Redis, which no node reaches for 1 to 3 s", Needs: fleet.Redis,
			make: (*stage).redisCut},
		{Name: "redis-kill", About: "counters in Redis, which is killed and starts empty", Needs: fleet.Redis,
			make: (*stage).redisKill},
		{Name: "several", About: "no fault, and every check has two keys", make: (*stage).several},
		{Name: "full", About: "a flood of fresh keys at nodes that hold few, while keys are used up that never recover",
			Args: []string{"--max-keys", strconv.Itoa(fullKeys)}, make: (*stage).full},
		{Name: "mix", About: "two to five of the faults at any time, also at once", Needs: fleet.Cuts, make: (*stage).mix},
	}
}

// everyone is all nodes that run.
func (s *stage) everyone() []int {
	var all []int
	for i := range s.size {
		all = append(all, i)
	}
	return all
}

// several has clients ask about two keys at a time only, of which one often denies
// what the other one allows, and so rarely that hardly any reservation is open when
// another check comes: what stays charged then shows. Of the pairs that never recover it
// shows on any machine: they are asked about when all reservations must be over.
func (s *stage) several() fault {
	s.rules = append(slices.DeleteFunc(s.rules, func(r history.Rule) bool { return !r.Several }), paired())
	f := s.nothing()
	f.pause = 180 * time.Millisecond
	f.hold = 4 * time.Second
	f.breaks = func(ctx context.Context) error {
		s.load.Pairs(ctx, s.but(nil))
		return nil
	}
	return f
}

// clocks is a rolling restart with wrong clocks, which are seen to be.
func (s *stage) clocks() fault {
	f := s.rolling()
	f.first = func(ctx context.Context) error { s.Doubt(s.off(ctx)); return nil }
	return f
}

func (s *stage) clocksKill() fault {
	f := s.kill()
	f.first = func(ctx context.Context) error { s.Doubt(s.off(ctx)); return nil }
	return f
}

func (s *stage) redisCut() fault {
	return fault{
		what: "Redis cut off", allows: crash(), nodes: s.everyone(), hold: s.between(time.Second, 3*time.Second),
		wants: []string{history.SourcePolicy},
		breaks: func(ctx context.Context) error {
			l := netlab.Link{Cut: true}
			if err := s.SetRedis(ctx, l); err != nil {
				return err
			}
			links := make(map[[2]int]netlab.Link)
			for i := range s.size {
				links[[2]int{i, s.RedisPlace()}] = l
			}
			w, err := s.watch(ctx, links, true)
			s.watches = append(s.watches, w)
			return err
		},
		shown: func(ctx context.Context) error { s.seen(ctx); return nil },
		mends: func(ctx context.Context) error { return s.SetRedis(ctx, netlab.Link{}) },
	}
}

func (s *stage) redisKill() fault {
	return fault{
		what: "Redis killed", allows: loss(), nodes: s.everyone(), hold: s.between(500*time.Millisecond, 2*time.Second),
		wants:  []string{history.SourcePolicy},
		breaks: func(context.Context) error { return s.KillRedis() },
		mends:  func(ctx context.Context) error { return s.StartRedis(ctx) },
	}
}

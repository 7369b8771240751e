//go:build linux

package scenario

import (
	"context"
	"time"

	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/netlab"
)

// others returns what needs a fleet of its own, and mixes.
func others() []Scenario {
	wrong := []time.Duration{5 * time.Second, -5 * time.Second, 0, 2 * time.Second}
	return []Scenario{
		{Name: "clocks", About: "clocks 5 s ahead and 5 s behind, and a rolling restart", Clock: wrong, make: (*stage).rolling},
		{Name: "clocks-kill", About: "clocks 5 s ahead and 5 s behind, and kill -9 of one node", Clock: wrong, make: (*stage).kill},
		{Name: "redis-cut", About: "counters in Redis, which no node reaches for 1 to 3 s", Needs: fleet.Redis, make: (*stage).redisCut},
		{Name: "redis-kill", About: "counters in Redis, which is killed and starts empty", Needs: fleet.Redis, make: (*stage).redisKill},
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

func (s *stage) redisCut() fault {
	return fault{
		what: "Redis cut off", allows: crash(), nodes: s.everyone(), hold: s.between(time.Second, 3*time.Second),
		breaks: func(ctx context.Context) error { return s.SetRedis(ctx, netlab.Link{Cut: true}) },
		mends:  func(ctx context.Context) error { return s.SetRedis(ctx, netlab.Link{}) },
	}
}

func (s *stage) redisKill() fault {
	return fault{
		what: "Redis killed", allows: loss(), nodes: s.everyone(), hold: s.between(500*time.Millisecond, 2*time.Second),
		breaks: func(context.Context) error { return s.KillRedis() },
		mends:  func(ctx context.Context) error { return s.StartRedis(ctx) },
	}
}

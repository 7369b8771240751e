//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/history"
	"github.com/weirlimit/weir/chaos/netlab"
)

// sequences returns faults that come one after the other, or hit what another one
// has set up: most protections are for the second.
func sequences() []Scenario {
	return []Scenario{
		{Name: "rolling-hot",
			About: "all nodes in turn, SIGTERM and start, while copies lag by 20 ms and keys are used up faster than that",
			Needs: fleet.Shapes, make: (*stage).rollingHot},
		{Name: "stutter-hot",
			About: "SIGSTOP of one node for 150 to 280 ms, ten times, while copies lag by 20 ms and keys are used up faster " +
				"than that", Needs: fleet.Shapes, make: (*stage).stutterHot},
		{Name: "leave-kill", About: "one node leaves and comes back; when all has settled, kill -9 of one",
			make: (*stage).leaveKill},
		{Name: "pause-kill", About: "one node paused until the others do without it; as it goes on, kill -9 of another",
			make: (*stage).pauseKill},
		{Name: "pause-asked",
			About: "one node paused until the others do without it; as it goes on, it is asked what they were asked meanwhile",
			make:  (*stage).pauseAsked},
		{Name: "kill-split", About: "kill -9 of one node as another is cut off; the first comes back before the second",
			Needs: fleet.Cuts, make: (*stage).killSplit},
		{Name: "flap", About: "one node cut off twice, for 3 s each, and both sides asked for the same keys each time",
			Needs: fleet.Cuts, make: (*stage).flap},
		{Name: "split-asked",
			About: "one node cut off until both sides have given each other up, and asked for keys that are new to both",
			Needs: fleet.Cuts, make: (*stage).splitAsked},
		{Name: "cached-denials", About: "no fault, and nodes that give denials again", Args: []string{"--cached-denials"},
			make: (*stage).cachedDenials},
	}
}

func (s *stage) rollingHot() fault {
	f := s.lagging(s.rolling())
	f.cold = true
	return f
}

func (s *stage) cachedDenials() fault {
	f := s.nothing()
	f.wants = []string{history.SourceCached}
	return f
}

func (s *stage) stutterHot() fault {
	n := s.any()
	var spans []time.Duration
	for range 10 {
		spans = append(spans, s.between(150*time.Millisecond, 280*time.Millisecond))
	}
	return s.lagging(fault{
		what: "stop " + n.Name + " ten times for 150 to 280 ms", allows: crash(), nodes: []int{n.Index},
		breaks: func(ctx context.Context) error {
			for _, span := range spans {
				part := history.Fault{Name: "stutter-hot", What: "stop " + n.Name + " for " + span.Round(time.Millisecond).String(),
					At: s.now(), Nodes: []int{n.Index}, Takeovers: 1}
				err := errors.Join(n.Pause(ctx), fleet.Wait(ctx, span), n.Resume(ctx))
				part.Until = s.now()
				s.parts = append(s.parts, part)
				if err := errors.Join(err, fleet.Wait(ctx, 400*time.Millisecond)); err != nil {
					return err
				}
			}
			return nil
		},
		mends: nothing,
	})
}

// leaveKill: owners and heirs have changed in good order, which must leave nobody
// behind who takes itself for an heir.
func (s *stage) leaveKill() fault {
	a, b := s.two()
	left, killed := s.Nodes()[a], s.Nodes()[b]
	if s.rng.IntN(2) == 0 {
		killed = left
	}
	return fault{
		what: fmt.Sprintf("kill -9 %s, after %s has left and come back", killed.Name, left.Name), allows: crash(), takes: 1,
		holds: history.HoldsNothing, nodes: []int{killed.Index}, cold: true,
		first: func(ctx context.Context) error {
			return errors.Join(left.Leave(ctx), left.Start(ctx), s.Settled(ctx, settleWithin))
		},
		hold:   2 * time.Second,
		breaks: func(ctx context.Context) error { return killed.Kill(ctx) },
		mends:  func(ctx context.Context) error { return killed.Start(ctx) },
	}
}

// late is a crash of which a node hears late: what it owns of the available keys it
// may answer up to its share of, before.
func late() history.Allows { return history.Allows{Closed: 1, Local: 1, Open: 1, Raised: true} }

// pauseKill: whoever was away holds old copies, and took itself for their heir.
func (s *stage) pauseKill() fault {
	a, b := s.two()
	away, killed := s.Nodes()[a], s.Nodes()[b]
	return fault{
		what: fmt.Sprintf("kill -9 %s as %s goes on, which was paused", killed.Name, away.Name), allows: late(),
		nodes: []int{a, b}, cold: true, away: away, takes: 2,
		first: func(ctx context.Context) error {
			return errors.Join(away.Pause(ctx), s.SettledWithout(ctx, settleWithin, away))
		},
		hold:   2 * time.Second,
		breaks: func(ctx context.Context) error { return errors.Join(away.Resume(ctx), killed.Kill(ctx)) },
		mends:  func(ctx context.Context) error { return killed.Start(ctx) },
	}
}

// pauseAsked: whoever was away takes itself for an owner still.
func (s *stage) pauseAsked() fault {
	n := s.any()
	return fault{
		what: "pause " + n.Name + ", and ask it as it goes on", allows: late(), takes: 1, nodes: []int{n.Index}, cold: true,
		breaks: func(ctx context.Context) error {
			if err := errors.Join(n.Pause(ctx), s.SettledWithout(ctx, settleWithin, n)); err != nil {
				return errors.Join(err, n.Resume(ctx))
			}
			s.cold.Ask(ctx, 3, s.but(n)...)
			return nil
		},
		mends: func(ctx context.Context) error {
			err := n.Resume(ctx)
			s.cold.Ask(ctx, 1, n)
			return err
		},
	}
}

// killSplit: who comes back knows nothing, and who knows is out of reach.
func (s *stage) killSplit() fault {
	a, b := s.two()
	killed := s.Nodes()[a]
	return fault{
		what:   fmt.Sprintf("kill -9 %s as %s is cut off", killed.Name, s.Nodes()[b].Name),
		allows: history.Allows{Closed: 1, Local: 3, Open: 3}, nodes: []int{a, b}, cold: true, takes: 2,
		breaks: func(ctx context.Context) error {
			if err := errors.Join(s.cut(ctx, b), killed.Kill(ctx), fleet.Wait(ctx, 500*time.Millisecond), killed.Start(ctx),
				fleet.Wait(ctx, 6*time.Second)); err != nil {
				return err
			}
			for i := range s.size {
				if i != a && i != b {
					s.cold.Ask(ctx, 1, s.Nodes()[i])
				}
			}
			return nil
		},
		mends: s.heal,
	}
}

// flap: what a node's policy has admitted counts the next time, too.
func (s *stage) flap() fault {
	n := s.any()
	return fault{
		what: n.Name + " cut off twice", allows: split(), nodes: []int{n.Index}, cold: true, takes: 2,
		breaks: func(ctx context.Context) error {
			for range 2 {
				err := errors.Join(s.cut(ctx, n.Index), fleet.Wait(ctx, 3*time.Second))
				s.cold.Ask(ctx, 1, n)
				s.cold.Ask(ctx, 1, s.but(n)...)
				if err := errors.Join(err, s.heal(ctx), s.Settled(ctx, settleWithin)); err != nil {
					return err
				}
			}
			return nil
		},
		mends: nothing,
	}
}

// splitAsked: each side is asked for keys that nobody has asked about, once it has given
// the other one up: a minority has its share of them. And what both sides know of a key
// that is left alone counts once when they meet again.
func (s *stage) splitAsked() fault {
	n := s.any()
	f := s.apart(n.Index, 0)
	f.what, f.cold = n.Name+" cut off until both sides have given each other up, and asked", true
	f.mends = func(ctx context.Context) error {
		err := errors.Join(s.SettledWithout(ctx, settleWithin, n), s.alone(ctx, n))
		s.cold.Fresh(ctx, "local", s.but(n), []*fleet.Node{n})
		return errors.Join(err, s.heal(ctx))
	}
	return f
}

// alone waits until a node sees no other.
func (s *stage) alone(ctx context.Context, n *fleet.Node) error {
	return s.within(ctx, func() error {
		m, err := n.Metrics(ctx)
		if active := m[`weir_members{state="active"}`]; err == nil && active != 1 {
			err = fmt.Errorf("%s is cut off from all others, and sees %.0f active members", n.Name, active)
		}
		return err
	})
}

// cut cuts the links of one node.
func (s *stage) cut(ctx context.Context, n int) error {
	return s.breakLinks(ctx, false, func(from, to int) (netlab.Link, bool) {
		return netlab.Link{Cut: true}, from == n || to == n
	})
}

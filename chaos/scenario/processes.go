//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/history"
	"github.com/weirlimit/weir/chaos/netlab"
)

// settleWithin is how long a fleet may take to settle before that is an error.
const settleWithin = 40 * time.Second

// processes returns what is done to processes.
func processes() []Scenario {
	return []Scenario{
		{Name: "nothing", About: "no fault", make: (*stage).nothing},
		{Name: "kill", About: "kill -9 of one node, started again 0.5 to 3 s later", make: (*stage).kill},
		{Name: "kill-hot",
			About: "kill -9 of one node while keys are used up faster than copies come, which are 20 ms late where links can be",
			make:  (*stage).killHot},
		{Name: "pause-hot",
			About: "SIGSTOP of one node while keys are used up faster than copies come, which are 20 ms late where links can be",
			make:  (*stage).pauseHot},
		{Name: "quick-restart", About: "kill -9 of one node, started again at once", make: (*stage).quickRestart},
		{Name: "pause", About: "SIGSTOP of one node for 1 to 10 s, then SIGCONT", make: (*stage).pause},
		{Name: "starved", About: "one node gets a fifth of its processor time, in slices", make: (*stage).starved},
		{Name: "leave", About: "SIGTERM of one node, started again", make: (*stage).leave},
		{Name: "join", About: "a fourth node joins, and leaves again", make: (*stage).join},
		{Name: "rolling-restart", About: "all nodes in turn, SIGTERM and start", make: (*stage).rolling},
		{Name: "whole-restart", About: "kill -9 of all nodes at once, and start", make: (*stage).whole},
		{Name: "reload", About: "rules reloaded five times, a bad file among them: one limit grows and shrinks, the others " +
			"stay", make: (*stage).reload},
		{Name: "reload-kill", About: "the same while a node is killed", make: (*stage).reloadKill},
	}
}

func (s *stage) nothing() fault {
	return fault{what: "nothing is broken", allows: exactly(), holds: history.HoldsNothing, hold: 2 * time.Second,
		breaks: nothing, mends: nothing}
}

func (s *stage) kill() fault { return s.killOf(s.any()) }

func (s *stage) killOf(n *fleet.Node) fault {
	return fault{
		what: "kill -9 " + n.Name, allows: found(), takes: 1, holds: history.HoldsNothing, nodes: []int{n.Index},
		again: []int{n.Index}, hold: s.between(500*time.Millisecond, 3*time.Second),
		breaks: n.Kill,
		mends:  n.Start,
	}
}

// lagging has keys used up before their copies come, and copies come late where
// links can be.
func (s *stage) lagging(f fault) fault {
	f.hot, f.allows.ByPolicy, f.allows.Within = true, 0, 0
	if s.Lacks(fleet.Shapes) != "" {
		return f
	}
	f.allows.Raised = true
	f.what += ", copies 20 ms late"
	f.first = func(ctx context.Context) error {
		return s.breakLinks(ctx, false, func(int, int) (netlab.Link, bool) {
			return netlab.Link{Delay: 20 * time.Millisecond}, true
		})
	}
	mends := f.mends
	f.mends = func(ctx context.Context) error { return errors.Join(s.heal(ctx), mends(ctx)) }
	return f
}

// killHot ends a node when it has just admitted what its copies cannot know yet: where
// links can be cut, what it sent is lost on the way, as when its machine is lost.
func (s *stage) killHot() fault {
	n := s.any()
	f := s.killOf(n)
	f.cold = true
	f.breaks = func(ctx context.Context) error {
		return s.cold.Rush(ctx, n, func() error {
			if s.Lacks(fleet.Shapes) != "" {
				return n.Kill(ctx)
			}
			return errors.Join(s.cut(ctx, n.Index), n.Kill(ctx))
		})
	}
	return s.lagging(f)
}

func (s *stage) pauseHot() fault { return s.lagging(s.pause()) }

func (s *stage) quickRestart() fault {
	n := s.any()
	return fault{
		what: "restart " + n.Name, allows: found(), takes: 1, holds: history.HoldsNothing, nodes: []int{n.Index},
		again:  []int{n.Index},
		breaks: func(ctx context.Context) error { return errors.Join(n.Kill(ctx), n.Start(ctx)) },
		mends:  nothing,
	}
}

func (s *stage) pause() fault {
	n := s.any()
	hold := s.between(time.Second, 10*time.Second)
	return fault{
		what: fmt.Sprintf("pause %s for %v", n.Name, hold.Round(time.Millisecond)), allows: paused(), takes: 1,
		holds: history.HoldsBack, nodes: []int{n.Index}, hold: hold,
		breaks: n.Pause,
		mends:  n.Resume,
	}
}

func (s *stage) starved() fault {
	n := s.any()
	return fault{
		what: "starve " + n.Name, allows: crash(), shaky: true, nodes: []int{n.Index},
		breaks: n.Starve,
		mends:  nothing,
	}
}

func (s *stage) leave() fault {
	n := s.any()
	return fault{
		what: "SIGTERM " + n.Name, allows: exactly(), holds: history.HoldsNothing, nodes: []int{n.Index},
		again: []int{n.Index}, gone: 1, hold: time.Second,
		breaks: n.Leave,
		mends:  n.Start,
	}
}

func (s *stage) join() fault {
	n := s.Nodes()[s.size]
	return fault{
		what: n.Name + " joins and leaves", allows: exactly(), holds: history.HoldsNothing, nodes: []int{n.Index},
		joins: []int{n.Index}, hold: time.Second,
		breaks: func(ctx context.Context) error {
			return errors.Join(n.Start(ctx), s.Settled(ctx, settleWithin))
		},
		mends: n.Leave,
	}
}

func (s *stage) rolling() fault {
	var all []int
	for i := range s.size {
		all = append(all, i)
	}
	return fault{
		what: "a rolling restart", allows: exactly(), holds: history.HoldsNothing, nodes: all, again: all, gone: 1,
		breaks: func(ctx context.Context) error {
			for _, n := range s.Nodes()[:s.size] {
				if err := errors.Join(n.Leave(ctx), n.Start(ctx), s.Settled(ctx, settleWithin)); err != nil {
					return err
				}
			}
			return nil
		},
		mends: nothing,
	}
}

// each does something to nodes, all at once.
func each(ctx context.Context, nodes []*fleet.Node, f func(*fleet.Node, context.Context) error) error {
	errs := make([]error, len(nodes))
	var doing sync.WaitGroup
	for i, n := range nodes {
		doing.Go(func() { errs[i] = f(n, ctx) })
	}
	doing.Wait()
	return errors.Join(errs...)
}

func (s *stage) whole() fault { return s.ends(s.Nodes()[:s.size]) }

// ends kills nodes at once, and starts them again.
func (s *stage) ends(nodes []*fleet.Node) fault {
	var which []int
	for _, n := range nodes {
		which = append(which, n.Index)
	}
	return fault{
		what: fmt.Sprintf("kill -9 of %d of %d nodes", len(nodes), s.size), allows: loss(), holds: history.HoldsNothing,
		nodes: which, again: which, hold: 500 * time.Millisecond,
		breaks: func(ctx context.Context) error { return each(ctx, nodes, (*fleet.Node).Kill) },
		mends:  func(ctx context.Context) error { return each(ctx, nodes, (*fleet.Node).Start) },
	}
}

// reloads has nodes follow five files, of which one is no rules: the limit that
// nobody asks about grows and shrinks, and the counters of all others are to stay.
func (s *stage) reloads(ctx context.Context, nodes ...*fleet.Node) error {
	for i, limit := range []int{3 * unaskedLimit, unaskedLimit / 2, 0, 2 * unaskedLimit, unaskedLimit} {
		if limit == 0 {
			s.Doubt(s.refuse(ctx, "version: 1\nrules: [{name: broken", nodes...))
			continue
		}
		if err := s.SetRules(yaml(served(), limit, fmt.Sprintf("file %d", i))); err != nil {
			return err
		}
		s.Doubt(s.serve(ctx, limit, nodes...))
		if err := fleet.Wait(ctx, 300*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) reload() fault {
	return fault{
		what: "rules reloaded", allows: exactly(), holds: history.HoldsNothing, nodes: s.everyone(), cold: true,
		breaks: func(ctx context.Context) error { return s.reloads(ctx, s.Nodes()[:s.size]...) },
		mends:  nothing,
	}
}

func (s *stage) reloadKill() fault {
	n := s.any()
	return fault{
		what: "rules reloaded while " + n.Name + " is killed", allows: crash(), takes: 1, holds: history.HoldsNothing,
		nodes: []int{n.Index}, cold: true,
		breaks: func(ctx context.Context) error {
			return errors.Join(n.Kill(ctx), s.reloads(ctx, s.but(n)...))
		},
		mends: n.Start,
	}
}

//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/netlab"
)

// settleWithin is how long a fleet may take to settle before that is an error.
const settleWithin = 40 * time.Second

// processes returns what is done to processes.
func processes() []Scenario {
	return []Scenario{
		{Name: "nothing", About: "no fault", Loopback: true, make: (*stage).nothing},
		{Name: "kill", About: "kill -9 of one node, started again 0.5 to 3 s later", Loopback: true, make: (*stage).kill},
		{Name: "kill-hot", About: "kill -9 of one node, whose copies lag by 20 ms, while keys are used up faster than that", make: (*stage).killHot},
		{Name: "pause-hot", About: "SIGSTOP of one node, whose copies lag by 20 ms, while keys are used up faster than that", make: (*stage).pauseHot},
		{Name: "quick-restart", About: "kill -9 of one node, started again at once", Loopback: true, make: (*stage).quickRestart},
		{Name: "pause", About: "SIGSTOP of one node for 1 to 10 s, then SIGCONT", Loopback: true, make: (*stage).pause},
		{Name: "starved", About: "one node gets a fifth of its processor time, in slices", Loopback: true, make: (*stage).starved},
		{Name: "leave", About: "SIGTERM of one node, started again", Loopback: true, make: (*stage).leave},
		{Name: "join", About: "a fourth node joins, and leaves again", Loopback: true, make: (*stage).join},
		{Name: "rolling-restart", About: "all nodes in turn, SIGTERM and start", Loopback: true, make: (*stage).rolling},
		{Name: "whole-restart", About: "kill -9 of all nodes at once, and start", Loopback: true, make: (*stage).whole},
		{Name: "reload", About: "rules reloaded, a bad file among them, while a node is killed", Loopback: true, make: (*stage).reload},
	}
}

func (s *stage) nothing() fault {
	return fault{what: "nothing is broken", allows: exactly(), hold: 2 * time.Second, breaks: nothing, mends: nothing}
}

func (s *stage) kill() fault {
	n := s.any()
	return fault{
		what: "kill -9 " + n.Name, allows: crash(), nodes: []int{n.Index}, hold: s.between(500*time.Millisecond, 3*time.Second),
		breaks: func(context.Context) error { return n.Kill() },
		mends:  func(context.Context) error { return n.Start() },
	}
}

// lagging has copies come late, and keys used up before they do.
func (s *stage) lagging(f fault) fault {
	f.hot, f.allows.Raised = true, true
	f.what += ", copies 20 ms late"
	s.eachLink(func(from, to int) { s.Lab.Set(from, to, netlab.Link{Delay: 20 * time.Millisecond}) })
	mends := f.mends
	f.mends = func(ctx context.Context) error {
		s.Lab.Heal()
		return mends(ctx)
	}
	return f
}

func (s *stage) killHot() fault { return s.lagging(s.kill()) }

func (s *stage) pauseHot() fault { return s.lagging(s.pause()) }

func (s *stage) quickRestart() fault {
	n := s.any()
	return fault{
		what: "restart " + n.Name, allows: crash(), nodes: []int{n.Index},
		breaks: func(context.Context) error { return errors.Join(n.Kill(), n.Start()) },
		mends:  nothing,
	}
}

func (s *stage) pause() fault {
	n := s.any()
	hold := s.between(time.Second, 10*time.Second)
	return fault{
		what: fmt.Sprintf("pause %s for %v", n.Name, hold.Round(time.Millisecond)), allows: crash(), nodes: []int{n.Index}, hold: hold,
		breaks: func(context.Context) error { return n.Pause() },
		mends:  func(context.Context) error { return n.Resume() },
	}
}

func (s *stage) starved() fault {
	n := s.any()
	return fault{
		what: "starve " + n.Name, allows: crash(), nodes: []int{n.Index},
		breaks: func(ctx context.Context) error {
			for range 30 {
				if err := errors.Join(n.Pause(), wait(ctx, 80*time.Millisecond), n.Resume(), wait(ctx, 20*time.Millisecond)); err != nil {
					return err
				}
			}
			return nil
		},
		mends: nothing,
	}
}

func (s *stage) leave() fault {
	n := s.any()
	return fault{
		what: "SIGTERM " + n.Name, allows: exactly(), nodes: []int{n.Index}, hold: time.Second,
		breaks: n.Leave,
		mends:  func(context.Context) error { return n.Start() },
	}
}

func (s *stage) join() fault {
	n := s.Nodes()[s.size]
	return fault{
		what: n.Name + " joins and leaves", allows: exactly(), nodes: []int{n.Index}, hold: time.Second,
		breaks: func(ctx context.Context) error {
			return errors.Join(n.Start(), s.Settled(ctx, settleWithin))
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
		what: "a rolling restart", allows: exactly(), nodes: all,
		breaks: func(ctx context.Context) error {
			for _, n := range s.Nodes()[:s.size] {
				if err := errors.Join(n.Leave(ctx), n.Start(), s.Settled(ctx, settleWithin)); err != nil {
					return err
				}
			}
			return nil
		},
		mends: nothing,
	}
}

func (s *stage) whole() fault {
	var all []int
	for i := range s.size {
		all = append(all, i)
	}
	each := func(f func(*fleet.Node) error) error {
		var err error
		for _, n := range s.Nodes()[:s.size] {
			err = errors.Join(err, f(n))
		}
		return err
	}
	return fault{
		what: "kill -9 of all nodes", allows: loss(), nodes: all, hold: 500 * time.Millisecond,
		breaks: func(context.Context) error { return each((*fleet.Node).Kill) },
		mends:  func(context.Context) error { return each((*fleet.Node).Start) },
	}
}

func (s *stage) reload() fault {
	n := s.any()
	return fault{
		what: "rules reloaded while " + n.Name + " is killed", allows: crash(), nodes: []int{n.Index},
		breaks: func(ctx context.Context) error {
			err := n.Kill()
			for i := range 4 {
				text := yaml(s.rules, fmt.Sprintf("file %d", i))
				if i == 1 {
					text = "version: 1\nrules: [{name: broken"
				}
				err = errors.Join(err, s.SetRules(text), wait(ctx, 300*time.Millisecond))
			}
			return err
		},
		mends: func(context.Context) error { return n.Start() },
	}
}

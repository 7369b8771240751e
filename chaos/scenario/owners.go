//go:build linux

package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/history"
	"github.com/weirlimit/weir/chaos/netlab"
)

// owners returns faults in which a node has an old copy, an old view or old counters, and
// others have newer ones.
func owners() []Scenario {
	return []Scenario{
		{Name: "stale-owner",
			About: "one node cut off until the others do without it; kill -9 of another, which operators forget; then the " +
				"first is back", Needs: fleet.Cuts | fleet.Shapes, make: (*stage).staleOwner},
		{Name: "both-sides",
			About: "five nodes split in two and three, and one of the three changes sides 85 to 130 ms later",
			Needs: fleet.Cuts | fleet.Shapes, Size: 5, make: (*stage).bothSides},
		{Name: "leave-alone", About: "SIGTERM of one node that sees no other, which are in reach a second later",
			Needs: fleet.Cuts | fleet.Shapes, make: (*stage).leaveAlone},
		{Name: "reset-paused", About: "one node paused until the others do without it; keys are reset meanwhile",
			Args: []string{"--allow-reset"}, make: (*stage).resetPaused},
		{Name: "reset-asked",
			About: "one node paused until the others do without it, and asked to reset keys before it goes on",
			Args:  []string{"--allow-reset"}, make: (*stage).resetAsked},
	}
}

// staleOwner: the copies of whoever was cut off are older than those of the third node,
// although who made these is gone.
func (s *stage) staleOwner() fault {
	p := s.rng.Perm(s.size)
	away, killed, third := s.Nodes()[p[0]], s.Nodes()[p[1]], s.Nodes()[p[2]]
	return fault{
		what:   fmt.Sprintf("%s cut off, %s killed and forgotten, %s back", away.Name, killed.Name, away.Name),
		allows: history.Allows{Closed: 1, Local: 3, Open: 3}, nodes: []int{away.Index, killed.Index}, cold: true, takes: 3,
		again: []int{killed.Index},
		breaks: func(ctx context.Context) error {
			if err := errors.Join(s.cut(ctx, away.Index), s.SettledWithout(ctx, settleWithin, away)); err != nil {
				return err
			}
			s.cold.Ask(ctx, 1, killed, third)
			if err := errors.Join(killed.Kill(ctx), fleet.Wait(ctx, 4*time.Second), third.Forget(ctx, killed.Name),
				away.Forget(ctx, killed.Name)); err != nil {
				return err
			}
			if err := errors.Join(s.heal(ctx), fleet.Wait(ctx, 4*time.Second)); err != nil {
				return err
			}
			s.cold.Ask(ctx, 1, away, third)
			return nil
		},
		mends: killed.Start,
	}
}

// bothSides: who changes sides must not help an owner on each.
func (s *stage) bothSides() fault {
	p := s.rng.Perm(s.size)
	moves := p[4]
	span := s.between(85*time.Millisecond, 130*time.Millisecond)
	side := func(n int) bool { return n == p[0] || n == p[1] }
	apart := func(moved bool) func(from, to int) (netlab.Link, bool) {
		of := func(n int) bool { return side(n) || moved && n == moves }
		return func(from, to int) (netlab.Link, bool) {
			return netlab.Link{Cut: of(from) != of(to)}, of(from) != of(to) || from == moves || to == moves
		}
	}
	return fault{
		what: fmt.Sprintf("node-%d and node-%d cut off, and node-%d with them %v later", p[0]+1, p[1]+1, moves+1,
			span.Round(time.Millisecond)),
		allows: history.Allows{Closed: 1, Local: 3, Open: 5}, nodes: s.everyone(), takes: 3, hold: 4 * time.Second,
		breaks: func(ctx context.Context) error {
			return errors.Join(s.breakLinks(ctx, false, apart(false)), fleet.Wait(ctx, span),
				s.breakLinks(ctx, false, apart(true)))
		},
		mends: s.heal,
	}
}

// leaveAlone: a node that leaves and sees no member waits for the members of its last view.
func (s *stage) leaveAlone() fault {
	n := s.any()
	f := s.apart(n.Index, 0)
	f.what, f.cold, f.again, f.gone = n.Name+" leaves while it sees no other", true, []int{n.Index}, 1
	f.mends = func(ctx context.Context) error {
		if err := errors.Join(s.SettledWithout(ctx, settleWithin, n), s.alone(ctx, n)); err != nil {
			return err
		}
		s.cold.Fresh(ctx, "local", s.but(n), []*fleet.Node{n})
		left := make(chan error, 1)
		go func() { left <- n.Leave(ctx) }()
		return errors.Join(fleet.Wait(ctx, time.Second), s.heal(ctx), <-left, n.Start(ctx))
	}
	return f
}

const (
	resetKeys  = 40
	resetLimit = 60 // of the rule day-local
	afterReset = 5  // checks of each key until the paused node goes on
)

// resetPaused: what a paused owner has counted of a key is older than the key's reset.
func (s *stage) resetPaused() fault {
	n := s.any()
	admitted := make([]int, resetKeys)
	return fault{
		what: "pause " + n.Name + ", and reset keys meanwhile", allows: late(), takes: 1, nodes: []int{n.Index},
		breaks: func(ctx context.Context) error {
			if err := s.askReset(ctx, make([]int, resetKeys), resetLimit+6, s.but(nil)); err != nil {
				return err
			}
			if err := errors.Join(n.Pause(ctx), s.SettledWithout(ctx, settleWithin, n)); err != nil {
				return errors.Join(err, n.Resume(ctx))
			}
			for i := range resetKeys {
				to := s.but(n)[i%(s.size-1)]
				if status, text, err := to.Post(ctx, "/v1/reset", resetKey(i)); err != nil || status != http.StatusOK {
					return errors.Join(fmt.Errorf("%s answers a reset with %d %s: %w", to.Name, status, text, err), n.Resume(ctx))
				}
			}
			return s.askReset(ctx, admitted, afterReset, s.but(n))
		},
		mends: func(ctx context.Context) error {
			if err := errors.Join(n.Resume(ctx), s.Settled(ctx, settleWithin)); err != nil {
				return err
			}
			if err := s.askReset(ctx, admitted, resetLimit+6, s.but(nil)); err != nil {
				return err
			}
			for i, units := range admitted {
				if units < resetLimit {
					s.broken = append(s.broken, fmt.Errorf("key %d has admitted %d of %d since its reset: it was undone", i, units,
						resetLimit))
				}
			}
			return nil
		},
	}
}

// resetAsked: a paused owner answers resets before it has heard of whoever took over. What
// it says is done must be done there.
func (s *stage) resetAsked() fault {
	n := s.any()
	done := make(chan []bool, 1)
	return fault{
		what: "pause " + n.Name + ", and ask it to reset keys before it goes on", allows: late(), takes: 1,
		nodes: []int{n.Index},
		breaks: func(ctx context.Context) error {
			if err := s.askReset(ctx, make([]int, resetKeys), resetLimit+6, s.but(nil)); err != nil {
				return err
			}
			if err := errors.Join(n.Pause(ctx), s.SettledWithout(ctx, settleWithin, n)); err != nil {
				return errors.Join(err, n.Resume(ctx))
			}
			go func() { done <- resetsAt(ctx, n) }()
			return fleet.Wait(ctx, 500*time.Millisecond) // the requests lie at its door
		},
		mends: func(ctx context.Context) error {
			if err := n.Resume(ctx); err != nil {
				return err
			}
			said := <-done
			if err := s.Settled(ctx, settleWithin); err != nil {
				return err
			}
			admitted := make([]int, resetKeys)
			if err := s.askReset(ctx, admitted, resetLimit+6, s.but(nil)); err != nil {
				return err
			}
			answered := 0
			for i, ok := range said {
				if !ok {
					continue
				}
				answered++
				if admitted[i] < resetLimit {
					s.broken = append(s.broken, fmt.Errorf("%s said that key %d is reset, and it has admitted %d of %d since", n.Name,
						i, admitted[i], resetLimit))
				}
			}
			if answered == 0 {
				s.Doubt(fmt.Errorf("%s answered none of %d resets when it went on", n.Name, resetKeys))
			}
			return nil
		},
	}
}

// resetsAt asks a node to reset each of the keys, all at once, and returns which of them it
// said are reset.
func resetsAt(ctx context.Context, n *fleet.Node) []bool {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	said := make([]bool, resetKeys)
	var asking sync.WaitGroup
	for i := range resetKeys {
		asking.Go(func() {
			status, _, err := n.Post(ctx, "/v1/reset", resetKey(i))
			said[i] = err == nil && status == http.StatusOK
		})
	}
	asking.Wait()
	return said
}

func resetKey(i int) map[string]string {
	return map[string]string{"path": "/day-local", "user": fmt.Sprintf("reset-%d", i)}
}

// askReset asks about each of the keys so many times, of the nodes in turn, and adds what
// is admitted.
func (s *stage) askReset(ctx context.Context, admitted []int, times int, nodes []*fleet.Node) error {
	for i := range resetKeys {
		for j := range times {
			_, text, err := nodes[(i+j)%len(nodes)].Post(ctx, "/v1/check", resetKey(i))
			var a struct{ Allowed bool }
			if err = errors.Join(err, json.Unmarshal(text, &a)); err != nil {
				return err
			}
			if a.Allowed {
				admitted[i]++
			}
		}
	}
	return nil
}

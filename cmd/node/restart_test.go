//go:build unix

package main

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"
)

// askEvery is the pace at which steady asks for each key: slow enough that what
// is left of a half-used one lasts through what happens to the nodes.
const askEvery = 60 * time.Millisecond

// shards is how many goroutines share the keys of a group.
const shards = 6

// steady asks for all keys of a group at a pace, of all nodes in turn, until
// stopped.
func steady(t *testing.T, a *asker, group string, c *counts) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	for s := range shards {
		asking.Go(func() {
			k := shard(group, s, shards)
			checks := k.checks()
			tick := time.NewTicker(askEvery)
			defer tick.Stop()
			for n := s; ; n++ {
				within, done := context.WithTimeout(context.WithoutCancel(ctx), patience)
				answers, err := a.ask(within, n, checks)
				done()
				if err != nil {
					c.fail(err)
				}
				c.add(n%len(a.nodes), k, answers)
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	return func() { cancel(); asking.Wait() }
}

// restart ends some nodes one second apart, each in good order, and starts each
// again as soon as it has ended. It returns all.
func restart(t *testing.T, all, some []*seat) []*seat {
	t.Helper()
	apart := time.NewTicker(time.Second) // what is to happen, and no wait for it
	defer apart.Stop()
	ended := make(chan *seat, len(some))
	next := 0
	end := func() {
		s := some[next]
		s.signal(syscall.SIGTERM)
		go func() {
			<-s.done
			ended <- s
		}()
		next++
	}
	end()
	for back := 0; back < len(some); {
		tick := apart.C
		if next == len(some) {
			tick = nil
		}
		select {
		case <-tick:
			end()
		case s := <-ended:
			s.left(t)
			s.start(t)
			back++
		case <-time.After(soon):
			t.Fatal("no node ends")
		}
	}
	return all
}

// surviving is something that happens to nodes in good order.
type surviving struct {
	start  int // so many nodes are there before
	happen func(t *testing.T, all []*seat) (there []*seat)
}

// wrongs are what was not as it should be. A node that stands still for want of CPU is paused, and
// the promise for pauses is [clusterD] units of a key for each. So with pauses that the nodes
// counted themselves, only what is beyond so many times that is wrong.
type wrongs struct {
	what   []string
	beyond []string
	pauses int
}

// run has it happen to nodes of a new cluster that are asked throughout.
func (v surviving) run(t *testing.T) wrongs {
	t.Helper()
	return v.on(t, places(t, 3, clusterRules))
}

// runFrom is run with nodes that another program runs at first.
func (v surviving) runFrom(t *testing.T, first string) wrongs {
	t.Helper()
	all := places(t, 3, clusterRules)
	for _, s := range all {
		s.program = first
	}
	return v.on(t, all)
}

// on is run on the given places, in which no node has been started.
func (v surviving) on(t *testing.T, all []*seat) (w wrongs) {
	t.Helper()
	for _, s := range all[:v.start] {
		s.start(t)
	}
	settle(t, all[:v.start])
	a := newAsker(t, all)
	const half = clusterLimit / 2
	var full0, half0, full1, half1 counts
	full0.times(t, clusterLimit+3, a, "full")
	half0.times(t, half, a, "half")
	stopFull, stopHalf := steady(t, a, "full", &full1), steady(t, a, "half", &half1)
	before := make(map[*process]int)
	for _, s := range all[:v.start] {
		before[s.process] = events(t, []*seat{s}, "late")
	}
	there := v.happen(t, all)
	settle(t, there)
	stopFull()
	stopHalf()
	t.Logf("%d checks were asked meanwhile", full1.asked+half1.asked)
	full1.times(t, 6, a, "full")
	half1.times(t, clusterLimit, a, "half")
	for _, s := range there {
		w.pauses += events(t, []*seat{s}, "late") - before[s.process]
	}
	for _, c := range []struct {
		what string
		*counts
		want int
	}{
		{"at first, used up", &full0, clusterLimit}, {"at first, half used", &half0, half},
		{"then, used up", &full1, 0}, {"then, half used", &half1, half},
	} {
		if keys := c.besides(c.want, c.want); len(keys) > 0 {
			w.what = append(w.what, fmt.Sprintf("%s: %d keys were not admitted %d times: %v", c.what, len(keys), c.want, keys))
		}
		if c.policy > 0 {
			w.what = append(w.what, fmt.Sprintf("%s: policies gave %d of %d answers", c.what, c.policy, c.asked))
		}
		if keys := c.besides(c.want-w.pauses*clusterD, c.want+w.pauses*clusterD); len(keys) > 0 {
			w.beyond = append(w.beyond, fmt.Sprintf("%s, after %d pauses: %v", c.what, w.pauses, keys))
		}
		if len(c.errs) > 0 {
			t.Errorf("%s: %d errors, the first: %v", c.what, len(c.errs), c.errs[0])
		}
	}
	for _, s := range there {
		s.signal(syscall.SIGKILL) // the next one needs the CPU
	}
	return w
}

// B7: 300 exhausted keys stay exhausted, and 300 half-used ones admit exactly their
// rest, under continuous checks. A client that knows all nodes gets no error.
func TestCountsSurvive(t *testing.T) {
	for name, v := range map[string]surviving{
		"a join": {2, func(t *testing.T, all []*seat) []*seat {
			t.Helper()
			all[2].start(t)
			return all
		}},
		"a leave": {3, func(t *testing.T, all []*seat) []*seat {
			t.Helper()
			all[2].signal(syscall.SIGTERM)
			all[2].left(t)
			return all[:2]
		}},
		"a quick restart": {3, func(t *testing.T, all []*seat) []*seat {
			t.Helper()
			return restart(t, all, all[:1])
		}},
		"restarts of all, one second apart": {3, func(t *testing.T, all []*seat) []*seat {
			t.Helper()
			return restart(t, all, all)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			v.run(t).judge(t)
		})
	}
}

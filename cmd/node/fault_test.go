//go:build unix

package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	// hurry is the pace of demand until the limits are used up, at each node for
	// each key, and calm the pace from then on.
	hurry, calm = 10 * time.Millisecond, 60 * time.Millisecond
	// atOnce is how many concurrent checks are sent for half of the keys until then:
	// more than D, so that an owner without a bound would admit more than D unknown to
	// all others.
	atOnce = 2 * clusterD
	// struckAt is how often a key has been admitted when the fault strikes.
	struckAt = clusterLimit / 4
)

// demand is what asks all nodes for all keys of a group, over and over. An
// answer of a policy is asked again, until it is right.
type demand struct {
	counts
	group  string
	within time.Duration // a right answer takes no longer
	calm   atomic.Bool
	struck atomic.Bool // the fault has happened
	over   chan struct{}
	asking sync.WaitGroup
}

// start begins to send checks. It ignores checks that the failing node does not answer,
// and how long they take.
func (d *demand) start(t *testing.T, all []*seat, fails int) {
	t.Helper()
	d.over = make(chan struct{})
	for node, s := range all {
		a := newAsker(t, []*seat{s})
		var ends <-chan struct{}
		if node == fails {
			ends = s.done
		}
		for part := range shards {
			d.asking.Go(func() { d.ask(t, a, node, ends, shard(d.group, part, shards)) })
		}
	}
}

func (d *demand) stop() {
	close(d.over)
	d.asking.Wait()
}

// ask asks one node for some keys until the demand is over. Ends is closed when
// the node that is to fail has ended, and nil for the others.
func (d *demand) ask(t *testing.T, a *asker, node int, ends <-chan struct{}, k keys) {
	t.Helper()
	for {
		next := time.NewTimer(hurry)
		if d.calm.Load() {
			next.Reset(calm)
		}
		asked := k
		if !d.calm.Load() && k.numbers[0] < clusterKeys/2 {
			asked.numbers = slices.Repeat(k.numbers, atOnce)
		}
		d.once(t, a, node, ends, asked)
		select {
		case <-next.C:
		case <-ends:
			return
		case <-d.over:
			next.Stop()
			return
		}
	}
}

// once asks one node for some keys until each was answered by its owner or heir,
// and notes how long that took.
func (d *demand) once(t *testing.T, a *asker, node int, ends <-chan struct{}, k keys) {
	t.Helper()
	fails := ends != nil
	within := d.within
	if fails {
		within = soon // it may stand still
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if fails {
		go func() {
			select {
			case <-ends:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	begun := time.Now()
	var took []time.Duration
	for {
		answers, err := a.ask(ctx, 0, k.checks())
		if err != nil {
			if !fails {
				d.fail(fmt.Errorf("node %d, after %v: %w", node+1, time.Since(begun), err))
			}
			break
		}
		d.add(node, k, answers)
		again := keys{group: k.group}
		for i, answer := range answers {
			if right(answer) {
				took = append(took, time.Since(begun))
			} else {
				again.numbers = append(again.numbers, k.numbers[i])
			}
		}
		if k = again; len(k.numbers) == 0 {
			break
		}
		pause(ctx, retryAfter)
	}
	if !fails && d.struck.Load() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.took = append(d.took, took...)
	}
}

// until waits until something was counted.
func (d *demand) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(soon)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		d.mu.Lock()
		met := is()
		d.mu.Unlock()
		if met {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not so in time: %s", what)
		}
	}
}

// reached waits until key 0 was admitted so often.
func (d *demand) reached(t *testing.T, n int) {
	t.Helper()
	d.until(t, fmt.Sprintf("key 0 was admitted %d times", n), func() bool { return d.counted[0] >= n })
}

// strike has the fault happen under full demand, and waits until the limits are
// used up all the same.
func (d *demand) strike(t *testing.T, fault func()) {
	t.Helper()
	d.reached(t, struckAt)
	d.struck.Store(true)
	fault()
	d.mu.Lock()
	at := slices.Clone(d.counted[:])
	d.mu.Unlock()
	slices.Sort(at)
	t.Logf("the fault struck when %d to %d of %d were admitted, %d in the median", at[0], at[clusterKeys-1], clusterLimit,
		at[clusterKeys/2])
	d.until(t, "all keys are used up", func() bool { return !slices.Contains(d.usedUp[:], false) })
	d.calm.Store(true)
}

// bounded requires that owners and heirs admit each key at most D times above its
// limit, and at least its limit, except for charges whose answers were lost. If another
// node was paused, too, and taken over, the excess may be twice that.
func (d *demand) bounded(t *testing.T, others []*seat) {
	t.Helper()
	most, least := clusterLimit+clusterD, clusterLimit-clusterD-3*atOnce
	if n := events(t, others, "fenced"); n > 0 {
		t.Logf("a node that was not to fail stood still for want of CPU: %d of its partitions were taken over", n)
		most += 2 * clusterD
	}
	if wrong := d.besides(least, most); len(wrong) > 0 {
		t.Errorf("%d keys were admitted less than %d or more than %d times: %v", len(wrong), least, most, wrong)
	}
}

// answered requires that policies keep to each node's share, that there are no errors,
// and that there are answers after the fault. It logs how long those took.
func (d *demand) answered(t *testing.T, members int) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	policed, share := 0, max(1, clusterLimit/members)
	for node, by := range d.policed {
		for k, n := range by {
			policed += n
			if n > share {
				t.Errorf("node %d admitted key %d %d times by policy; its share is %d", node+1, k, n, share)
			}
		}
	}
	slices.Sort(d.took)
	t.Logf("%d answers, %d by policy, which admitted %d; after the fault %d right ones: p50 %v, p99 %v, p99.9 %v, the "+
		"last %v", d.asked, d.policy, policed,
		len(d.took), quantile(d.took, 0.5), quantile(d.took, 0.99), quantile(d.took, 0.999), quantile(d.took, 1))
	if len(d.errs) > 0 {
		t.Errorf("%d errors of nodes that did not fail, the first: %v", len(d.errs), d.errs[0])
	}
	if len(d.took) == 0 {
		t.Error("nobody was answered after the fault")
	}
}

// An owner that is killed under full demand costs at most D for each key.
func TestKilledOwner(t *testing.T) {
	all := seats(t)
	d := demand{group: "dead", within: patience}
	d.start(t, all, 2)
	d.strike(t, func() { all[2].signal(syscall.SIGKILL) })
	settle(t, all[:2])
	d.stop()
	d.times(t, 2*clusterLimit, newAsker(t, all[:2]), "dead")
	d.bounded(t, all[:2])
	d.answered(t, 3)
}

// An owner that stands still for 5 s under full demand, and goes on, costs no
// more than one that dies.
func TestPausedOwner(t *testing.T) {
	all := seats(t)
	d := demand{group: "slow", within: patience}
	d.start(t, all, 2)
	d.strike(t, func() { all[2].signal(syscall.SIGSTOP) })
	pause(t.Context(), 5*time.Second) // the fault itself, and no wait for it
	all[2].signal(syscall.SIGCONT)
	settle(t, all)
	d.stop()
	d.times(t, 2*clusterLimit, newAsker(t, all), "slow")
	d.bounded(t, all[:2])
	d.answered(t, 3)
}

// Where owner and heir stand still, policies answer, and each node admits its
// share of a limit and no more.
func TestPausedPair(t *testing.T) {
	all := seats(t, "--deadline", "30ms") // policies answer soon
	d := demand{group: "pair", within: soon}
	d.start(t, all[:1], -1)
	d.strike(t, func() {
		all[1].signal(syscall.SIGSTOP)
		all[2].signal(syscall.SIGSTOP)
		d.until(t, "policies deny", func() bool { return d.denied > 0 })
		all[1].signal(syscall.SIGCONT)
		all[2].signal(syscall.SIGCONT)
	})
	settle(t, all)
	d.stop()
	d.answered(t, 3)
}

package cluster

import (
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/limiter"
)

// ticks are the scheduled and the running tick, and the partitions that the next one
// looks at.
type ticks struct {
	core *Core

	mu        sync.Mutex
	scheduled bool // a tick is scheduled or running
	rearm     bool // schedule another tick after the running one
	watched   []*partition
	spare     []*partition
	// due is, by partition, the time before which a tick passes it over; 0 if it is not
	// watched, and replica.Never if the next tick is to take it off the list. It changes
	// under the partition's lock, except from Never to 0.
	due    []atomic.Int64
	idleAt limiter.Tick // when the last tick ended without scheduling another

	// pulseAt is when the next tick is due, or when the running tick last reported
	// progress; 0 if no tick is scheduled. lateMu is held while a turn handles an
	// overdue tick.
	pulseAt atomic.Int64
	lateMu  sync.Mutex
}

// watch adds a partition to those that the next tick looks at.
func (k *ticks) watch(p *partition) {
	k.mu.Lock()
	k.watched = append(k.watched, p)
	k.mu.Unlock()
}

// arm schedules the next tick; a turn calls it at its end, see [route.Turn.Tick]. If a tick is
// scheduled or running, the next one is scheduled when that one ends. Otherwise a node
// that is too slow for its ticks would run several at once, and find all of them late.
func (k *ticks) arm() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.scheduled {
		k.rearm = true
		return
	}
	k.schedule()
}

// schedule schedules the next tick, replica.TickEvery from now and not from the
// beginning of the turn that asks for it, or earlier, but not within a millisecond, for a call that ends at an
// instant of its own.
// No tick may be scheduled already. k.mu is held.
func (k *ticks) schedule() {
	if k.scheduled = !k.core.closed.Load(); k.scheduled {
		k.rearm = false
		now := k.core.config.Scheduler.Now()
		after := max(min(k.core.calls.NextExact()-now, replica.TickEvery), limiter.Millisecond)
		at := k.pulseAt.Load()
		if at == 0 && now-k.idleAt > lateAfter {
			k.core.pace.wakeUp(now) // no tick watched the time meanwhile
		}
		if at == 0 || now-limiter.Tick(at) <= lateAfter {
			k.pulseAt.Store(int64(now + after))
		} // else this node has just been paused: the next turn detects it in pulse
		k.core.config.Scheduler.After(after, k.tick)
	}
}

// pulse detects that this node was paused: the scheduled tick is overdue by more than
// lateAfter, or the running tick has made no progress for that long. After a pause the
// silence of others proves nothing, so all waits begin anew before the turn does
// anything else. t.Now must be the present time.
func (k *ticks) pulse(t *turn) {
	at := k.pulseAt.Load()
	if at == 0 || t.Now-limiter.Tick(at) <= lateAfter {
		return
	}
	k.lateMu.Lock()
	defer k.lateMu.Unlock()
	if !k.pulseAt.CompareAndSwap(at, int64(t.Now)) {
		return // another turn handles it
	}
	k.core.event(EventLate, -1)
	k.core.pace.wakeUp(t.Now)
	k.core.pace.easeUntil.Store(int64(t.Now + replica.EaseFor))
	k.core.mesh.Restart(t.Now)
	k.core.partitions.each(t, (*replica.Replica).Late)
}

// goOn records progress of the running tick, after it has checked for a pause.
func (k *ticks) goOn(t *turn) {
	t.Now = k.core.config.Scheduler.Now()
	k.pulse(t)
	k.pulseAt.Store(int64(t.Now))
}

// tick does all work that is due.
func (k *ticks) tick() {
	if k.core.closed.Load() {
		return
	}
	var parts []*partition
	idle, now := false, k.core.config.Scheduler.Now()
	defer func() { k.ticked(parts, idle, now) }()
	defer k.core.config.catch()
	t := k.core.begin()
	parts, idle = k.all(t)
	now = t.Now
	t.end() // t may be reused by another turn from here on
}

// ticked ends a tick that looked at the given partitions. It schedules the next one
// unless idle is set and no partition is watched. idle means that nothing but watched
// partitions needs a tick.
func (k *ticks) ticked(parts []*partition, idle bool, now limiter.Tick) {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(parts)
	k.spare, k.scheduled = parts[:0], false
	if !idle || k.rearm || len(k.watched) > 0 {
		k.schedule()
	} else {
		k.pulseAt.Store(0)
		k.idleAt = now
	}
}

// all does all work that is due. It returns the partitions that it looked at; idle
// reports that only watched partitions need another tick. After a panic idle is false.
func (k *ticks) all(t *turn) (parts []*partition, idle bool) {
	defer t.Catch()
	k.goOn(t)
	k.mu.Lock()
	parts = k.watched
	k.watched, k.rearm = k.spare[:0], false
	k.spare = nil
	k.mu.Unlock()
	for i, p := range parts {
		if i%pulseEvery == pulseEvery-1 {
			k.goOn(t)
		}
		switch due := &k.due[p.id]; {
		case int64(t.Now) >= due.Load():
			k.part(t, p)
		case !due.CompareAndSwap(int64(replica.Never), 0):
			k.watch(p)
		}
	}
	k.goOn(t)
	watching := t.Out.Watch(t.Now)
	return parts, !k.core.calls.Tick(&t.Turn) && !watching
}

// part does the work that is due in a partition, and watches it further if work
// remains.
func (k *ticks) part(t *turn, p *partition) {
	p.mu.Lock()
	defer p.leave(t)
	due := &k.due[p.id]
	over := false
	defer func() {
		if !over {
			due.Store(0) // it is no longer on the list, unless leave puts it back
		}
	}()
	next := p.r.Tick(t.inputs())
	due.Store(int64(next))
	p.apply(t)
	if next != replica.Never {
		k.watch(p)
	} else {
		due.Store(0)
	}
	over = true
}

// watch puts a partition on the list of those that the next ticks look at, if it is not
// on it, with the time at which its last step wants a tick. The partition is locked.
func (p *partition) watch(t *turn) {
	if t.c.ticks.due[p.id].Swap(int64(p.r.Due(&t.step))) == 0 {
		t.c.ticks.watch(p)
	}
}

// rewatch sets the time at which a partition's last step wants a tick, if the partition
// is on the list. The partition is locked.
func (p *partition) rewatch(t *turn) {
	if t.c.ticks.due[p.id].Load() != 0 {
		p.watch(t)
	}
}

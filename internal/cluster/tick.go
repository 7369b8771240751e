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
func (c *Core) arm() {
	c.ticks.mu.Lock()
	defer c.ticks.mu.Unlock()
	if c.ticks.scheduled {
		c.ticks.rearm = true
		return
	}
	c.schedule()
}

// schedule schedules the next tick, replica.TickEvery from now and not from the
// beginning of the turn that asks for it, or earlier, but not within a millisecond, for a call that ends at an
// instant of its own.
// No tick may be scheduled already. c.ticks.mu is held.
func (c *Core) schedule() {
	if c.ticks.scheduled = !c.closed.Load(); c.ticks.scheduled {
		c.ticks.rearm = false
		now := c.config.Scheduler.Now()
		after := max(min(c.calls.NextExact()-now, replica.TickEvery), limiter.Millisecond)
		at := c.ticks.pulseAt.Load()
		if at == 0 && now-c.ticks.idleAt > lateAfter {
			c.pace.wakeUp(now) // no tick watched the time meanwhile
		}
		if at == 0 || now-limiter.Tick(at) <= lateAfter {
			c.ticks.pulseAt.Store(int64(now + after))
		} // else this node has just been paused: the next turn detects it in pulse
		c.config.Scheduler.After(after, c.tick)
	}
}

// pulse detects that this node was paused: the scheduled tick is overdue by more than
// lateAfter, or the running tick has made no progress for that long. After a pause the
// silence of others proves nothing, so all waits begin anew before the turn does
// anything else. t.Now must be the present time.
func (c *Core) pulse(t *turn) {
	at := c.ticks.pulseAt.Load()
	if at == 0 || t.Now-limiter.Tick(at) <= lateAfter {
		return
	}
	c.ticks.lateMu.Lock()
	defer c.ticks.lateMu.Unlock()
	if !c.ticks.pulseAt.CompareAndSwap(at, int64(t.Now)) {
		return // another turn handles it
	}
	c.event(EventLate, -1)
	c.pace.wakeUp(t.Now)
	c.pace.easeUntil.Store(int64(t.Now + replica.EaseFor))
	c.mesh.Restart(t.Now)
	c.partitions.each(t, (*replica.Replica).Late)
}

// goOn records progress of the running tick, after it has checked for a pause.
func (c *Core) goOn(t *turn) {
	t.Now = c.config.Scheduler.Now()
	c.pulse(t)
	c.ticks.pulseAt.Store(int64(t.Now))
}

// tick does all work that is due.
func (c *Core) tick() {
	if c.closed.Load() {
		return
	}
	var parts []*partition
	idle, now := false, c.config.Scheduler.Now()
	defer func() { c.ticked(parts, idle, now) }()
	defer c.config.catch()
	t := c.begin()
	parts, idle = c.tickAll(t)
	now = t.Now
	t.end() // t may be reused by another turn from here on
}

// ticked ends a tick that looked at the given partitions. It schedules the next one
// unless idle is set and no partition is watched. idle means that nothing but watched
// partitions needs a tick.
func (c *Core) ticked(parts []*partition, idle bool, now limiter.Tick) {
	c.ticks.mu.Lock()
	defer c.ticks.mu.Unlock()
	clear(parts)
	c.ticks.spare, c.ticks.scheduled = parts[:0], false
	if !idle || c.ticks.rearm || len(c.ticks.watched) > 0 {
		c.schedule()
	} else {
		c.ticks.pulseAt.Store(0)
		c.ticks.idleAt = now
	}
}

// tickAll does all work that is due. It returns the partitions that it looked at; idle
// reports that only watched partitions need another tick. After a panic idle is false.
func (c *Core) tickAll(t *turn) (parts []*partition, idle bool) {
	defer t.Catch()
	c.goOn(t)
	c.ticks.mu.Lock()
	parts = c.ticks.watched
	c.ticks.watched, c.ticks.rearm = c.ticks.spare[:0], false
	c.ticks.spare = nil
	c.ticks.mu.Unlock()
	for i, p := range parts {
		if i%pulseEvery == pulseEvery-1 {
			c.goOn(t)
		}
		switch due := &c.ticks.due[p.id]; {
		case int64(t.Now) >= due.Load():
			c.tickPart(t, p)
		case !due.CompareAndSwap(int64(replica.Never), 0):
			c.ticks.watch(p)
		}
	}
	c.goOn(t)
	watching := t.Out.Watch(t.Now)
	return parts, !c.calls.Tick(&t.Turn) && !watching
}

// tickPart does the work that is due in a partition, and watches it further if work
// remains.
func (c *Core) tickPart(t *turn, p *partition) {
	p.mu.Lock()
	defer p.leave(t)
	due := &c.ticks.due[p.id]
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
		c.ticks.watch(p)
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

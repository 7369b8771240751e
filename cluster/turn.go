package cluster

import (
	"github.com/weirlimit/weir/limiter"
)

// turn is one entry into the core: what is left to do when all locks are
// released.
type turn struct {
	c     *Core
	now   limiter.Tick
	at    limiter.Tick // the instant that counters see
	wakes []*link
	parts []*part // to be flushed
	later []func(*turn)
	ended []*op // whose callers are to be told

	charge limiter.Charge // scratch
	answer limiter.Decision
	idle   limiter.Decision
}

func (c *Core) begin() *turn {
	t := c.turns.Get().(*turn)
	t.c, t.now = c, c.sched.Now()
	if t.at = t.now; c.config.Clock != nil {
		t.at = c.config.Clock()
	}
	c.pulse(t)
	return t
}

// end does what was put off, which may put off more.
func (t *turn) end() {
	for len(t.later)+len(t.parts)+len(t.ended) > 0 {
		for i := 0; i < len(t.later); { // what runs may add to it
			f := t.later[i]
			i++
			f(t)
		}
		clear(t.later)
		t.later = t.later[:0]
		for i := 0; i < len(t.ended); {
			o := t.ended[i]
			i++
			o.tell(t)
		}
		clear(t.ended)
		t.ended = t.ended[:0]
		for i := 0; i < len(t.parts); {
			p := t.parts[i]
			i++
			p.mu.Lock()
			p.flushing = false
			p.flush(t)
			p.mu.Unlock()
		}
		clear(t.parts)
		t.parts = t.parts[:0]
	}
	for i := range t.wakes {
		t.c.flush(t, t.wakes[i])
	}
	clear(t.wakes)
	t.wakes = t.wakes[:0]
	t.c.turns.Put(t)
}

// flushPart has a partition's batches sent with the end of the turn.
func (c *Core) flushPart(t *turn, p *part) {
	if !p.flushing {
		p.flushing = true
		t.parts = append(t.parts, p)
	}
}

// wake notes that there is something to send.
func (t *turn) wake(l *link) {
	if !l.awake {
		l.awake = true
		t.wakes = append(t.wakes, l)
	}
}

package sim

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// conn is what one node sends to another: in order, or the connection breaks.
type conn struct {
	up       bool
	dialling bool
	gen      int          // counts the times that it broke
	last     limiter.Tick // when the last frame arrives
	held     [][]byte
}

func (w *World) conn(p pair) *conn {
	c := w.conns[p]
	if c == nil {
		c = &conn{}
		w.conns[p] = c
	}
	return c
}

// dial has a node connect to another, again and again until it succeeds.
func (w *World) dial(n, to *Node) {
	p := pair{n.inst, to.inst}
	c := w.conn(p)
	if c.up {
		return
	}
	if c.dialling {
		return
	}
	c.dialling = true
	var try func()
	try = func() {
		switch {
		case !n.alive || c.up || !n.lists(to):
			c.dialling = false
		case n.paused || to.paused || !to.alive || !w.linked(n, to):
			if to.paused || to.alive {
				w.after(w.between(20*ms, 300*ms), try)
				return
			}
			n.do(func() { n.core.Down(to.inst) })
			w.after(w.between(100*ms, 500*ms), try)
		default:
			c.dialling = false
			w.joined(n, to)
			w.joined(to, n)
		}
	}
	w.after(w.between(0, 3*ms), try)
}

// joined: there is one stream for both directions, whoever dialled.
func (w *World) joined(n, to *Node) {
	c := w.conn(pair{n.inst, to.inst})
	if c.up {
		return
	}
	c.up, c.last = true, w.now
	w.logf("%s -> %s up", n.name, to.name)
	n.do(func() { n.core.Up(to.inst); n.pump(to.inst) })
}

// snap breaks a connection, both ways: what is under way is lost.
func (w *World) snap(p pair, notice limiter.Tick) {
	w.snapOne(p, notice)
	w.snapOne(pair{p.to, p.from}, notice)
}

func (w *World) snapOne(p pair, notice limiter.Tick) {
	c := w.conn(p)
	if !c.up {
		return
	}
	c.up, c.held = false, nil
	c.gen++
	w.broken++
	n, to := w.node(p.from), w.node(p.to)
	w.faulted()
	w.logf("%s -> %s broken", n.name, to.name)
	w.after(notice, func() {
		if n.alive && !c.up {
			n.do(func() { n.core.Down(p.to) })
			w.dial(n, to)
		}
	})
}

// send puts the bytes of a frame on their way.
func (w *World) send(n *Node, to peer.Instance, b []byte) {
	p := pair{n.inst, to}
	c := w.conn(p)
	if !c.up {
		return
	}
	if w.cut[p] {
		c.held = append(c.held, b)
		return
	}
	c.last = max(c.last, w.now+w.latency()+w.slow[p])
	gen, at := c.gen, c.last
	w.after(at-w.now, func() {
		if c.gen != gen || !c.up {
			return
		}
		if w.cut[p] {
			c.held = append(c.held, b)
			return
		}
		if m := w.node(to); m.alive {
			m.do(func() { w.deliver(m, n.inst, b) })
		}
	})
}

// underWay reports whether a frame of a node has not arrived yet at a live one, and no cut holds it up.
func (w *World) underWay(n *Node) bool {
	return slices.ContainsFunc(w.live(), func(m *Node) bool {
		p := pair{n.inst, m.inst}
		c := w.conns[p]
		return c != nil && c.up && !w.cut[p] && c.last > w.now
	})
}

// latency is mostly short, and now and then long.
func (w *World) latency() limiter.Tick {
	switch {
	case w.chance(1):
		return w.between(5*ms, 60*ms)
	case w.chance(10):
		return w.between(1*ms, 6*ms)
	default:
		return w.between(100, 900)
	}
}

// sever cuts one direction.
func (w *World) sever(p pair) {
	w.cut[p] = true
	w.faulted()
	w.logf("%s -> %s cut", w.node(p.from).name, w.node(p.to).name)
	w.struck(w.node(p.from))
	w.struck(w.node(p.to))
}

// mend ends a cut: what was held arrives, or the connection had broken.
func (w *World) mend(p pair) {
	if !w.cut[p] {
		return
	}
	delete(w.cut, p)
	w.faulted()
	w.logf("%s -> %s mended", w.node(p.from).name, w.node(p.to).name)
	c := w.conn(p)
	if !c.up {
		return
	}
	if w.chance(50) {
		w.snap(p, w.between(0, 5*ms))
		return
	}
	held := c.held
	c.held = nil
	for _, b := range held {
		w.send(w.node(p.from), p.to, b)
	}
}

const ms = limiter.Millisecond

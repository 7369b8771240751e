package sim

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// moreDemand has clients send batches, peek, ask for reasons and give admissions back, for a
// span.
func (w *World) moreDemand(span limiter.Tick) {
	w.near.lending.hotDemand(w, span)
	w.near.lending.borrow(w, span)
	x := w.stronger
	if x == nil {
		return
	}
	end := w.now + span
	w.often(end, x.between(0, 100*ms), func() limiter.Tick {
		if live := w.serving(); len(live) > 0 {
			w.askOtherwise(w.asked(), x.one(live))
		}
		return x.between(10*ms, 120*ms)
	})
	w.often(end, x.between(0, 200*ms), func() limiter.Tick {
		if live := w.serving(); len(live) > 0 {
			w.askOnce(w.asked(), x.one(live))
		}
		return x.between(30*ms, 250*ms)
	})
}

// asked returns a key that clients ask about.
func (w *World) asked() *key {
	for {
		if k := w.keys[w.stronger.rng.IntN(len(w.keys))]; !k.form && !k.apart {
			return k
		}
	}
}

func (w *World) askOtherwise(k *key, n *Node) {
	switch what := w.stronger.rng.IntN(10); {
	case what < 3:
		w.batch(n)
	case what < 6:
		w.peek(k, n)
	case what < 9:
		w.explain(k, n)
	case len(k.receipts) > 0:
		w.refund(k, n)
	}
}

// batch has a client ask a node for several checks at once, peeks among them.
func (w *World) batch(n *Node) {
	x := w.stronger
	size := 2 + x.rng.IntN(15)
	charges, answers := make([]arith.Charge, size), make([]limiter.Decision, size)
	var done []func()
	for range size {
		k, cost, c, d := w.asked(), uint64(1+x.rng.IntN(2)), &charges[len(done)], &answers[len(done)]
		if x.chance(20) {
			if s := w.looking(k, n, cost, c, d); s != nil {
				done = append(done, s.peeked)
			}
			continue
		}
		if a := w.asking(k, n, cost, k.second || x.chance(30), c, d); a != nil {
			done = append(done, a.done)
			if x.chance(20) {
				o := &once{id: x.rng.Uint64() | 1, began: w.now, tried: make(map[*key]*tried)}
				a.identify(o)
				w.tryLater(o, k, cost, len(a.keys) == 1, 1, x.between(1*ms, 400*ms))
			}
		}
	}
	charges, answers = charges[:len(done)], answers[:len(done)]
	open, ended := -1, 0
	over := func() {
		if ended == open {
			for _, f := range done {
				f()
			}
		}
	}
	n.do(func() {
		open, _ = n.core.BeginMany(charges, answers, 0, false, func() {
			ended++
			over()
		})
		over()
	})
}

// refundAgain has clients use a receipt more often than once, at several nodes. It has a
// number then, by which its owner knows it again.
func (w *World) refundAgain(r *receipt) {
	x := w.stronger
	if x == nil || x.chance(40) {
		return
	}
	arith.Fields(&r.receipt).Once = x.rng.Uint64() | 1
	again := *r
	for range 1 + x.rng.IntN(2) {
		w.after(x.between(0, limiter.Second), func() {
			if live := w.serving(); len(live) > 0 {
				x.one(live).refund(&again)
			}
		})
	}
}

// look is a peek at a key, or a question for the reasons of a decision.
type look struct {
	n      *Node
	k      *key
	charge *arith.Charge
	answer *limiter.Decision
	cost   uint64
	call   limiter.Tick
	least  int // units that owners and heirs had admitted when it was asked for
	lent   int // that were lent then
}

// looking returns a look at a key, nil if the node has another key by its rules.
func (w *World) looking(k *key, n *Node, cost uint64, c *arith.Charge, d *limiter.Decision) *look {
	if k.at(n) != k {
		return nil
	}
	c.Peek = true
	c.Add(k.key(n, cost))
	return &look{n: n, k: k, charge: c, answer: d, cost: cost, call: w.now, least: k.admitted,
		lent: w.near.lending.lent(w, k)}
}

// peek has a client peek at a key: by a check that charges nothing, or by one of no cost.
func (w *World) peek(k *key, n *Node) {
	cost := uint64(w.stronger.rng.IntN(3))
	s := w.looking(k, n, cost, new(arith.Charge), new(limiter.Decision))
	if s == nil {
		return
	}
	s.charge.Peek = cost > 0
	n.do(func() { n.core.Begin(s.charge, s.answer, 0, s.peeked) })
}

// explain has a client ask for the reasons of a decision.
func (w *World) explain(k *key, n *Node) {
	s := w.looking(k, n, 1, new(arith.Charge), new(limiter.Decision))
	if s == nil {
		return
	}
	n.do(func() {
		n.core.Explain(s.charge, func(all []route.Explained) {
			if n.alive {
				s.noted(s.explained(all))
			}
		})
	})
}

func (s *look) peeked() {
	if s.n.alive {
		s.noted(s.fits(s.answer))
	}
}

// noted fails the run if an answer contradicts itself or another.
func (s *look) noted(err error) {
	if err != nil {
		s.n.w.fail(fmt.Errorf("%s is asked how %s (partition %d) stands: %w", s.n.name, s.k.rule.Name, s.k.part, err))
	}
}

// explained returns an error if the reasons do not fit the decision, or the decision does
// not fit what clients know.
func (s *look) explained(all []route.Explained) error {
	if len(all) != 1 {
		return fmt.Errorf("%d explanations of one key", len(all))
	}
	x := &all[0]
	switch {
	case x.By == 0 && s.n.w.stronger.exact:
		return errors.New("nobody explains, and every change is graceful")
	case x.By == 0:
		return nil
	case x.Mute:
		return errors.New("an explanation without reasons")
	case x.Answer.Source.ByPolicy():
		return fmt.Errorf("explained by %v", x.Answer.Source)
	}
	for i := range x.Limits {
		why, l := x.Limits[i].Arithmetic, x.Answer.Limit(i)
		if !l.Overflow && strings.HasSuffix(why, ": yes") != l.Allowed {
			return fmt.Errorf("allowed %t, because %s", l.Allowed, why)
		}
	}
	return s.fits(&x.Answer)
}

// fits returns an error if a decision that charged nothing contradicts itself, or what
// clients know: it counts units that nobody can have been charged, or, where nothing is lost,
// lacks some that were admitted before.
func (s *look) fits(d *limiter.Decision) error {
	k, w := s.k, s.n.w
	switch {
	case d.Source.ByPolicy() && w.stronger.exact:
		return fmt.Errorf("answered by %v, and every change is graceful", d.Source)
	case d.Source.ByPolicy() || overflows(d):
		return nil
	case arith.Fields(&d.Receipt).Charged != 0:
		return errors.New("a peek is charged")
	}
	all := true
	for i := range d.Len() {
		l := d.Limit(i)
		if all = all && l.Allowed; l.Allowed != (l.Remaining >= max(1, s.cost)) {
			return fmt.Errorf("allowed %t for %d, and %d remain", l.Allowed, max(1, s.cost), l.Remaining)
		}
	}
	if d.Allowed != all {
		return fmt.Errorf("allowed %t, by its limits %t", d.Allowed, all)
	}
	if k.rolled || k.pair != nil || d.Len() != 1 || d.Limit(0).InForce != 0 {
		return nil
	}
	w.stronger.judged++
	used := k.limit - int(d.Limit(0).Remaining)
	most := k.begun - k.spared
	if !w.stronger.exact {
		// Checks that waited may have been charged by two owners.
		most += k.late + k.lost + (k.begun - k.spared - k.admitted - k.lost) + 4
	}
	if w.near.lending.on && w.now-s.call >= leasedFor/3 {
		return nil // a lease may have begun and ended meanwhile
	}
	if used > min(k.limit, max(0, most)+s.lent+w.near.lending.lent(w, k)) {
		return fmt.Errorf("%d of %d are used, and %d were asked for and not denied", used, k.limit, most)
	}
	if !w.stronger.exact {
		return nil
	}
	if least := min(k.limit, s.least) - k.refunded - k.overtook(w)*k.d; k.tried == 0 && used < least {
		return fmt.Errorf("%d of %d are used, and %d were admitted before, of which %d were given back since", used, k.limit,
			s.least, k.refunded)
	}
	k.ops = append(k.ops, op{call: s.call, back: w.now, peek: true, left: int(d.Limit(0).Remaining)})
	return nil
}

package sim

import (
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/lease"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// borrower is a client that is lent units of one key by way of a node. What it says to the node and what it hears may
// be lost, it may end at any step, and its clock runs too fast or too slowly.
type borrower struct {
	w     *World
	n     *Node // that it asks
	k     *key
	held  lease.Holder
	loans map[*lease.Lease]bool // asked for; true: it is to be returned
	pace  limiter.Tick          // how much its clock gains in a second
	lossy bool
	ended bool
}

// maxBorrowers bounds the clients of a run that borrow.
const maxBorrowers = 40

// borrow has a client ask a node for a key as often as a hot key is asked for, now and then.
func (l *lending) borrow(w *World, span limiter.Tick) {
	if !l.clients {
		return
	}
	end := w.now + span
	var begin func()
	begin = func() {
		live := w.serving()
		if w.now >= end || len(l.borrowers) >= maxBorrowers {
			return
		}
		if k := w.keys[w.rng.IntN(len(w.keys))]; len(live) > 0 && !k.form && !k.apart && k.pair == nil {
			b := &borrower{w: w, n: live[w.rng.IntN(len(live))], k: k, loans: make(map[*lease.Lease]bool),
				pace: w.between(-limiter.Millisecond/2, limiter.Millisecond/2), lossy: w.chance(50)}
			l.borrowers = append(l.borrowers, b)
			b.live()
		}
		w.after(w.between(50*ms, 300*ms), begin)
	}
	w.after(w.between(0, 100*ms), begin)
}

// live has the client check for a while, and end in good order or at once.
func (b *borrower) live() {
	w, checks := b.w, 60+b.w.rng.IntN(200)
	every := w.between(ms/4, 2*ms)
	for i := range checks {
		w.after(limiter.Tick(i)*every, b.check)
	}
	over := limiter.Tick(checks) * every
	var tick func()
	tick = func() {
		if b.returnEnded(); !b.ended || len(b.loans) > 0 && !b.dead() {
			w.after(10*ms, tick)
		}
	}
	w.after(10*ms, tick)
	if w.chance(30) { // it crashes: what it has not used is charged
		w.after(w.between(0, over), func() {
			w.near.lending.waste(b.k, b.unused())
			b.ended, b.loans = true, nil
		})
		return
	}
	w.after(over, func() {
		b.held.Close()
		b.ended = true
	})
}

// dead reports whether it has crashed.
func (b *borrower) dead() bool { return b.loans == nil }

// now is the instant by its clocks.
func (b *borrower) now() lease.Instant {
	at := b.w.now + (b.w.now-epoch)*b.pace/limiter.Second
	return lease.Instant{Now: at, At: at}
}

// message brings something to the other side, or loses it.
func (b *borrower) message(f func()) {
	if b.lossy && b.w.chance(15) {
		return
	}
	b.w.after(b.w.between(0, 4*ms), f)
}

// check decides one unit by a lease, or asks the node.
func (b *borrower) check() {
	w, k := b.w, b.k
	if b.ended || !b.n.alive || b.n.paused {
		return
	}
	var charge arith.Charge
	charge.Add(k.key(b.n, 1))
	of, d := charge.Key(0), new(limiter.Decision)
	if span := lease.Span(&charge); span > 0 && b.held.Warm(b.now().Now, of.Hash) {
		done, wish := b.held.Decide(b.now(), of, 2, d)
		if wish.Over != nil {
			b.giveBack(wish.Over)
		}
		if wish.Units > 0 {
			b.ask(of, wish.Units, span)
		}
		if done {
			k.asked, k.begun, k.since, k.admitted = k.asked+1, k.begun+1, k.since+1, k.admitted+1
			w.near.lending.admitted(k, w.now, 1)
			w.near.lending.byClients++
			return
		}
	}
	if a := w.asking(k, b.n, 1, true, new(arith.Charge), d); a != nil {
		b.n.do(func() {
			b.n.core.Begin(a.charge, a.answer, 0, func() {
				a.done()
				if d.Source == limiter.SourceOwner {
					b.held.Heard(of, d)
				}
			})
		})
	}
}

// ask asks for a lease.
func (b *borrower) ask(of *arith.Key, units uint64, span limiter.Tick) {
	l := b.held.Ask(b.now(), of, units, b.w.rng.Uint64()|1, span)
	b.loans[l] = false
	charge, d, heard := new(arith.Charge), new(limiter.Decision), false
	charge.Add(l.Key)
	charge.ID = &arith.Idempotency{ID: l.ID, Life: limiter.Second.Duration(), Hold: (arith.LeaseWait * span).Duration(),
		Keep: true, Lent: true}
	hear := func(known bool) {
		if heard || b.dead() {
			return
		}
		heard = true
		if !known {
			d = new(limiter.Decision)
			d.Refuse()
		}
		lent := known && d.Allowed
		switch used := b.held.Answered(b.now(), l, span, d); {
		case used:
		case lent, !known:
			b.giveBack(l)
		default:
			b.held.Returned(l, true, limiter.Receipt{})
			delete(b.loans, l)
		}
	}
	b.message(func() {
		b.n.do(func() { b.n.core.Begin(charge, d, 0, func() { b.message(func() { hear(true) }) }) })
	})
	b.w.after(2*span, func() { hear(false) }) // nobody has answered
}

// giveBack returns a lease, once.
func (b *borrower) giveBack(l *lease.Lease) {
	if b.dead() {
		return
	}
	key, known := l.Key, false
	key.Cost = b.held.Used(l)
	charge := new(arith.Charge)
	charge.Add(key)
	charge.ID = &arith.Idempotency{ID: l.ID, Life: limiter.Second.Duration()}
	b.loans[l] = true
	b.message(func() {
		b.n.do(func() {
			b.n.core.Amend(charge, limiter.Amend{IgnoreUnknown: true}, func(o route.Outcome) {
				b.message(func() {
					known = o.Amended != nil && (o.Amended.State == limiter.AmendDone || o.Amended.State == limiter.AmendRepeated)
				})
			})
		})
	})
	b.w.after(limiter.Second, func() {
		if !b.dead() {
			b.held.Returned(l, known, limiter.Receipt{})
			delete(b.loans, l)
		}
	})
}

// returnEnded returns what is over.
func (b *borrower) returnEnded() {
	if b.dead() {
		return
	}
	over, _ := b.held.Ended(b.now())
	for _, l := range over {
		b.giveBack(l)
	}
}

// unused returns how many units are lent to the client that it has not used.
func (b *borrower) unused() (units int) {
	if b.dead() {
		return 0
	}
	for _, x := range b.held.List() {
		units += int(x.Units - x.Used)
	}
	return units
}

// lent returns how many units are lent to the client, or may be.
func (b *borrower) lent() (units int) {
	if b.dead() {
		return 0
	}
	for _, x := range b.held.List() {
		units += int(x.Units)
	}
	return units
}

package replica

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Request is a request that waits at a replica. The shell knows the rest of it. Each
// wait ends with one effect: Refuse, Expire or Rerun.
type Request interface {
	// Facts returns what the replica may know and change of the request.
	Facts() *Wait
}

// Wait is what a replica knows of a request that waits.
type Wait struct {
	Charge *arith.Charge
	// Until is the deadline of the request.
	Until limiter.Tick
	// Sent means that another member may have executed it.
	Sent bool
	// Settles means that it is part of a check over several owners, whose asker reports
	// when the reservation ends.
	Settles bool
	// Final means that its asker has no time to begin the check anew.
	Final bool
	// Last means that it must not wait for charges to be settled any more. WaitsUntil is
	// when it stops waiting for that; 0 until it first waits.
	Last       bool
	WaitsUntil limiter.Tick
}

// parked are requests that wait until it is known who owns.
type parked []Request

// take empties the list and returns what it had.
func (p *parked) take() []Request {
	all := *p
	*p = nil
	return all
}

// expire drops the requests whose deadline has passed.
func (p *parked) expire(t *Step) {
	*p = slices.DeleteFunc(*p, func(q Request) bool {
		over := t.Now >= q.Facts().Until
		if over {
			t.end(Expire, q)
		}
		return over
	})
}

// Full reports whether no further request may wait until the owner is known.
func (p *Replica) Full() bool { return len(p.waiting) >= maxParked }

// Park keeps a request until it is known who owns the partition. The replica must not be
// [Replica.Full].
func (p *Replica) Park(t *Step, q Request) {
	p.waiting = append(p.waiting, q)
	p.watch(t)
}

// settleParked handles the parked requests again, once it is known who owns.
func (p *Replica) settleParked(t *Step) {
	if len(p.waiting) == 0 || p.role == peer.Sealed || p.role == peer.Heir && p.claiming.round != nil {
		return
	}
	for _, q := range p.waiting.take() {
		if p.role == peer.Owned {
			t.end(Rerun, q)
		} else {
			t.refuse(q, peer.NotOwner, p.owner)
		}
	}
}

// answerParked refuses the parked requests, because the owner is alive. alive is the
// owner, 0 if unknown.
func (p *Replica) answerParked(t *Step, alive peer.Instance) {
	for _, q := range p.waiting.take() {
		status := peer.NotOwner
		if q.Facts().Sent && alive != 0 {
			status = peer.Alive
		}
		t.refuse(q, status, p.owner)
	}
}

package cluster

import (
	"testing"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// A node may be paused at any point, even in the middle of a tick, between two readings
// of the clock. What it did not hear during the pause proves nothing about others: here
// about its heir, whose silence of 50 ms would release replies.
func TestStandingStillAnywhere(t *testing.T) {
	for n := 1; n <= 40; n++ {
		c, p, h, charge := single(t, limiter.UnreachableLocal)
		own(c, p)
		answered := 0
		for range 2 { // D is 5: the first is answered, the second withheld
			c.Begin(charge, new(limiter.Decision), h.now+20*limiter.Second, func() { answered++ })
		}
		h.standStill = n
		for h.standStill > 0 {
			h.pass(replica.TickEvery)
		}
		if answered != 1 && c.Count(EventRaised) > 0 {
			continue // after so many readings the policy had already decided
		}
		h.pass(40 * limiter.Millisecond)
		if answered != 1 || c.Count(EventLate) != 1 {
			t.Errorf("stood still at look %d: %d of 2 checks are answered, late %d times, want 1 and 1", n, answered,
				c.Count(EventLate))
		}
		h.pass(replica.EaseFor - 100*limiter.Millisecond)
		if answered != 1 {
			t.Errorf("stood still at look %d: %d of 2 checks are answered, and for not yet a second no ping was", n, answered)
		}
		h.pass(160 * limiter.Millisecond)
		if answered != 2 || c.Count(EventRaised) == 0 {
			t.Errorf("stood still at look %d: %d of 2 checks are answered in the end: no ping was answered for a second", n,
				answered)
		}
	}
}

// The heir's acknowledgement of a message sent after the pause shows that this node
// still owns; from then on the heir's silence counts as usual. An earlier
// acknowledgement may have been waiting here.
func TestStoodStillUntilTheHeirsWord(t *testing.T) {
	for _, idle := range []bool{false, true} {
		for _, since := range []bool{false, true} {
			c, p, h, charge := single(t, limiter.UnreachableLocal)
			own(c, p)
			answered := 0
			check := func() {
				c.Begin(charge, new(limiter.Decision), h.now+20*limiter.Second, func() { answered++ })
			}
			word := func() {
				for _, b := range drain(c)[other].Batches {
					c.Deliver(&peer.Frame{From: other, To: self, Acks: []peer.Ack{
						{Partition: b.Partition, Epoch: b.Epoch, Owner: b.Epoch, Appointment: 1, Seq: b.Seq, Ping: b.Ping},
					}})
				}
			}
			check()
			if idle { // without anything to watch, no tick notices the pause
				word()
				for _, m := range []peer.Instance{other, third} {
					c.Deliver(&peer.Frame{From: m, To: self, Got: 1 << 40}) // no member waits for another
				}
				h.pass(100 * limiter.Millisecond)
			}
			h.now += 5 * limiter.Second
			if idle {
				check()
			} else {
				h.pass(replica.TickEvery)
				word() // for what was sent before
				check()
			}
			if since {
				word()
				h.pass(20 * limiter.Millisecond)
				check()
				word()
				check()
			}
			answered = 0
			check()
			if answered != 0 {
				t.Fatalf("idle %v, heir heard since %v: a second check is answered, D is 5, and the first cost 5", idle, since)
			}
			h.pass(80 * limiter.Millisecond)
			if got := answered == 1; got != since {
				t.Errorf("idle %v, heir heard since %v: after 80 ms of silence the policy answers: %v", idle, since, got)
			}
			if late := c.Count(EventLate) == 1; late == idle {
				t.Errorf("idle %v: noticed that it stood still: %v", idle, late)
			}
		}
	}
}

package cluster

import (
	"testing"

	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// receipt returns the receipt of a charge by this node, under an epoch with the given
// counter.
func receipt(counter uint64) limiter.Receipt {
	return arith.NewReceipt(arith.ReceiptFields{Epoch: counter + uint64(self), Charged: 1, Set: 1})
}

// told is the outcome of a reset or refund.
type told struct {
	times int
	route.Outcome
}

func (x *told) done(o route.Outcome) { x.times, x.Outcome = x.times+1, o }

// spread returns a charge with one key for each of the given members, which own the
// partitions. The test key's rule applies to all.
func spread(c *Core, like *arith.Charge, owners ...peer.Instance) *arith.Charge {
	charge := &arith.Charge{}
	used := map[int]bool{table.PartitionOf(like.Key(0)): true}
	for hi := uint64(1); charge.Len() < len(owners); hi += 1 << 50 {
		k := arith.Key{Hash: arith.Hash{Hi: hi, Lo: hi}, Rule: like.Key(0).Rule, Cost: 5, Index: uint8(charge.Len())}
		id := table.PartitionOf(&k)
		if used[id] {
			continue
		}
		used[id] = true
		if c.partitions.byID[id] == nil {
			c.partitions.add(id)
		}
		put(c, c.partitions.byID[id], replica.Fixture{Owner: peer.Epoch{Counter: 1, Instance: owners[charge.Len()]}})
		charge.Add(k)
	}
	return charge
}

// A reset or refund without an answer says so, and whether it may have been executed.
func TestResetsThatNobodyAnswers(t *testing.T) {
	for name, ask := range map[string]func(*Core, *arith.Charge, *told){
		"reset":  func(c *Core, k *arith.Charge, x *told) { c.Reset(k, x.done) },
		"refund": func(c *Core, k *arith.Charge, x *told) { c.Refund(k, receipt(1), x.done) },
	} {
		c, p, h, charge := single(t, limiter.UnreachableLocal)
		var asked told
		ask(c, charge, &asked)
		h.pass(DefaultDeadline + replica.TickEvery)
		if asked != (told{1, route.Outcome{Unanswered: 1, Maybe: 1}}) {
			t.Errorf("a %s that was asked of a silent owner: %+v", name, asked)
		}
		put(c, p, replica.Fixture{}) // no member to ask is known
		var alone told
		ask(c, charge, &alone)
		h.pass(DefaultDeadline + replica.TickEvery)
		if alone != (told{1, route.Outcome{Unanswered: 1}}) {
			t.Errorf("a %s that nobody could be asked for: %+v", name, alone)
		}
		if left := c.calls.Waiting(); left != 0 {
			t.Errorf("%s: %d operations are under way still", name, left)
		}
	}
}

// The heir is asked for a reset if the owner does not answer.
func TestAResetIsAskedOfTheHeir(t *testing.T) {
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	heard(c, p)
	var x told
	c.Reset(charge, x.done)
	if q := drain(c); len(q[third].Refunds) != 1 || len(q[other].Refunds) != 0 {
		t.Fatalf("at first it is asked of %+v", q)
	}
	h.pass(route.SilentAfter + replica.TickEvery)
	q := drain(c)[other].Refunds
	if len(q) != 1 || q[0].Kind != peer.ResetKeys || !q[0].Heir || !q[0].Sent {
		t.Fatalf("the heir of a silent owner is asked %+v", q)
	}
	c.Deliver(&peer.Frame{From: other, To: self, Replies: []peer.Reply{{ID: q[0].ID, Status: peer.Done, Count: 3}}})
	if x != (told{1, route.Outcome{Counters: 3}}) {
		t.Errorf("%+v", x)
	}
}

// An heir that does not know a check's rule is told the rule, and asked again: its rules
// file may be another one. The owner cannot be reached meanwhile.
func TestAnHeirThatNeedsTheRule(t *testing.T) {
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	heard(c, p)
	c.Down(third)
	drain(c)
	c.Begin(charge, new(limiter.Decision), 0, func() {})
	for range 2 {
		h.pass(route.RetryEvery + replica.TickEvery)
		q := drain(c)[other].Checks
		if len(q) != 1 || !q[0].Heir {
			t.Fatalf("the heir is asked %+v", q)
		}
		c.Deliver(&peer.Frame{From: other, To: self, Replies: []peer.Reply{{ID: q[0].ID, Status: peer.NeedRule}}})
	}
}

// An heir that is asked for a reset takes over, as for a check, and executes it.
func TestAnHeirTakesOverForAReset(t *testing.T) {
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	var d limiter.Decision
	if err := c.table.Decide(h.now, charge, &d); err != nil {
		t.Fatal(err)
	}
	e := peer.Epoch{Counter: 2, Instance: third}
	put(c, p, replica.Fixture{Role: peer.Heir, Epoch: e, Owner: e})
	k := charge.Key(0)
	c.Deliver(&peer.Frame{
		From: other, To: self, Rules: []peer.Rule{mesh.Definition(k.Rule)},
		Keys:    []peer.Key{{Hi: k.Hash.Hi, Lo: k.Hash.Lo, Cost: k.Cost}},
		Refunds: []peer.Refund{{ID: 9, Keys: 1, Kind: peer.ResetKeys, Heir: true}},
	})
	if q := drain(c)[other]; len(q.Claims) == 0 || q.Claims[0].Kind != peer.Takeover || len(q.Replies) != 0 {
		t.Fatalf("asked as heir it says %+v", q)
	}
	h.pass(100*limiter.Millisecond + replica.TickEvery)
	if r := drain(c)[other].Replies; len(r) != 0 {
		t.Errorf("without an heir it says %+v", r)
	}
	h.pass(100 * limiter.Millisecond) // no heir answers: the policy does
	if r := drain(c)[other].Replies; len(r) != 1 || r[0].Status != peer.Done || r[0].ID != 9 || r[0].Count != 1 {
		t.Errorf("after the takeover it says %+v", r)
	}
	if n := c.table.Count(int(p.id)); n != 0 {
		t.Errorf("%d counters are left", n)
	}
}

// A refund that a member may have executed is asked of no other.
func TestARefundIsAskedOnce(t *testing.T) {
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	heard(c, p)
	var x told
	c.Refund(charge, receipt(1), x.done)
	drain(c)
	owned(c, p, peer.Epoch{Counter: 2, Instance: other}) // the heir has taken over
	c.Down(third)
	h.pass(DefaultDeadline - replica.TickEvery)
	if q := drain(c)[other].Refunds; len(q) != 0 {
		t.Errorf("the heir is asked too: %+v", q)
	}
	h.pass(2 * replica.TickEvery)
	if x != (told{1, route.Outcome{Unanswered: 1, Maybe: 1}}) {
		t.Errorf("%+v", x)
	}
}

// A refund that was certainly not executed is asked of the next member: the heir of an
// owner that cannot be reached, the owner that another member names, and after a relay
// failed.
func TestARefundGoesOnWhereItWasNotExecuted(t *testing.T) {
	for name, first := range map[string]func(c *Core, id uint64){
		"not the owner": func(c *Core, id uint64) {
			c.Deliver(&peer.Frame{From: third, To: self, Replies: []peer.Reply{
				{ID: id, Status: peer.NotOwner, Owner: peer.Epoch{Counter: 2, Instance: other},
					Partition: c.partitions.parts[0].id},
			}})
		},
		"lost": func(c *Core, id uint64) {
			c.Deliver(&peer.Frame{From: other, To: self, Replies: []peer.Reply{
				{ID: id, Status: peer.Lost, Owner: peer.Epoch{Instance: third}},
			}})
		},
		"out of reach": nil,
	} {
		c, p, h, charge := single(t, limiter.UnreachableLocal)
		heard(c, p)
		if first == nil {
			c.Down(third)
		}
		var x told
		c.Refund(charge, receipt(1), x.done)
		if first != nil {
			first(c, drain(c)[third].Refunds[0].ID)
		}
		h.pass(2 * replica.TickEvery)
		q := drain(c)[other].Refunds
		if len(q) != 1 {
			t.Fatalf("%s: the next is asked %+v", name, q)
		}
		c.Deliver(&peer.Frame{From: other, To: self, Replies: []peer.Reply{{ID: q[0].ID, Status: peer.Done}}})
		if x != (told{1, route.Outcome{}}) {
			t.Errorf("%s: %+v", name, x)
		}
	}
}

// A relay that cannot forward a reset or refund says so. A cancellation has no waiting
// caller and gets no reply.
func TestRelaysSayWhatTheyCannotPassOn(t *testing.T) {
	c, _, _, _ := single(t, limiter.UnreachableLocal)
	c.Down(third)
	c.Deliver(&peer.Frame{From: other, To: third, Refunds: []peer.Refund{{ID: 7, Kind: peer.ResetKeys},
		{Kind: peer.RefundAll}}})
	if r := drain(c)[other].Replies; len(r) != 1 || r[0].ID != 7 || r[0].Status != peer.Lost ||
		r[0].Owner.Instance != third {
		t.Errorf("the asker is told %+v", r)
	}
}

// A charge made when one node owned all keys is void if no node owns all of them now: no
// member is asked until the deadline. A receipt that names nothing is void too.
func TestRefundsThatAreVoid(t *testing.T) {
	c, p, _, like := single(t, limiter.UnreachableLocal)
	own(c, p)
	charge := spread(c, like, third)
	charge.Add(*like.Key(0))
	var x told
	tr := c.begin()
	q := route.Request{Wait: replica.Wait{Charge: charge}, Kind: route.KindRefund, Receipt: receipt(3)}
	if v, _ := c.decider.handle(tr, &q, nil, nil); v != route.Answered {
		t.Errorf("where one of two keys is owned, a refund ends with verdict %d", v)
	}
	tr.end()
	c.Refund(charge, limiter.Receipt{}, x.done)
	if x.times != 1 || x.Unanswered != 0 {
		t.Errorf("a receipt that names nothing: %+v", x)
	}
}

// A reset over several owners reports which did not answer.
func TestAResetThatOneOwnerAnswers(t *testing.T) {
	c, _, h, like := single(t, limiter.UnreachableLocal)
	charge := spread(c, like, third, other, third)
	var x told
	c.Reset(charge, x.done)
	q := drain(c)[third].Refunds
	if len(q) != 1 || q[0].Keys != 2 {
		t.Fatalf("one of the owners is asked %+v", q)
	}
	c.Deliver(&peer.Frame{From: third, To: self, Replies: []peer.Reply{{ID: q[0].ID, Status: peer.Done, Count: 4}}})
	h.pass(DefaultDeadline + replica.TickEvery)
	if x != (told{1, route.Outcome{Counters: 4, Unanswered: 2, Maybe: 2}}) {
		t.Errorf("%+v", x)
	}
}

// resetOf asks a core, as another member, for the reset of a key, and returns the reply.
func resetOf(c *Core, k *arith.Key, heir bool) peer.Reply {
	c.Deliver(&peer.Frame{
		From: other, To: self, Rules: []peer.Rule{mesh.Definition(k.Rule)},
		Keys:    []peer.Key{{Hi: k.Hash.Hi, Lo: k.Hash.Lo, Cost: k.Cost}},
		Refunds: []peer.Refund{{ID: 9, Keys: 1, Kind: peer.ResetKeys, Heir: heir}},
	})
	var out peer.Reply
	for _, r := range drain(c)[other].Replies {
		out = r
	}
	return out
}

// A node that refuses resets of other members refuses them for keys that it holds, and
// names the holder of others. It executes its own.
func TestResetsOfOthersAreRefused(t *testing.T) {
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	c.decider.refuseResets = true
	k := charge.Key(0)
	if r := resetOf(c, k, false); r.Status != peer.NotOwner || r.Owner.Instance != third {
		t.Errorf("of a key of another member it says %+v", r)
	}
	own(c, p)
	if err := c.Check(t.Context(), charge, new(limiter.Decision)); err != nil {
		t.Fatal(err)
	}
	if r := resetOf(c, k, false); r.Status != peer.Forbidden || r.ID != 9 || c.table.Count(int(p.id)) != 1 {
		t.Errorf("of a key of its own it says %+v, and has %d counters", r, c.table.Count(int(p.id)))
	}
	h.pass(60 * limiter.Millisecond) // the charge is sent again
	copies(c, p, h)
	var mine told
	c.Reset(charge, mine.done)
	copies(c, p, h)
	if n := c.table.Count(int(p.id)); mine != (told{1, route.Outcome{Counters: 1}}) || n != 1 {
		t.Errorf("its own reset: %+v, and %d entries are left, want that of its id", mine, n)
	}
	c.decider.refuseResets = false
	if r := resetOf(c, k, false); r.ID != 0 {
		t.Errorf("before its heir has the reset it says %+v", r)
	}
	i := look(p)
	c.Deliver(&peer.Frame{From: other, To: self,
		Acks: []peer.Ack{{Partition: p.id, Epoch: i.Epoch, Seq: i.Seq, Appointment: 1, Owner: i.Epoch}}})
	if r := drain(c)[other].Replies; len(r) != 1 || r[0].Status != peer.Done || r[0].Count != 0 {
		t.Errorf("where it takes them it says %+v", r)
	}
}

// An heir does not take over for a reset that it would refuse. An owner that had just
// handed over refuses the waiting resets once it owns again.
func TestResetsThatWaitAreRefused(t *testing.T) {
	c, p, _, charge := single(t, limiter.UnreachableLocal)
	c.decider.refuseResets = true
	k := charge.Key(0)
	put(c, p, replica.Fixture{Role: peer.Heir, Epoch: look(p).Owner, Owner: look(p).Owner})
	if r := resetOf(c, k, true); r.Status != peer.Forbidden || look(p).Busy {
		t.Errorf("the heir says %+v, with a claim %t", r, look(p).Busy)
	}
	own(c, p)
	putAs(c, p, peer.Sealed)
	if r := resetOf(c, k, false); r.ID != 0 {
		t.Errorf("while it hands over it says %+v", r)
	}
	putAs(c, p, peer.Owned)
	if r := drain(c)[other].Replies; len(r) != 1 || r[0].Status != peer.Forbidden {
		t.Errorf("then it says %+v", r)
	}
}

// A reset over several owners reports which refuse it. A reset that the owner may have
// executed is not reported as refused if only the heir refuses.
func TestAResetThatOneOwnerRefuses(t *testing.T) {
	c, p, h, like := single(t, limiter.UnreachableLocal)
	charge := spread(c, like, third, other, third)
	var x told
	c.Reset(charge, x.done)
	q := drain(c)
	c.Deliver(&peer.Frame{From: third, To: self,
		Replies: []peer.Reply{{ID: q[third].Refunds[0].ID, Status: peer.Forbidden}}})
	c.Deliver(&peer.Frame{From: other, To: self,
		Replies: []peer.Reply{{ID: q[other].Refunds[0].ID, Status: peer.Done, Count: 1}}})
	if x != (told{1, route.Outcome{Counters: 1, Forbidden: 1 | 4}}) {
		t.Errorf("%+v", x)
	}
	heard(c, p)
	x = told{}
	c.Reset(like, x.done)
	drain(c)
	h.pass(route.SilentAfter + replica.TickEvery)
	asked := drain(c)[other].Refunds
	if len(asked) != 1 {
		t.Fatalf("the heir is asked %+v", asked)
	}
	c.Deliver(&peer.Frame{From: other, To: self, Replies: []peer.Reply{{ID: asked[0].ID, Status: peer.Forbidden}}})
	h.pass(DefaultDeadline)
	if x != (told{1, route.Outcome{Unanswered: 1, Maybe: 1}}) {
		t.Errorf("the owner was asked and the heir refuses: %+v", x)
	}
}

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

// A reset that the owner may have executed waits at the heir for the takeover, and is not
// executed then: its asker may have the owner's answer. If not, it asks again.
func TestAResetThatWaitedIsAskedForAgain(t *testing.T) {
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	var d limiter.Decision
	if err := c.table.Decide(h.now, charge, &d); err != nil {
		t.Fatal(err)
	}
	e := peer.Epoch{Counter: 2, Instance: third}
	put(c, p, replica.Fixture{Role: peer.Heir, Epoch: e, Owner: e})
	k := charge.Key(0)
	ask := func(heir bool) []peer.Reply {
		c.Deliver(&peer.Frame{
			From: other, To: self, Rules: []peer.Rule{mesh.Definition(k.Rule)},
			Keys:    []peer.Key{{Hi: k.Hash.Hi, Lo: k.Hash.Lo, Cost: k.Cost}},
			Refunds: []peer.Refund{{ID: 9, Keys: 1, Kind: peer.ResetKeys, Heir: heir, Sent: true}},
		})
		out := drain(c)[other].Replies
		h.pass(100*limiter.Millisecond + replica.TickEvery)
		return append(out, drain(c)[other].Replies...)
	}
	r := ask(true)
	if len(r) != 1 || r[0].Status != peer.NotOwner || r[0].ID != 9 || r[0].Owner.Instance != self ||
		look(p).Role != peer.Owned {
		t.Fatalf("after the takeover it says %+v", r)
	}
	if n := c.table.Count(int(p.id)); n != 1 {
		t.Fatalf("%d counters are left, want 1", n)
	}
	r = ask(false)
	h.pass(100 * limiter.Millisecond) // no heir answers: the policy does
	if r = append(r, drain(c)[other].Replies...); len(r) != 1 || r[0].Status != peer.Done || r[0].Count != 1 {
		t.Errorf("asked again it says %+v", r)
	}
}

// The heir took over while the owner was silent. It is asked for the reset as owner, unless
// the former owner has answered meanwhile.
func TestAResetIsAskedOfTheNextOwner(t *testing.T) {
	for _, answered := range []bool{false, true} {
		c, p, h, charge := single(t, limiter.UnreachableLocal)
		heard(c, p)
		var x told
		c.Reset(charge, x.done)
		first := drain(c)[third].Refunds
		h.pass(route.SilentAfter + replica.TickEvery)
		second := drain(c)[other].Refunds
		if len(first) != 1 || len(second) != 1 {
			t.Fatalf("asked the owner %+v and its heir %+v", first, second)
		}
		if answered {
			c.Deliver(&peer.Frame{From: third, To: self, Replies: []peer.Reply{{ID: first[0].ID, Status: peer.Done, Count: 1}}})
		}
		next := peer.Epoch{Counter: 2, Instance: other}
		c.Deliver(&peer.Frame{From: other, To: self,
			Replies: []peer.Reply{{ID: second[0].ID, Status: peer.NotOwner, Partition: p.id, Owner: next}}})
		h.pass(route.RetryEvery + replica.TickEvery)
		again := drain(c)[other].Refunds
		if answered {
			if len(again) != 0 || x != (told{1, route.Outcome{Counters: 1}}) {
				t.Errorf("the owner has answered, %+v, and the next is asked %+v", x, again)
			}
			continue
		}
		if len(again) != 1 || again[0].Heir || !again[0].Sent || again[0].Kind != peer.ResetKeys {
			t.Fatalf("the next owner is asked %+v", again)
		}
		c.Deliver(&peer.Frame{From: other, To: self, Replies: []peer.Reply{{ID: again[0].ID, Status: peer.Done, Count: 3}}})
		if x != (told{1, route.Outcome{Counters: 3}}) {
			t.Errorf("%+v", x)
		}
	}
}

// The heir takes over the partitions of a reset one after another. The reset is asked again
// once the last of them has the new owner.
func TestAResetWaitsUntilOneOwnerHasItsKeys(t *testing.T) {
	c, _, h, like := single(t, limiter.UnreachableLocal)
	charge := spread(c, like, third, third)
	first, second := c.partitions.byID[table.PartitionOf(charge.Key(0))],
		c.partitions.byID[table.PartitionOf(charge.Key(1))]
	heard(c, first)
	var x told
	c.Reset(charge, x.done)
	h.pass(route.SilentAfter + replica.TickEvery)
	asked := drain(c)[other].Refunds
	if len(asked) != 1 || !asked[0].Heir {
		t.Fatalf("the heir is asked %+v", asked)
	}
	next := peer.Epoch{Counter: 2, Instance: other}
	c.Deliver(&peer.Frame{From: other, To: self,
		Replies: []peer.Reply{{ID: asked[0].ID, Status: peer.NotOwner, Partition: first.id, Owner: next}}})
	h.pass(4 * route.RetryEvery)
	if early := drain(c)[other].Refunds; len(early) != 0 {
		t.Fatalf("it is asked %+v while another member owns a key", early)
	}
	owned(c, second, next)
	h.pass(4 * route.RetryEvery)
	again := drain(c)[other].Refunds
	if len(again) != 1 || again[0].Heir || again[0].Keys != 2 {
		t.Fatalf("the owner of both is asked %+v", again)
	}
	c.Deliver(&peer.Frame{From: other, To: self, Replies: []peer.Reply{{ID: again[0].ID, Status: peer.Done, Count: 2}}})
	if x != (told{1, route.Outcome{Counters: 2}}) {
		t.Errorf("%+v", x)
	}
}

// An owner has executed a reset that its heir lacks, and the heir takes over. The owner forgets the
// id of the reset before it pushes its state. Else the heir would have the id and not the reset, and
// would answer that it is done.
func TestAResetThatIsLostIsNotKnown(t *testing.T) {
	for _, copied := range []bool{false, true} {
		x := newIdentified(t, limiter.ReplicationOff)
		x.try(third, 1, false)
		x.acknowledge()
		drain(x.c)
		k := x.key
		k.Cost = 1
		x.c.Deliver(&peer.Frame{From: third, To: self, Rules: []peer.Rule{x.rule}, Keys: []peer.Key{k},
			Refunds: []peer.Refund{
				{ID: 5, Keys: 1, Kind: peer.ResetKeys, ChargeID: 99},
			}})
		want := peer.NotOwner
		if copied {
			x.acknowledge()
			want = peer.Done
		}
		owned(x.c, x.p, peer.Epoch{Counter: look(x.p).Epoch.Counter + 1, Instance: other})
		out := drain(x.c)
		if r := out[third].Replies; len(r) != 1 || r[0].Status != want {
			t.Errorf("copied %t: the asker is told %+v", copied, r)
		}
		var pushed []uint32 // keys: the id of the check, and that of the reset
		for _, b := range out[other].Batches {
			if b.Kind == peer.Push {
				pushed = append(pushed, b.Keys)
			}
		}
		if want := map[bool]uint32{false: 1, true: 2}[copied]; len(pushed) != 1 || pushed[0] != want {
			t.Errorf("copied %t: pushed are %v keys, want %d", copied, pushed, want)
		}
	}
}

// A new owner has a copy of a reset over two keys for one of them only. It resets the other.
func TestAResetThatIsKnownInPart(t *testing.T) {
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	own(c, p)
	k := charge.Key(0)
	second := arith.Key{Hash: arith.Hash{Hi: k.Hash.Hi + 1, Lo: k.Hash.Lo}, Rule: k.Rule, Cost: k.Cost}
	spend := func() {
		t.Helper()
		for _, key := range []arith.Key{*k, second} {
			var (
				one arith.Charge
				d   limiter.Decision
			)
			one.Add(key)
			if err := c.table.Decide(h.now, &one, &d); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
		}
	}
	reset := func(n uint64, keys ...arith.Key) (forgotten uint32) {
		t.Helper()
		f := &peer.Frame{From: third, To: self, Rules: []peer.Rule{mesh.Definition(k.Rule)}, Refunds: []peer.Refund{
			{ID: n, Keys: uint8(len(keys)), Kind: peer.ResetKeys, ChargeID: 99},
		}}
		for _, key := range keys {
			f.Keys = append(f.Keys, peer.Key{Hi: key.Hash.Hi, Lo: key.Hash.Lo, Cost: 1})
		}
		c.Deliver(f)
		h.pass(100 * limiter.Millisecond) // no heir answers: the policy does
		r := drain(c)[third].Replies
		if len(r) != 1 || r[0].Status != peer.Done {
			t.Fatalf("it is answered by %+v", r)
		}
		return r[0].Count
	}
	spend()
	if n := reset(5, second); n != 1 {
		t.Fatalf("premise: %d counters are forgotten, want 1", n)
	}
	spend()
	if n := reset(6, *k, second); n != 1 {
		t.Errorf("%d counters are forgotten, want that of the key that was not reset", n)
	}
	if n := reset(7, *k, second); n != 0 {
		t.Errorf("again %d counters are forgotten", n)
	}
}

package cluster

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// limited returns an owner, with an heir, of a key whose rule has these limits and does
// not wait for copies.
func limited(t *testing.T, specs ...limiter.Spec) (*Core, *partition, *byHand, *arith.Charge) {
	t.Helper()
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	r := charge.Key(0).Rule
	r.Replication, r.Limits = limiter.ReplicationOff, nil
	for _, s := range specs {
		l, err := limiter.NewLimit(s)
		if err != nil {
			t.Fatal(err)
		}
		r.Limits = append(r.Limits, l)
	}
	own(c, p)
	return c, p, h, charge
}

// copies returns how many keys the heir is sent within the time of a batch, and
// acknowledges them.
func copies(c *Core, p *partition, h *byHand) (keys int) {
	h.pass(20 * limiter.Millisecond)
	for _, b := range drain(c)[other].Batches {
		keys += int(b.Keys)
		c.Deliver(&peer.Frame{From: other, To: self, Acks: []peer.Ack{
			{Partition: p.id, Epoch: look(p).Epoch, Ping: b.Ping, Seq: b.Seq, Appointment: 1, Owner: look(p).Epoch},
		}})
	}
	return keys
}

// A denial changes nothing, so nothing is copied for it: not for a full limit, not
// during a block, and not for a cost that can never be allowed. What a denial does
// change, by count_rejected or by beginning a block, is copied to the heir once.
func TestDenialsAreCopiedWhereTheyWrite(t *testing.T) {
	day := func(limit int64, block time.Duration, count limiter.CountRejected) limiter.Spec {
		return limiter.Spec{Name: string(rune('a' + limit%26)), Algorithm: limiter.FixedWindow, Limit: limit,
			Window: 24 * time.Hour, Block: block, CountRejected: count}
	}
	const none = limiter.CountNone
	for name, step := range map[string]struct {
		limits []limiter.Spec
		cost   uint64
		peek   bool
		want   [3]int // keys copied after the first denial, the second, and the one after the block
	}{
		"no room":               {limits: []limiter.Spec{day(10, 0, none)}, cost: 5},
		"no room in one of two": {limits: []limiter.Spec{day(10, 0, none), day(1000, 0, none)}, cost: 5},
		"never":                 {limits: []limiter.Spec{day(10, time.Hour, none)}, cost: 11},
		"a block":               {limits: []limiter.Spec{day(10, time.Hour, none)}, cost: 5, want: [3]int{1, 0, 1}},
		"a block by one of two": {limits: []limiter.Spec{day(10, time.Hour, none), day(1000, 0, none)}, cost: 5,
			want: [3]int{1, 0, 1}},
		"a peek begins no block": {limits: []limiter.Spec{day(10, time.Hour, none)}, cost: 5, peek: true},
		"all is counted":         {limits: []limiter.Spec{day(10, 0, limiter.CountAll)}, cost: 5, want: [3]int{1, 1, 1}},
		"what has room is counted": {limits: []limiter.Spec{day(10, 0, none), day(1000, 0, limiter.CountRoom)}, cost: 5,
			want: [3]int{1, 1, 1}},
		"nothing has room": {limits: []limiter.Spec{day(10, 0, limiter.CountRoom)}, cost: 5},
		"all is counted in the block": {limits: []limiter.Spec{day(10, time.Hour, limiter.CountAll)}, cost: 5,
			want: [3]int{1, 1, 1}},
	} {
		c, p, h, charge := limited(t, step.limits...)
		charge.Key(0).Cost = 10
		check := func(allowed bool) {
			t.Helper()
			d := new(limiter.Decision)
			if err := c.Check(t.Context(), charge, d); err != nil || d.Allowed != allowed || d.Source != limiter.SourceOwner {
				t.Fatalf("%s: %v, %+v, want allowed %t by the owner", name, err, d, allowed)
			}
		}
		check(true)
		if got := copies(c, p, h); got != 1 {
			t.Errorf("%s: %d keys are copied after an admission", name, got)
		}
		charge.Key(0).Cost, charge.Peek = step.cost, step.peek
		for i, want := range step.want {
			if i == 2 {
				h.now += 2 * limiter.Hour
			}
			check(false)
			if got := copies(c, p, h); got != want {
				t.Errorf("%s: %d keys are copied after denial %d, want %d", name, got, i+1, want)
			}
		}
	}
}

// A check of many keys has more limits than its receipt has room for. The limits beyond
// are copied too if the check was charged.
func TestLimitsBeyondTheReceiptAreCopied(t *testing.T) {
	var d limiter.Decision
	d.Grow(5 * limiter.MaxLimits)
	d.Allowed = true
	for i := range d.Len() {
		*d.Limit(i) = limiter.LimitDecision{Allowed: true}
		arith.NoteCharged(&d, i, 1)
	}
	if changed, admitted := changes(&d, 4*limiter.MaxLimits, limiter.MaxLimits); !changed || !admitted {
		t.Errorf("charged: changed %t, admitted %t", changed, admitted)
	}
	d.Allowed, d.Receipt = false, limiter.Receipt{}
	if changed, _ := changes(&d, 4*limiter.MaxLimits, limiter.MaxLimits); changed {
		t.Error("denied, and charged nothing: changed")
	}
}

// The heir of an owner that is gone continues a block that a denial began there.
func TestABlockOutlivesItsOwner(t *testing.T) {
	for _, limit := range []int64{10, limiter.MaxUnits} {
		for _, a := range []limiter.Algorithm{limiter.FixedWindow, limiter.SlidingWindow, limiter.GCRA} {
			blockOutlivesOwner(t, limiter.Spec{Algorithm: a, Limit: limit, Window: time.Minute, Block: time.Hour})
		}
	}
}

func blockOutlivesOwner(t *testing.T, blocks limiter.Spec) {
	t.Helper()
	c, p, h, charge := limited(t, blocks)
	charge.Key(0).Cost = uint64(blocks.Limit)
	// The same partition at another member, for which the third member plays the role of
	// this one.
	heir, q, clock, like := single(t, limiter.UnreachableLocal)
	like.Key(0).Rule = charge.Key(0).Rule
	first := peer.Epoch{Counter: 3, Instance: third}
	put(heir, q, replica.Fixture{Role: peer.Copy, Epoch: first, Owner: first})
	for i, what := range []string{"the admission", "the block"} {
		if err := c.Check(t.Context(), charge, new(limiter.Decision)); err != nil {
			t.Fatal(err)
		}
		h.pass(20 * limiter.Millisecond)
		sent := 0
		for f := c.Take(other, true); f != nil; f = c.Take(other, true) {
			for i := range f.Batches {
				b := &f.Batches[i]
				sent += int(b.Keys)
				c.Deliver(&peer.Frame{From: other, To: self, Acks: []peer.Ack{
					{Partition: p.id, Epoch: look(p).Epoch, Ping: b.Ping, Seq: b.Seq, Appointment: 1, Owner: look(p).Epoch},
				}})
				b.Epoch.Instance, b.BaseEpoch.Instance = third, third
			}
			f.From, f.To = third, self
			heir.Deliver(f)
		}
		if got := look(q); sent != 1 || got.Role != peer.Heir || got.Seq != uint64(i+1) {
			t.Fatalf("%d keys are sent of %s, and the heir is %v with batch %d", sent, what, got.Role, got.Seq)
		}
	}
	second := peer.Epoch{Counter: 4, Instance: self}
	put(heir, q, replica.Fixture{Role: peer.Owned, Epoch: second, Owner: second, TookOver: true})
	clock.now += 2 * limiter.Minute // the window is over, the block is not
	d := new(limiter.Decision)
	if err := heir.Check(t.Context(), like, d); err != nil || d.Allowed || !d.Limit(0).Blocked ||
		d.Source != limiter.SourceHeir {
		t.Errorf("%s of %d, after the takeover: %v, %+v", blocks.Algorithm, blocks.Limit, err, d)
	}
}

// A reset, with its id, and a refund are copied to the heir.
func TestResetsAndRefundsAreCopied(t *testing.T) {
	keys := map[string]int{"reset": 2, "refund": 1}
	for name, ask := range map[string]func(*Core, *arith.Charge, limiter.Receipt, *told){
		"reset":  func(c *Core, k *arith.Charge, _ limiter.Receipt, x *told) { c.Reset(k, x.done) },
		"refund": func(c *Core, k *arith.Charge, r limiter.Receipt, x *told) { c.Refund(k, r, x.done) },
	} {
		c, p, h, charge := limited(t, limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 10, Window: 24 * time.Hour})
		d := new(limiter.Decision)
		if err := c.Check(t.Context(), charge, d); err != nil || !d.Allowed {
			t.Fatalf("%v, %+v", err, d)
		}
		if got := copies(c, p, h); got != 1 {
			t.Fatalf("%d keys are copied after an admission", got)
		}
		var x told
		if ask(c, charge, d.Receipt, &x); name == "reset" && x.times != 0 {
			t.Errorf("it is told of a reset that its heir does not have: %+v", x)
		}
		if got := copies(c, p, h); got != keys[name] {
			t.Errorf("%d keys are copied after a %s", got, name)
		}
		if x.times != 1 || x.Unanswered != 0 {
			t.Errorf("a %s: %+v", name, x)
		}
	}
}

// A request that waited until after its deadline is not run: its asker has an answer.
func TestAnExpiredRequestIsNotRun(t *testing.T) {
	for left, charged := range map[limiter.Tick]int{1: 1, 0: 0} {
		c, p, h, charge := single(t, limiter.UnreachableLocal)
		own(c, p)
		q := &route.Request{Wait: replica.Wait{Charge: charge, Until: h.now + left}, Kind: route.KindCheck,
			Reply: route.ReplyTo{To: other, ID: 1}}
		step := c.begin()
		c.decider.rerun(step, q)
		step.end()
		if got := look(p).Keys; got != charged {
			t.Errorf("%d us before the deadline: %d keys are charged, want %d", left, got, charged)
		}
	}
}

package cluster

import (
	"fmt"
	"math"
	"testing"

	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// Input of a faulty member, or of a stranger: each number has a bound.

// known is everything that a partition holds, as text.
func (p *partition) known() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprint(p.r, p.r.Info(0).Keys)
}

// impossible returns frames of other for the partition of a key. Each has one impossible
// value.
func impossible(p *partition, k *arith.Key) map[string]*peer.Frame {
	id, high := p.id, peer.Epoch{Counter: math.MaxUint64, Instance: other}
	fine := peer.Epoch{Counter: 2, Instance: other}
	lim := []peer.Limit{mesh.Definition(k.Rule).Limits[0]}
	entry := peer.Entry{Hi: k.Hash.Hi, Lo: k.Hash.Lo ^ arith.NameID(k.Rule.Limits[0]), First: true, Time: -1, A: 1}
	elsewhere := entry
	elsewhere.Lo = ^entry.Lo
	batch := func(b peer.Batch, of ...peer.Entry) *peer.Frame {
		b.Partition, b.Keys = cmpOr(b.Partition, id), uint32(len(of))
		return &peer.Frame{Batches: []peer.Batch{b}, Entries: of, Limits: lim}
	}
	whole := peer.Batch{Kind: peer.Snapshot, Epoch: fine, Seq: 1, First: true, Last: true}
	with := func(change func(*peer.Batch)) peer.Batch { b := whole; change(&b); return b }
	claim := func(c peer.Claim) *peer.Frame {
		c.Partition = cmpOr(c.Partition, id)
		return &peer.Frame{Claims: []peer.Claim{c}}
	}
	answer := func(a peer.Answer) *peer.Frame { a.Partition = id; return &peer.Frame{Answers: []peer.Answer{a}} }
	ack := func(a peer.Ack) *peer.Frame { a.Partition = id; return &peer.Frame{Acks: []peer.Ack{a}} }
	return map[string]*peer.Frame{
		"an announcement's epoch":     {Announces: []peer.Announce{{Partition: id, Epoch: high}}},
		"an announcement's partition": {Announces: []peer.Announce{{Partition: math.MaxUint16, Epoch: fine}}},
		"an epoch of nobody":          {Announces: []peer.Announce{{Partition: id, Epoch: peer.Epoch{Counter: 7}}}},
		"a claim's counter":           claim(peer.Claim{Kind: peer.Renew, Counter: math.MaxUint64, For: other}),
		"a claim's kind":              claim(peer.Claim{Kind: 200, Counter: 3, For: other}),
		"a claim's partition":         claim(peer.Claim{Partition: math.MaxUint16, Kind: peer.Renew, Counter: 3}),
		"an answer's owner":           answer(peer.Answer{Owner: high}),
		"an answer's epoch":           answer(peer.Answer{Epoch: high}),
		"an answer's top":             answer(peer.Answer{Top: math.MaxUint64}),
		"an answer's grant":           answer(peer.Answer{Grant: math.MaxUint64}),
		"an answer's sequence":        answer(peer.Answer{Role: peer.Copy, Seq: math.MaxUint64}),
		"an answer's role":            answer(peer.Answer{Role: 99}),
		"a revocation's epoch":        {Revokes: []peer.Revoke{{Partition: id, Epoch: high, Appointment: 1}}},
		"a revocation of another's": {Revokes: []peer.Revoke{{Partition: id,
			Epoch: peer.Epoch{Counter: 1, Instance: third}, Appointment: math.MaxUint32}}},
		"a batch's epoch":               batch(with(func(b *peer.Batch) { b.Epoch = high }), entry),
		"a batch of another's epoch":    batch(with(func(b *peer.Batch) { b.Epoch.Instance = third }), entry),
		"a batch's sequence":            batch(with(func(b *peer.Batch) { b.Seq = math.MaxUint64 }), entry),
		"a batch's kind":                batch(with(func(b *peer.Batch) { b.Kind = 9 }), entry),
		"a batch's partition":           batch(with(func(b *peer.Batch) { b.Partition = math.MaxUint16 }), entry),
		"an entry of another partition": batch(whole, elsewhere),
		"an acknowledgement's owner":    ack(peer.Ack{Owner: high}),
		"an acknowledgement's top":      ack(peer.Ack{Top: math.MaxUint64}),
		"an acknowledgement's status":   ack(peer.Ack{Status: 99, Owner: fine, Top: 5}),
		"an acknowledgement's sequence": ack(peer.Ack{Seq: math.MaxUint64, Top: 5}),
		"a check of no key":             {Checks: []peer.Check{{ID: 1}}},
		"a refund of no key":            {Refunds: []peer.Refund{{ID: 1}}},
		"a limit that does not exist":   {Batches: []peer.Batch{whole}, Limits: []peer.Limit{{Limit: -1, Algorithm: 77}}},
		"more keys than there are":      {Checks: []peer.Check{{ID: 1, Keys: 200}}},
		"more entries than there are": {Batches: []peer.Batch{with(func(b *peer.Batch) {
			b.Keys, b.Partition = 70_000, id
		})}},
		"more results than there are":     {Replies: []peer.Reply{{ID: 1, Results: math.MaxUint16, Idle: true}}},
		"names of keys that are too long": {Names: []peer.Name{{Hi: 1, Text: string(make([]byte, 1<<20))}}},
	}
}

func cmpOr(a, b uint16) uint16 {
	if a != 0 {
		return a
	}
	return b
}

// Impossible input neither changes what a node holds of a partition nor makes it keep
// anything.
func TestWhatCannotBeIsNotTakenIn(t *testing.T) {
	_, p, _, charge := single(t, limiter.UnreachableLocal)
	for what := range impossible(p, charge.Key(0)) {
		c, p, _, charge := single(t, limiter.UnreachableLocal)
		before := p.known()
		f := impossible(p, charge.Key(0))[what]
		f.From, f.To = other, self
		c.Deliver(f)
		if now := p.known(); now != before {
			t.Errorf("%s: was %s, is %s", what, before, now)
		}
		if s := c.Summary(); s.Pending != 0 || s.Staged != 0 || s.Links != 2 {
			t.Errorf("%s: it keeps %+v", what, s)
		}
	}
}

// A counter with contradictory parts, such as an endless block, is not kept.
func TestACounterThatCannotBe(t *testing.T) {
	for what, e := range map[string]peer.Entry{
		"a block for ever":        {Until: math.MaxInt64, A: 1},
		"an instant to come":      {Time: math.MaxInt64, A: 1},
		"an instant long ago":     {Time: math.MinInt64, A: 1},
		"words that it needs not": {Time: -1, A: 1, Words: []uint64{1, 2, 3}},
	} {
		c, p, _, charge := single(t, limiter.UnreachableLocal)
		k := charge.Key(0)
		e.Hi, e.Lo, e.First = k.Hash.Hi, k.Hash.Lo^arith.NameID(k.Rule.Limits[0]), true
		c.Deliver(&peer.Frame{
			From: third, To: self, Limits: []peer.Limit{mesh.Definition(k.Rule).Limits[0]}, Entries: []peer.Entry{e},
			Batches: []peer.Batch{{Partition: p.id, Kind: peer.Snapshot, Epoch: look(p).Owner, Seq: 1, First: true, Last: true,
				Keys: 1}},
		})
		if n := c.table.Count(int(p.id)); n != 0 || look(p).Role != peer.Nothing {
			t.Errorf("%s: %d counters are kept, as %v", what, n, look(p).Role)
		}
	}
}

// An answer with impossible spans is ignored, and the check continues.
func TestRepliesThatCannotBe(t *testing.T) {
	for what, r := range map[string]peer.Result{
		"a wait below zero":      {RetryAfter: -1},
		"a wait for ever":        {RetryAfter: math.MaxInt64},
		"a recovery below zero":  {ResetAfter: math.MinInt64},
		"a recovery that is far": {ResetAfter: math.MaxInt64, Allowed: true},
	} {
		c, _, h, charge := single(t, limiter.UnreachableLocal)
		var d limiter.Decision
		done := false
		c.Begin(charge, &d, 0, func() { done = true })
		asked := drain(c)[third].Checks
		if len(asked) != 1 {
			t.Fatalf("asked %+v", asked)
		}
		c.Deliver(&peer.Frame{From: third, To: self, Replies: []peer.Reply{{ID: asked[0].ID, Results: 1}},
			Results: []peer.Result{r}})
		if done {
			t.Errorf("%s: is taken for an answer: %+v", what, d.Limit(0))
		}
		h.pass(2 * DefaultDeadline)
		if !done || d.Source < limiter.SourceFallbackOpen {
			t.Errorf("%s: at the deadline %v by %v", what, done, d.Source)
		}
	}
}

// begun delivers the beginning of a snapshot that never ends.
func beginSnapshot(c *Core, p *partition, k *arith.Key, first bool, base uint64) {
	c.Deliver(&peer.Frame{
		From: third, To: self, Limits: []peer.Limit{mesh.Definition(k.Rule).Limits[0]},
		Entries: []peer.Entry{{Hi: k.Hash.Hi, Lo: k.Hash.Lo ^ arith.NameID(k.Rule.Limits[0]), First: true, Time: -1, A: 1}},
		Batches: []peer.Batch{{Partition: p.id, Kind: peer.Snapshot, Epoch: look(p).Owner, Base: base, Seq: 9, First: first,
			Keys: 1}},
	})
}

// A snapshot that never ends takes bounded memory, and is dropped after a while.
func TestSnapshotsThatNeverEnd(t *testing.T) {
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	beginSnapshot(c, p, charge.Key(0), true, 0)
	one := c.Summary().Staged
	for i := range 9 {
		beginSnapshot(c, p, charge.Key(0), false, uint64(i+1))
	}
	if n := c.Summary().Staged; one <= 0 || n != 10*one {
		t.Fatalf("%d bytes are collected, after one part %d", n, one)
	}
	h.pass(5 * limiter.Second / 2)
	beginSnapshot(c, p, charge.Key(0), false, 10) // it continues, slowly
	h.pass(5 * limiter.Second / 2)
	if n := c.Summary().Staged; n != 11*one {
		t.Errorf("%d bytes are left of a snapshot that goes on", n)
	}
	h.pass(5 * limiter.Second)
	if n := c.Summary().Staged; n != 0 {
		t.Errorf("%d bytes are left", n)
	}
	c.staged.Store(replica.MaxStaged)
	beginSnapshot(c, p, charge.Key(0), true, 0)
	if n := c.Summary().Staged; n != replica.MaxStaged {
		t.Errorf("at the bound %d bytes are collected", n-replica.MaxStaged)
	}
}

// Requests of other members that wait here are bounded over all partitions, and do not
// hold up the node's own.
func TestWhatWaitsForOthersIsBounded(t *testing.T) {
	c, p, h, charge := single(t, limiter.UnreachableLocal)
	k := charge.Key(0)
	ask := func(id uint64) []peer.Reply {
		c.Deliver(&peer.Frame{
			From: other, To: self, Rules: []peer.Rule{mesh.Definition(k.Rule)},
			Keys:   []peer.Key{{Hi: k.Hash.Hi, Lo: k.Hash.Lo, Cost: k.Cost}},
			Checks: []peer.Check{{ID: id, Keys: 1, Wait: 1_000_000}},
		})
		return drain(c)[other].Replies
	}
	own(c, p)
	if r := ask(1); len(r) != 1 { // 5 of the 5 that may be unacknowledged
		t.Fatalf("the first check is answered %+v", r)
	}
	if r := ask(2); len(r) != 0 || c.decider.pending.Load() != 1 {
		t.Fatalf("beyond D it is answered %+v, and %d wait", r, c.decider.pending.Load())
	}
	c.decider.pending.Add(maxPending - 1)
	if r := ask(3); len(r) != 1 || r[0].Status != peer.Overloaded {
		t.Errorf("at the bound a check is answered %+v", r)
	}
	c.decider.pending.Add(1 - maxPending)
	h.pass(2 * limiter.Second) // a policy, or the end of its wait
	if n := c.decider.pending.Load(); n != 0 {
		t.Errorf("%d wait in the end", n)
	}
	putAs(c, p, peer.Sealed)
	drain(c)
	c.decider.pending.Store(maxPending)
	if r := ask(4); len(r) != 1 || r[0].Status != peer.Overloaded || look(p).Parked != 0 {
		t.Errorf("at the bound a check that would be parked is answered %+v", r)
	}
	c.Begin(charge, new(limiter.Decision), 0, func() {})
	if look(p).Parked != 1 || c.decider.pending.Load() != maxPending {
		t.Errorf("%d of this node's own are parked", look(p).Parked)
	}
	c.decider.pending.Store(0)
	if ask(5); c.decider.pending.Load() != 1 || look(p).Parked != 2 {
		t.Errorf("%d are parked, %d pending", look(p).Parked, c.decider.pending.Load())
	}
	h.pass(2 * limiter.Second)
	if n := c.decider.pending.Load(); n != 0 || look(p).Parked != 0 {
		t.Errorf("%d are parked and %d pending in the end", look(p).Parked, n)
	}
}

// Refunds and resets of keys without counters copy nothing to the heir.
func TestInventedKeysAreNotCopied(t *testing.T) {
	c, p, _, charge := single(t, limiter.UnreachableLocal)
	own(c, p)
	k := *charge.Key(0)
	var d limiter.Decision
	if err := c.Check(t.Context(), charge, &d); err != nil || look(p).Changed != 1 {
		t.Fatalf("%v; %d keys are to be copied", err, look(p).Changed)
	}
	for i := range 100 {
		for _, q := range []peer.Refund{
			{Keys: 1, Kind: peer.ResetKeys},
			{Keys: 1, Receipt: peer.Receipt{Epoch: peer.Epoch{Counter: arith.Fields(&d.Receipt).Epoch}, Charged: 1,
				Set: arith.Fields(&d.Receipt).Set}},
		} {
			c.Deliver(&peer.Frame{
				From: other, To: self, Rules: []peer.Rule{mesh.Definition(k.Rule)},
				Keys:    []peer.Key{{Hi: k.Hash.Hi + uint64(i) + 1, Lo: k.Hash.Lo, Cost: k.Cost}},
				Refunds: []peer.Refund{q},
			})
		}
	}
	var gone []peer.Entry
	for i := range 100 {
		gone = append(gone, peer.Entry{Hi: k.Hash.Hi + uint64(i) + 1, First: true, Gone: true})
	}
	c.Deliver(&peer.Frame{From: other, To: self, Entries: gone, Batches: []peer.Batch{
		{Partition: p.id, Kind: peer.Push, Epoch: peer.Epoch{Counter: 1, Instance: other}, First: true, Last: true,
			Keys: 100},
	}})
	if n := look(p).Changed; n != 1 {
		t.Errorf("%d keys are to be copied, and one is here", n)
	}
	if id := table.PartitionOf(&k); id != int(p.id) {
		t.Fatal("the keys are of another partition")
	}
}

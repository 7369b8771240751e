package cluster

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

const batch = 1000 // checks

// BenchmarkOwnerAndHeir is what checks cost an owner of all partitions and its heir, with new ids and without: in
// batches, each followed by a tick. Metrics are nanoseconds of the processor for a check: of the owner's
// decision, of its ticks, which export, of the heir's intake, and of the acknowledgements. The codec and the network
// are left out.
func BenchmarkOwnerAndHeir(b *testing.B) {
	for _, ids := range []bool{false, true} {
		b.Run(fmt.Sprintf("ids=%t", ids), func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			p := pair(b)
			for range 250 { // until ids end as fast as they come
				p.round(b, ids)
			}
			p.spent = [4]time.Duration{}
			n := 0
			for b.Loop() {
				if n++; n%batch == 0 {
					p.round(b, ids)
				}
			}
			has, copied := p.owner.table.Stats(), p.heir.table.Stats()
			most := has.IDs * 9 / 10
			if ids != (has.IDs > 0) || copied.IDs < most || int64(copied.Keys) < most+int64(len(p.hashes))*9/10 {
				b.Fatalf("premise: the owner has %d counters and %d ids, its heir %d and %d", has.Keys, has.IDs, copied.Keys,
					copied.IDs)
			}
			total := time.Duration(0)
			for i, what := range []string{"decide-ns", "tick-ns", "heir-ns", "acks-ns"} {
				b.ReportMetric(float64(p.spent[i])/float64(n), what)
				total += p.spent[i]
			}
			b.ReportMetric(float64(total)/float64(n), "cpu-ns")
		})
	}
}

// ownerAndHeir are two cores with one clock, the first of which owns all available partitions.
type ownerAndHeir struct {
	owner, heir *Core
	h           *byHand
	rule        *limiter.Rule
	hashes      []arith.Hash
	rng         *rand.Rand
	charges     []arith.Charge
	ids         []arith.Idempotency
	answers     []limiter.Decision
	spent       [4]time.Duration
	at          time.Duration
}

func pair(b *testing.B) *ownerAndHeir {
	b.Helper()
	l, err := limiter.NewLimit(limiter.Spec{Limit: 1 << 40, Window: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	p := &ownerAndHeir{h: &byHand{now: 1_800_000_000 * limiter.Second}, rng: rand.New(rand.NewPCG(1, 7)),
		rule: &limiter.Rule{Name: "r", Limits: []*limiter.Limit{l}}, hashes: make([]arith.Hash, 100_000),
		charges: make([]arith.Charge, batch), ids: make([]arith.Idempotency, batch),
		answers: make([]limiter.Decision, batch)}
	for i := range p.hashes {
		p.hashes[i] = arith.Hash{Hi: p.rng.Uint64(), Lo: p.rng.Uint64()}
	}
	members := []peer.Member{
		{Name: "a", Instance: self, State: peer.Active, Wire: peer.LeaseWire},
		{Name: "b", Instance: other, State: peer.Active, Wire: peer.LeaseWire},
	}
	e := peer.Epoch{Counter: 3, Instance: self}
	var cores [2]*Core
	for i := range cores {
		c := New(Config{
			Self: members[i], Table: table.New(table.Config{}), Fallback: table.New(table.Config{}), Scheduler: p.h,
			Network: p.h, Rand: rand.New(rand.NewPCG(1, 1)), Rule: func(string) *limiter.Rule { return p.rule },
		})
		c.SetView(view.New(members[i].Instance, members, p.h, 2, 2))
		cores[i] = c
	}
	p.owner, p.heir = cores[0], cores[1]
	for id := range table.Partitions {
		put(p.heir, p.heir.partitions.byID[id], replica.Fixture{Role: peer.Heir, Epoch: e, Owner: e, Heir: other})
		put(p.owner, p.owner.partitions.byID[id], replica.Fixture{Role: peer.Owned, Epoch: e, Owner: e, Heir: other})
	}
	p.owner.Up(other)
	p.heir.Up(self)
	return p
}

// lap adds the time since the last one.
func (p *ownerAndHeir) lap(b *testing.B, to int) {
	b.Helper()
	const thread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	if err := syscall.Getrusage(thread, &u); err != nil {
		b.Fatal(err)
	}
	at := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	if to >= 0 {
		p.spent[to] += at - p.at
	}
	p.at = at
}

// round decides a batch and copies it.
func (p *ownerAndHeir) round(b *testing.B, ids bool) {
	b.Helper()
	for i := range p.charges {
		c := &p.charges[i]
		c.Clear()
		c.Add(arith.Key{Hash: p.hashes[p.rng.IntN(len(p.hashes))], Rule: p.rule, Cost: 1})
		if c.ID = nil; ids {
			p.ids[i] = arith.Idempotency{ID: p.rng.Uint64(), Life: time.Second}
			c.ID = &p.ids[i]
		}
	}
	p.lap(b, -1)
	if open, _ := p.owner.BeginMany(p.charges, p.answers, 0, false, func() {}); open != 0 {
		b.Fatalf("%d checks wait", open)
	}
	p.lap(b, 0)
	p.h.pass(replica.TickEvery)
	p.lap(b, 1)
	carry(p.owner, p.heir, other)
	p.lap(b, 2)
	carry(p.heir, p.owner, self)
	p.lap(b, 3)
}

// carry delivers the frames of one core for another.
func carry(from, to *Core, i peer.Instance) {
	for f := from.Take(i, true); f != nil; f = from.Take(i, true) {
		to.Deliver(f)
		from.Release(f)
	}
}

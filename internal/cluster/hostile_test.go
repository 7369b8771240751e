package cluster

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// inflated returns a frame of other with a counter of a key, by the limit that it claims and so many times what that
// limit can hold.
func inflated(p *partition, k *arith.Key, b peer.Batch, l *limiter.Limit, times uint64) *peer.Frame {
	s := new(arith.State)
	s.Roll(l, nil, 1000*limiter.Second)
	s.Overdraw(l, nil, 1000*limiter.Second, times*l.Capacity())
	s.Export(l, nil, 1000*limiter.Second)
	b.Partition, b.First, b.Last, b.Keys, b.Seq = p.id, true, true, 1, 1
	return &peer.Frame{
		From: b.Epoch.Instance, To: self, Batches: []peer.Batch{b},
		Limits: []peer.Limit{mesh.Definition(&limiter.Rule{Limits: []*limiter.Limit{l}}).Limits[0]},
		Entries: []peer.Entry{{
			Hi: k.Hash.Hi, Lo: k.Hash.Lo ^ arith.NameID(l), First: true,
			Time: int64(s.Time), Until: int64(s.Until), A: s.A, B: s.B,
		}},
	}
}

// A counter with a thousand times what its limit can hold, pushed or copied, denies its user for as long as
// what is believed takes to leak. By a limit that its sender has invented it denies no longer than the rule's can.
func TestInflatedCountersEnd(t *testing.T) {
	burst := limiter.Spec{Algorithm: limiter.GCRA, Name: "burst", Limit: 100, Window: 5 * time.Second}
	made := func(s limiter.Spec) *limiter.Limit {
		l, err := limiter.NewLimit(s)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	const day = 24*time.Hour + 5*time.Second // what settlements can make of it
	real := made(burst)
	other := burst
	other.Limit, other.Window = 1<<40, 400*24*time.Hour
	for what, c := range map[string]struct {
		kind  peer.BatchKind
		l     *limiter.Limit
		times uint64
		want  time.Duration
	}{
		"a push":                      {peer.Push, real, 1000, 10 * time.Second},
		"a push by an invented limit": {peer.Push, made(other), 1, day},
		"a copy":                      {peer.Snapshot, real, 1 << 20, day},
		"a copy by an invented limit": {peer.Snapshot, made(other), 1, day},
		"a push of what it can hold":  {peer.Push, real, 1, 5 * time.Second},
		"a copy of what was settled":  {peer.Snapshot, real, 10, 50 * time.Second},
	} {
		core, p, h, _ := single(t, limiter.UnreachableLocal)
		rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{real}}
		charge := new(arith.Charge)
		charge.Add(arith.Key{Hash: arith.Hash{Hi: 1, Lo: 2}, Rule: rule, Cost: 100})
		if c.kind == peer.Push {
			own(core, p)
			core.Deliver(inflated(p, charge.Key(0), peer.Batch{Kind: c.kind, Epoch: peer.Epoch{Counter: 2, Instance: third}},
				c.l, c.times))
		} else {
			core.Deliver(inflated(p, charge.Key(0), peer.Batch{Kind: c.kind, Epoch: look(p).Owner}, c.l, c.times))
			own(core, p)
		}
		h.pass(limiter.Second)
		var d limiter.Decision
		done := false
		if core.Begin(charge, &d, 0, func() { done = true }); !done || d.Allowed {
			t.Fatalf("%s: decided %v, allowed %v", what, done, d.Allowed)
		}
		if wait := d.RetryAfter; wait > c.want || wait < c.want-2*time.Second {
			t.Errorf("%s denies for %v more, want %v", what, wait, c.want)
		}
	}
}

// A member is not told its own instance under another name: what it told on would be its own word of itself.
func TestNobodyHasAnothersInstance(t *testing.T) {
	c, _, _, _ := limited(t, limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 10, Window: time.Hour})
	for name, of := range map[string]peer.Instance{"ghost": self, "dead": 77} {
		c.Deliver(&peer.Frame{From: other, To: self, Known: []peer.Known{
			{Name: c.View().Member(other).Name, Instance: other}, {Name: name, Instance: of},
		}})
		if told := c.registry.Counts(name) || c.registry.Told() > 0; told != (of != self) {
			t.Errorf("%s is heard of: %v", name, told)
		}
	}
}

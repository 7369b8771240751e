package replica

import (
	"slices"
	"testing"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// counting is a store that says how many ids have come.
type counting struct {
	Store
	came uint64
}

func (s *counting) ExportIDs(int, uint64, limiter.Tick, func(table.ID)) uint64 { return s.came }

func (*counting) Import(int, limiter.Tick, []table.Entry, table.ImportMode) error { return nil }

// A batch has the ids that came since the one that its receiver has: again if that is not acknowledged, and none that
// every copy has. With too many of them no check with an id is decided.
func TestNewIDsOfBatches(t *testing.T) {
	l := newLab()
	node := l.node(self)
	store := &counting{Store: node.Store, came: 100}
	node.Store = store
	p := New(node, 7)
	tn := l.turn(view.New(self, members(self, other), seats{0, 1}, 2, 2))
	e := peer.Epoch{Counter: 4, Instance: self}
	p.Begin(tn, Fixture{Role: peer.Owned, Epoch: e, Owner: e})
	own := p.own
	own.heir = &target{to: other, begun: true, whole: true, sent: p.seq, acked: p.seq}
	was := p.seq
	charge := func(n int) {
		for range n {
			store.came++
			own.Charged(tn, &arith.Key{Cost: 1, Rule: &limiter.Rule{Replication: limiter.ReplicationOff}},
				&arith.Idempotency{ID: 1}, true, 1)
		}
		own.cut(own.held)
	}
	after := func() (all []uint64) {
		for seq := was; seq <= p.seq; seq++ {
			all = append(all, own.ids.after(seq))
		}
		return all
	}
	for range 3 {
		charge(2)
	}
	if got, want := after(), []uint64{100, 102, 104, table.NoIDs}; !slices.Equal(got, want) {
		t.Errorf("after each batch come those after %v, want %v", got, want)
	}
	own.heir.acked = was + 1
	own.forgetCopied()
	if got, want := after(), []uint64{102, 102, 104, table.NoIDs}; !slices.Equal(got, want) || own.ids.charges() != 4 {
		t.Errorf("once one is there, %v, want %v; %d charges", got, want, own.ids.charges())
	}
	own.heir.acked = p.seq
	own.forgetCopied()
	was = p.seq
	charge(1)
	if got, want := after(), []uint64{106, table.NoIDs}; !slices.Equal(got, want) || own.ids.charges() != 1 {
		t.Errorf("once all are there, %v, want %v; %d charges", got, want, own.ids.charges())
	}
	if own.Behind() {
		t.Error("one id is too many")
	}
	if charge(maxChanged); !own.Behind() {
		t.Errorf("%d ids are not too many", own.ids.charges())
	}
}

// What the state of a fenced owner brings is sent as changed keys, and not again with the next id that comes.
func TestPushedIDsAreSentOnce(t *testing.T) {
	l := newLab()
	node := l.node(self)
	store := &counting{Store: node.Store, came: 100}
	node.Store = store
	p := New(node, 7)
	tn := l.turn(view.New(self, members(self, other, third), seats{0, 1}, 3, 3))
	e := peer.Epoch{Counter: 4, Instance: self}
	p.Begin(tn, Fixture{Role: peer.Owned, Epoch: e, Owner: e})
	own := p.own
	own.heir = &target{to: other, begun: true, whole: true, sent: p.seq, acked: p.seq}
	store.came += 50 // with the push
	key := Entries{Hi: 9, List: []table.Entry{{Hi: 9}}}
	p.onPush(tn, third, &peer.Batch{Partition: p.id, Kind: peer.Push, Epoch: peer.Epoch{Counter: 3, Instance: third},
		First: true, Last: true}, []Entries{key})
	own.cut(own.held)
	if after := own.ids.after(p.seq - 1); after != table.NoIDs {
		t.Errorf("the batch of the push has the ids after %d, want none", after)
	}
	own.heir.sent, own.heir.acked = p.seq, p.seq
	own.forgetCopied()
	store.came++
	own.Charged(tn, &arith.Key{Cost: 1, Rule: &limiter.Rule{Replication: limiter.ReplicationOff}},
		&arith.Idempotency{ID: 1}, true, 1)
	own.cut(own.held)
	if after := own.ids.after(p.seq - 1); after != 150 {
		t.Errorf("the next batch has the ids after %d, want 150", after)
	}
}

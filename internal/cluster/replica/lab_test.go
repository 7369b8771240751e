package replica

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

const (
	self  peer.Instance = 0xa
	other peer.Instance = 0xb
	third peer.Instance = 0xc
)

// lab is the surroundings of one replica: everything that a node would tell it.
type lab struct {
	now       limiter.Tick
	table     *table.Table
	down      []peer.Instance // not connected
	forgotten []peer.Instance // left or forgotten
	told      int
	left      map[peer.Instance]limiter.Tick
	snapshots map[peer.Instance]int // under way
	pings     uint32
	rand      *rand.Rand
}

func newLab() *lab {
	return &lab{
		now: 1_800_000_000 * limiter.Second, table: table.New(table.Config{}), rand: rand.New(rand.NewPCG(1, 1)),
		left: map[peer.Instance]limiter.Tick{}, snapshots: map[peer.Instance]int{},
	}
}

func (l *lab) Reachable(i peer.Instance) bool { return !slices.Contains(l.down, i) }

func (l *lab) Patience(_ peer.Instance, span limiter.Tick) limiter.Tick { return span }
func (l *lab) Measured(peer.Instance, limiter.Tick)                     {}
func (l *lab) LeftView(i peer.Instance) limiter.Tick                    { return l.left[i] }
func (l *lab) Counts(i peer.Instance) bool                              { return !slices.Contains(l.forgotten, i) }
func (l *lab) Told() int                                                { return l.told }
func (l *lab) Nearby(v *view.View) (near []peer.Instance, all bool) {
	return nil, v.Known == len(v.Members)
}
func (l *lab) Stretched(span limiter.Tick) limiter.Tick { return span }
func (l *lab) Awake() (since limiter.Tick, ping uint32) { return 0, 0 }
func (l *lab) LastPing() uint32                         { return l.pings }
func (l *lab) EndSnapshot(to peer.Instance, _ int)      { l.snapshots[to]-- }
func (l *lab) BeginSnapshot(to peer.Instance, _ int) bool {
	l.snapshots[to]++
	return true
}
func (l *lab) NextPing() uint32 { l.pings++; return l.pings }

// node returns the surroundings as a replica gets them.
func (l *lab) node(self peer.Instance) *Node {
	return &Node{
		Self: self, Store: l.table, Peers: l, Pace: l, Staged: new(atomic.Int64), Prepared: new(atomic.Int64),
		Random: func(below limiter.Tick) limiter.Tick { return limiter.Tick(l.rand.Int64N(int64(below))) },
	}
}

// seats is a ring: the first member owns everything, and the second is its successor.
type seats struct{ owner, successor int }

func (s seats) Owner(int) int     { return s.owner }
func (s seats) Successor(int) int { return s.successor }

// members returns active members named a, b, c and so on.
func members(of ...peer.Instance) []peer.Member {
	var out []peer.Member
	for _, i := range of {
		out = append(out, peer.Member{Name: string(rune('a' + i - self)), Instance: i, State: peer.Active})
	}
	return out
}

// turn returns the inputs of a step of the node self.
func (l *lab) turn(v *view.View) *Step {
	return &Step{Now: l.now, At: l.now, View: v, State: peer.Active}
}

// closedOwner returns the replica of a closed partition that this node owns under the
// counter 4, with other as its heir, and a turn for it.
func closedOwner(t *testing.T) (*lab, *Replica, *Step) {
	t.Helper()
	l := newLab()
	p := New(l.node(self), table.Partitions+7)
	tn := l.turn(view.New(self, members(self, other, third), seats{0, 1}, 3, 3))
	e := peer.Epoch{Counter: 4, Instance: self}
	p.Begin(tn, Fixture{Role: peer.Owned, Epoch: e, Owner: e, Heir: other})
	return l, p, tn
}

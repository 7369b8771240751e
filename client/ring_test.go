package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/transport"
)

// member is a node of a cluster behind a server, which notes what it is asked.
type member struct {
	*weir.Node
	*server
	name string

	mu    sync.Mutex
	asked map[string]int // by user
}

func (m *member) CheckBatchInto(ctx context.Context, rs []limiter.Request, ds []limiter.Decision) error {
	m.mu.Lock()
	for i := range rs {
		m.asked[rs[i].User]++
	}
	m.mu.Unlock()
	return m.Node.CheckBatchInto(ctx, rs, ds)
}

// Extend notes for whom it is asked.
func (m *member) Extend(ctx context.Context, r limiter.Request) (limiter.Amended, error) {
	m.mu.Lock()
	m.asked[r.User]++
	m.mu.Unlock()
	return m.Node.Extend(ctx, r)
}

// forget forgets what was asked for, and returns it.
func (m *member) forget() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.asked
	m.asked = map[string]int{}
	return out
}

// View implements [transport.Ring].
func (m *member) View() uint64 {
	if p := m.Node.Cluster().Placement(); p != nil {
		return p.View
	}
	return 0
}

// Placement implements [transport.Ring].
func (m *member) Placement() *weirv1.RingResponse {
	p := m.Node.Cluster().Placement()
	if p == nil {
		return nil
	}
	out := &weirv1.RingResponse{View: p.View, Rules: p.Rules, Seeds: p.Seeds}
	for _, o := range p.Owners {
		out.Owners = append(out.Owners, uint32(o))
	}
	for _, m := range p.Members {
		out.Members = append(out.Members, &weirv1.RingMember{Name: m.Name, GrpcAddr: m.GRPCAddr})
	}
	return out
}

// leave ends a member in good order, as node serve does.
func (m *member) leave(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	if err := m.Cluster().HandOver(ctx); err != nil {
		tb.Error(err)
	}
	m.stop()
	if err := m.Cluster().Leave(ctx); err != nil {
		tb.Error(err)
	}
}

// newCluster starts members that see each other and have settled.
func newCluster(t testing.TB, n int, rules string, share bool) []*member {
	t.Helper()
	if raceDetector {
		t.Skip("several nodes and two cores: long under the race detector; make wire runs it")
	}
	var all []*member
	var join []string
	for i := range n {
		m := &member{name: fmt.Sprint("node-", i+1), asked: map[string]int{}}
		l := listen(t, "")
		addr := l.Addr().String()
		var err error
		m.Node, err = weir.Open(t.Context(), weir.Config{
			Rules: []byte(rules), ClusterName: t.Name(), Secret: []byte("a secret"),
			Cluster: &cluster.Config{
				Name: m.name, PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0", Join: join, GRPCAddr: addr,
				Deadline: 5 * time.Second,
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := m.Node.Close(); err != nil && !errors.Is(err, weir.ErrClosed) {
				t.Error(err)
			}
		})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		m.server = serve(t, m, addr, func(o *transport.Options) {
			o.AllowRefunds = true
			if share {
				o.Ring = m
			}
		})
		all = append(all, m)
		for _, info := range all[0].Cluster().Members() {
			if info.Self {
				join = []string{info.Address}
			}
		}
	}
	eventually(t, "all are settled and see the same", func() bool { return settled(all, n) })
	return all
}

// settled reports whether members see the same members and hold the partitions that
// they should.
func settled(all []*member, n int) bool {
	for _, m := range all {
		s, _ := m.Cluster().Stats()
		p := m.Node.Cluster().Placement()
		if s.Members["active"] != n || s.Unsettled != 0 || m.Ready() != nil || p == nil ||
			p.View != all[0].Node.Cluster().Placement().View {
			return false
		}
	}
	return true
}

// users are asked for.
const users = 60

// askAll asks for each user some times, one by one and in a batch, and adds what was
// allowed.
func askAll(t *testing.T, c *client.Client, allowed *[users]atomic.Int64) {
	t.Helper()
	rs, ds := make([]limiter.Request, users), make([]limiter.Decision, users)
	for u := range users {
		rs[u] = *request(fmt.Sprint("user-", u))
		var d limiter.Decision
		if err := c.CheckInto(t.Context(), &rs[u], &d); err != nil ||
			d.Source != limiter.SourceOwner && d.Source != limiter.SourceHeir {
			t.Errorf("user %d: %v, by %v", u, err, d.Source)
		}
		if d.Allowed {
			allowed[u].Add(1)
		}
	}
	if err := c.CheckBatchInto(t.Context(), rs, ds); err != nil {
		t.Error(err)
	}
	for u := range ds {
		if ds[u].Allowed {
			allowed[u].Add(1)
		}
	}
}

// A client that knows one member learns the others, and sends each check directly to
// the owner of its counter and to no other member. It also learns when a member leaves.
// Meanwhile no check fails and every counter admits exactly its limit.
func TestAsksOwners(t *testing.T) {
	all := newCluster(t, 3, hour, true)
	c := open(t, client.Config{Addrs: []string{all[0].addr}, Timeout: long})
	var allowed [users]atomic.Int64
	askAll(t, c, &allowed)
	eventually(t, "the ring is known, and all members are up", func() bool {
		s := c.Stats()
		return s.View == all[0].View() && s.Up == 3
	})
	for _, m := range all {
		m.forget()
	}
	askAll(t, c, &allowed)
	for u := range users { // what is asked about reservations goes to the owner, too
		r := *request(fmt.Sprint("user-", u))
		r.ID, r.Hold = "7", time.Minute
		if a, err := c.Extend(t.Context(), r); err != nil || a.State != limiter.AmendUnknown {
			t.Error(a, err)
		}
	}
	owned := 0
	for _, m := range all {
		asked := m.forget()
		if len(asked) == 0 {
			t.Errorf("%s is not asked", m.name)
		}
		for user, n := range asked {
			if n != 3 {
				t.Errorf("%s is asked for %s %d times, and others the other times", m.name, user, n)
			}
			if e, err := m.Explain(t.Context(), *request(user)); err != nil || e.Limits[0].Owner != m.name {
				t.Errorf("%s is asked for %s, and does not own it: %+v, %v", m.name, user, e, err)
			}
			owned++
		}
	}
	if owned != users {
		t.Errorf("%d users were asked for, of %d", owned, users)
	}
	left := make(chan struct{})
	go func() {
		defer close(left)
		all[2].leave(t)
	}()
	for done := false; !done; {
		askAll(t, c, &allowed)
		select {
		case <-left:
			done = true
		default:
		}
	}
	eventually(t, "the others have settled", func() bool { return settled(all[:2], 2) })
	eventually(t, "that is known", func() bool {
		askAll(t, c, &allowed)
		s := c.Stats()
		return s.View == all[0].View() && s.Up == 2 && s.Nodes == 2
	})
	for range 55 { // so that each is exhausted
		askAll(t, c, &allowed)
	}
	for u := range allowed {
		if n := allowed[u].Load(); n != 100 {
			t.Errorf("user %d was allowed %d times", u, n)
		}
	}
}

// A client with a wrong owner still gets answers, and an invalid ring does no harm.
func TestWrongRing(t *testing.T) {
	all := newCluster(t, 2, hour, false)
	right := all[0].Placement()
	right.Members[0].GrpcAddr, right.Members[1].GrpcAddr = all[1].addr, all[0].addr // each for the other
	few := &weirv1.RingResponse{View: 5, Owners: make([]uint32, 3)}
	beyond := &weirv1.RingResponse{View: 5, Owners: append([]uint32{7}, make([]uint32, 1020)...)}
	rules := &weirv1.RingResponse{View: 5, Owners: make([]uint32, 1021), Rules: []byte("version: 7")}
	seeds := &weirv1.RingResponse{View: 5, Owners: make([]uint32, 1021), Rules: right.Rules, Seeds: []byte("short")}
	away := &weirv1.RingResponse{
		View: 5, Owners: make([]uint32, 1021), Rules: right.Rules, Seeds: right.Seeds,
		Members: []*weirv1.RingMember{{Name: "away", GrpcAddr: "127.0.0.1:1"}, {Name: "silent"},
			{Name: "bad", GrpcAddr: "x"}},
	}
	for i := range away.Owners {
		away.Owners[i] = uint32(i%3 + 1)
	}
	for name, c := range map[string]struct {
		tells *weirv1.RingResponse
		known bool
	}{
		"owners swapped": {right, true}, "few partitions": {few, false}, "owner of none": {beyond, false},
		"other rules": {rules, false}, "other seeds": {seeds, false}, "members away": {away, true},
	} {
		s := serve(t, all[0], "", func(o *transport.Options) { o.Ring = told{c.tells} })
		asker := open(t, client.Config{Addrs: []string{s.addr}, Timeout: long})
		eventually(t, name+" was learned, or refused", func() bool {
			s := asker.Stats()
			return c.known && s.View == c.tells.View || !c.known && s.RingError != nil
		})
		if name == "owners swapped" {
			eventually(t, "both are up", func() bool { return asker.Stats().Up >= 2 })
		}
		var d limiter.Decision
		for u := range 10 {
			if err := asker.CheckInto(t.Context(), request(fmt.Sprint(name, u)), &d); err != nil ||
				d.Source != limiter.SourceOwner || d.Limit(0).Remaining != 99 {
				t.Errorf("%s: %v, %+v", name, err, &d)
			}
		}
	}
	ignores := open(t, client.Config{Addrs: []string{all[0].addr}, Timeout: long, IgnoreRing: true})
	var d limiter.Decision
	if err := ignores.CheckInto(t.Context(), request("ada"), &d); err != nil || ignores.Stats().View != 0 {
		t.Error(err)
	}
}

// told is a ring defined by a test.
type told struct{ response *weirv1.RingResponse }

func (t told) View() uint64                    { return t.response.View }
func (t told) Placement() *weirv1.RingResponse { return t.response }

package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// lending is a rule that lends: so many a day for each user.
const lending = `
version: 1
rules:
  - {name: all, key: [rule, user], leases: auto, limits: [{limit: 20000, window: 24h, algorithm: fixed_window}]}
`

// Clients that borrow admit a limit to the unit, and ask for few of the checks. What they have not used they return.
func TestLeasesAdmitTheLimit(t *testing.T) {
	all := newCluster(t, 3, lending, true)
	const clients, limit = 3, 20000
	var cs []*client.Client
	for i := range clients {
		c := open(t, client.Config{Addrs: []string{all[i].addr}, Timeout: long, Leases: true})
		eventually(t, "a client knows the ring", func() bool {
			if _, err := c.Peek(t.Context(), *request("ada")); err != nil {
				t.Fatal(err)
			}
			return c.Stats().View != 0
		})
		cs = append(cs, c)
	}
	for _, m := range all {
		m.forget()
	}
	var allowed, leased atomic.Int64
	var group sync.WaitGroup
	for i := range clients * 4 {
		c := cs[i%clients]
		group.Go(func() {
			var d limiter.Decision
			for range 3000 {
				if err := c.CheckInto(context.Background(), request("ada"), &d); err != nil {
					t.Error(err)
					return
				}
				if d.Allowed {
					allowed.Add(1)
				}
				if d.Source == limiter.SourceLeased {
					leased.Add(1)
				}
			}
		})
	}
	group.Wait()
	var lent, counted uint64
	for _, c := range cs {
		counted += c.Stats().Leased
		lent += c.Stats().Lent
	}
	asked := 0
	for _, m := range all {
		asked += m.forget()["ada"]
	}
	t.Logf("%d of %d checks were allowed, %d by leases; members were asked %d times; %d units are lent", allowed.Load(),
		clients*4*3000, leased.Load(), asked, lent)
	if n := uint64(leased.Load()); n != counted || n == 0 {
		t.Errorf("%d decisions are leased, and the clients count %d", n, counted)
	}
	if n := allowed.Load(); n > limit {
		t.Errorf("%d of %d units were admitted", n, limit)
	}
	for _, c := range cs {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	d, err := all[0].Peek(t.Context(), *request("ada"))
	if err != nil {
		t.Fatal(err)
	}
	if used := limit - int64(d.Limit(0).Remaining); used != allowed.Load() {
		t.Errorf("%d units are counted after all was returned, and %d were admitted", used, allowed.Load())
	}
}

// A check that a lease may decide looks at the wall clock now and then: while a machine was suspended the other clock
// stood still.
func TestLeasesLookAtTheWallClock(t *testing.T) {
	all := newCluster(t, 1, lending, true)
	c := open(t, client.Config{Addrs: []string{all[0].addr}, Timeout: long, Leases: true})
	began := limiter.TickOf(time.Now())
	client.Suspended(c, limiter.Hour)
	eventually(t, "the client sees that its machine was suspended", func() bool { return client.WallClock(c) >= began })
}

// A check of a hot key that a lease decides.
func BenchmarkLeased(b *testing.B) {
	all := newCluster(b, 2, `
version: 1
rules:
  - {name: all, key: [rule, user], leases: auto, limits: [{limit: 1000000000000, window: 24h, algorithm: fixed_window}]}
`, true)
	c := open(b, client.Config{Addrs: []string{all[0].addr}, Timeout: long, Leases: true})
	r, leased := request("ada"), 0
	var d limiter.Decision
	eventually(b, "a check is leased", func() bool {
		for range 64 {
			if err := c.CheckInto(context.Background(), r, &d); err != nil {
				b.Fatal(err)
			}
		}
		return d.Source == limiter.SourceLeased
	})
	b.ReportAllocs()
	for b.Loop() {
		if err := c.CheckInto(context.Background(), r, &d); err != nil {
			b.Fatal(err)
		}
		if d.Source == limiter.SourceLeased {
			leased++
		}
	}
	b.ReportMetric(100*float64(leased)/float64(b.N), "%leased")
}

// lender is a scripted node that lends by two rules, whose leases last 100 and 50 ms.
type lender struct {
	*script
	client *client.Client
	mu     sync.Mutex
	asked  []*weirv1.LeaseRequest
	view   uint64 // of its answers to wishes
	fails  error
	drops  int // so many returns fail
}

const theView = 7

func newLender(t *testing.T) *lender {
	t.Helper()
	return newLenderBeside(t, nil)
}

// newLenderBeside returns a node that owns every other partition; another one, unless it is nil, owns the rest.
func newLenderBeside(t *testing.T, other *script) *lender {
	t.Helper()
	x := &lender{script: &script{}, view: theView}
	x.script.ring = &weirv1.RingResponse{View: theView, Owners: make([]uint32, table.Partitions), Seeds: make([]byte, 80),
		Rules: []byte(`
version: 1
quotas:
  - {name: own, key: [user], leases: auto, limits: [{name: a, limit: 1000000, window: 24h}]}
  - {name: pool, key: [rule], limits: [{name: a, limit: 1000000, window: 24h}]}
rules:
  - {name: any, match: {path: ^/any}, quotas: [{any: [own, pool]}]}
  - {name: slow, match: {path: ^/slow}, key: [user], leases: auto, limits: [{name: a, limit: 1000000, window: 24h}]}
  - {name: fast, match: {path: ^/fast}, key: [user], leases: auto, limits: [{name: a, limit: 1000000, window: 500ms}]}
`)}
	x.script.stream = func(stream weirv1.Limiter_CheckStreamServer) error {
		for {
			m, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			out := allow(m)
			out.View = theView
			if err := stream.Send(out); err != nil {
				return err
			}
		}
	}
	x.script.lease = func(m *weirv1.LeaseRequest) (*weirv1.LeaseResponse, error) {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.drops == 0 || m.GetReturned() == nil {
			x.asked = append(x.asked, m)
		}
		if x.fails != nil {
			return nil, x.fails
		}
		if m.GetReturned() != nil && x.drops > 0 {
			x.drops--
			return nil, status.Error(codes.Unavailable, "not now")
		}
		out := &weirv1.LeaseResponse{Returned: bytes.Repeat([]byte{1}, len(m.GetReturned().GetCosts()))}
		if q := m.GetAsked(); q != nil {
			out.Asked = x.lends(q)
		}
		return out, nil
	}
	addr := playAll(t, x.script).Addr().String()
	if ring := x.script.ring; other != nil {
		other.stream = x.script.stream
		ring.Members = []*weirv1.RingMember{{Name: "a", GrpcAddr: addr},
			{Name: "b", GrpcAddr: playAll(t, other).Addr().String()}}
		for i := range ring.Owners {
			ring.Owners[i] = uint32(1 + i%2)
		}
	}
	x.client = open(t, client.Config{Addrs: []string{addr}, Timeout: long, Leases: true})
	eventually(t, "the client knows the ring", func() bool {
		x.check(t, "/slow", "nobody")
		if s := x.client.Stats(); s.RingError != nil {
			t.Fatal(s.RingError)
		}
		return x.client.Stats().View == theView
	})
	return x
}

// lends is the answer to wishes: each is granted, by the rule of its path.
func (x *lender) lends(q *weirv1.CheckColumns) *weirv1.DecisionColumns {
	out, text := allow(q), q.GetKeys()
	out.View = x.view
	out.Limits = []*weirv1.LimitInfo{{Rule: "slow", Name: "a", Limit: 1e6, Capacity: 1e6, WindowUs: 86400e6},
		{Rule: "fast", Name: "a", Limit: 1e6, Capacity: 1e6, WindowUs: 500e3}}
	every := &weirv1.LimitColumns{}
	out.EveryLimit = every
	for i, n := range q.GetPathLengths() {
		every.Counts = append(every.Counts, 1)
		every.LimitIndexes = append(every.LimitIndexes, map[string]uint32{"/slow": 0, "/fast": 1}[string(text[:n])])
		text = text[n+q.GetUserLengths()[i]:]
		every.Flags = append(every.Flags, byte(weirv1.DecisionFlag_DECISION_FLAG_ALLOWED))
		every.Remaining, every.Costs = append(every.Remaining, 1000), append(every.Costs, uint64(q.GetCosts()[i]))
		every.ResetAfterUs, every.KeyIndexes = append(every.ResetAfterUs, 0), append(every.KeyIndexes, 0)
		every.RetryAfterUs, every.RuleRefs = append(every.RetryAfterUs, 0), append(every.RuleRefs, 0)
	}
	return out
}

// hot checks until a check is leased.
func (x *lender) hot(t *testing.T) {
	t.Helper()
	eventually(t, "a check is leased", func() bool {
		leased := false
		for range 16 {
			leased = x.check(t, "/slow", "ada") || leased
		}
		return leased
	})
}

func (x *lender) check(t *testing.T, path, user string) (leased bool) {
	t.Helper()
	d, err := x.client.Check(t.Context(), limiter.Request{Path: path, User: user})
	if err != nil {
		t.Fatal(err)
	}
	return d.Source == limiter.SourceLeased
}

// heard returns what the node was asked.
func (x *lender) heard() []*weirv1.LeaseRequest {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.asked)
}

// returned returns how many leases have come back, and how many of their units were used.
func (x *lender) returned() (leases int, used int64) {
	for _, m := range x.heard() {
		leases += len(m.GetReturned().GetCosts())
		for _, n := range m.GetReturned().GetCosts() {
			used += n
		}
	}
	return leases, used
}

// The owner waits for each lease three times as long as it lasts, so a message asks for leases that last alike.
func TestLeasesOfOneMessageLastAlike(t *testing.T) {
	x := newLender(t)
	waits := map[int64]bool{}
	eventually(t, "leases of both rules were asked for", func() bool {
		for range 64 { // of one user, since a busy machine asks for no more keys so often that they are hot
			x.check(t, "/slow", "ada")
			x.check(t, "/fast", "ada")
		}
		for _, m := range x.heard() {
			if m.GetAsked() != nil {
				waits[m.GetAsked().GetHoldUs()] = true
			}
		}
		return len(waits) > 1
	})
	for _, m := range x.heard() {
		text := string(m.GetAsked().GetKeys())
		if want := map[bool]int64{true: 300e3, false: 150e3}[strings.Contains(text, "/slow")]; m.GetAsked() != nil &&
			(m.GetAsked().GetHoldUs() != want || strings.Contains(text, "/slow") && strings.Contains(text, "/fast")) {
			t.Errorf("keys %q are asked for, for %d µs", text, m.GetAsked().GetHoldUs())
		}
	}
}

// A lease of another ring, whose rules may be others, is not used, and comes back at once.
func TestLeasesOfAnotherRing(t *testing.T) {
	x := newLender(t)
	x.view = theView + 1
	eventually(t, "a lease comes back", func() bool {
		for range 16 {
			if x.check(t, "/slow", "ada") {
				t.Fatal("it is used")
			}
		}
		n, _ := x.returned()
		return n > 0
	})
	if _, used := x.returned(); used != 0 {
		t.Errorf("%d units are used", used)
	}
}

// A client that may not borrow asks once a minute.
func TestLeasesThatAreRefused(t *testing.T) {
	for name, err := range map[string]error{
		"not allowed": status.Error(codes.PermissionDenied, "no"), "not known": status.Error(codes.Unimplemented, "no"),
	} {
		x := newLender(t)
		x.fails = err
		eventually(t, name+": it asks", func() bool {
			for range 16 {
				x.check(t, "/slow", "ada")
			}
			return len(x.heard()) > 0
		})
		for range 500 {
			if x.check(t, "/slow", "eve") {
				t.Errorf("%s: a lease is used", name)
			}
		}
		if n := len(x.heard()); n != 1 {
			t.Errorf("%s: it asked %d times", name, n)
		}
	}
}

// A node that lends nothing keeps no other from lending: it may be of an earlier version.
func TestOneNodeThatLendsNothing(t *testing.T) {
	var refused atomic.Int64
	x := newLenderBeside(t, &script{lease: func(*weirv1.LeaseRequest) (*weirv1.LeaseResponse, error) {
		refused.Add(1)
		return nil, status.Error(codes.Unimplemented, "no")
	}})
	user := 0
	ask := func() { // for many keys of both
		user++
		for range 64 {
			x.check(t, "/slow", fmt.Sprint(user%64))
		}
	}
	eventually(t, "one refuses", func() bool { ask(); return refused.Load() > 0 })
	before := len(x.heard())
	eventually(t, "the other is asked for more", func() bool { ask(); return len(x.heard()) > before+8 })
	if n := refused.Load(); n != 1 {
		t.Errorf("one that refuses was asked %d times", n)
	}
}

// What is lent comes back when its time is over although nobody checks, and when the client ends.
func TestLeasesComeBack(t *testing.T) {
	for _, ends := range []bool{false, true} {
		x := newLender(t)
		leased := int64(0)
		eventually(t, "a check is leased", func() bool {
			for range 16 {
				if x.check(t, "/slow", "ada") {
					leased++
				}
			}
			return leased > 0
		})
		if ends {
			if err := x.client.Close(); err != nil {
				t.Fatal(err)
			}
			if n, _ := x.returned(); n == 0 {
				t.Error("the client ended, and has returned nothing")
			}
		}
		eventually(t, "all comes back", func() bool {
			n, asked := 0, 0
			for _, m := range x.heard() {
				n += len(m.GetReturned().GetCosts())
				asked += len(m.GetAsked().GetCosts())
			}
			return n == asked
		})
		if _, used := x.returned(); used != leased {
			t.Errorf("%d units were used, and the owner is told of %d", leased, used)
		}
	}
}

// A return that fails is tried once more, at any node.
func TestAReturnIsTriedAgain(t *testing.T) {
	x := newLender(t)
	x.drops = 1
	x.hot(t)
	eventually(t, "the lease comes back", func() bool { n, _ := x.returned(); return n > 0 })
}

// Leases need the ring.
func TestLeasesWithoutTheRing(t *testing.T) {
	if _, err := client.Open(client.Config{Addrs: []string{"127.0.0.1:1"}, Leases: true, IgnoreRing: true}); err == nil ||
		!strings.Contains(err.Error(), "leave out IgnoreRing") {
		t.Errorf("%v", err)
	}
}

// Checks with an id of their own, that reserve, or name limits, are asked for although units of their key are lent;
// those of a batch are leased as others are.
func TestWhatIsNotLeased(t *testing.T) {
	x := newLender(t)
	x.hot(t)
	for name, r := range map[string]limiter.Request{
		"an id":     {Path: "/slow", User: "ada", ID: "1"},
		"a hold":    {Path: "/slow", User: "ada", ID: "2", Hold: time.Second},
		"a peek":    {Path: "/slow", User: "ada", Cost: limiter.Units(0)},
		"a big one": {Path: "/slow", User: "ada", Cost: limiter.Units(500000)},
	} {
		if d, err := x.client.Check(t.Context(), r); err != nil || d.Source == limiter.SourceLeased {
			t.Errorf("%s: %v by %v", name, err, d.Source)
		}
	}
	eventually(t, "a batch is leased", func() bool {
		ds, err := x.client.CheckBatch(t.Context(), slices.Repeat([]limiter.Request{{Path: "/slow", User: "ada"}}, 16))
		if err != nil {
			t.Fatal(err)
		}
		last := ds[len(ds)-1]
		return last.Source == limiter.SourceLeased && last.Rule == "slow" && arith.Fields(&last.Receipt).Charged == 0
	})
}

// Nodes lend nothing by a rule with alternatives, so nothing is asked for, however hot its key is.
func TestNothingIsAskedForByAlternatives(t *testing.T) {
	x := newLender(t)
	eventually(t, "a check of another key as hot is leased", func() bool {
		leased := false
		for range 16 {
			x.check(t, "/any", "ada")
			leased = x.check(t, "/slow", "ada") || leased
		}
		return leased
	})
	for _, m := range x.heard() {
		if text := string(m.GetAsked().GetKeys()); strings.Contains(text, "/any") {
			t.Errorf("units of %q are asked for", text)
		}
	}
}

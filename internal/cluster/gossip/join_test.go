package gossip

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// wall separates nodes from each other. While it is up, packets across it are lost, and
// dialling across it times out.
type wall struct {
	up   atomic.Bool
	mu   sync.Mutex
	side map[string]int // of each address
}

func (w *wall) put(addr string, side int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.side[addr] = side
}

func (w *wall) between(side int, addr string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.up.Load() && w.side[addr] != side
}

// walled is a transport on one side of a wall.
type walled struct {
	memberlist.NodeAwareTransport
	wall *wall
	side int
}

func (t *walled) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	if t.wall.between(t.side, a.Addr) {
		return time.Now(), nil
	}
	return t.NodeAwareTransport.WriteToAddress(b, a)
}

func (t *walled) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	if t.wall.between(t.side, a.Addr) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("the wall is up")}
	}
	return t.NodeAwareTransport.DialAddressTimeout(a, timeout)
}

func (w *wall) node(t *testing.T, side int, name string, join ...string) *node {
	t.Helper()
	n, cfg := configure(t, name, join...)
	cfg.wrap = func(inner memberlist.NodeAwareTransport) memberlist.NodeAwareTransport {
		return &walled{inner, w, side}
	}
	if err := n.open(cfg); err != nil {
		t.Fatal(err)
	}
	w.put(n.addr, side)
	return n
}

func TestSplitHeals(t *testing.T) {
	t.Parallel()
	w := &wall{side: map[string]int{}}
	a := w.node(t, 1, "a")
	b := w.node(t, 1, "b", a.addr)
	c := w.node(t, 2, "c", a.addr)
	d := w.node(t, 2, "d", a.addr)
	all := []*node{a, b, c, d}
	for _, n := range all {
		n.sees("a", "b", "c", "d")
	}
	w.up.Store(true)
	a.sees("a", "b", "c dead", "d dead")
	b.sees("a", "b", "c dead", "d dead")
	c.sees("a dead", "b dead", "c", "d")
	d.sees("a dead", "b dead", "c", "d")
	w.up.Store(false)
	began := time.Now()
	for _, n := range all {
		n.sees("a", "b", "c", "d")
	}
	t.Logf("whole again after %v", time.Since(began))
}

// A member that left or was forgotten on one side of a split is so on both once the
// split heals.
func TestSplitHidesALeave(t *testing.T) {
	t.Parallel()
	w := &wall{side: map[string]int{}}
	a := w.node(t, 1, "a")
	b := w.node(t, 1, "b", a.addr)
	c := w.node(t, 2, "c", a.addr)
	d := w.node(t, 1, "d", a.addr)
	for _, n := range []*node{a, b, c, d} {
		n.sees("a", "b", "c", "d")
	}
	w.up.Store(true)
	c.sees("a dead", "b dead", "c", "d dead")
	a.sees("a", "b", "c dead", "d")
	if err := b.Leave(patience); err != nil {
		t.Fatal(err)
	}
	b.crash()
	d.crash()
	a.sees("a", "c dead", "d dead")
	if err := a.Forget("d"); err != nil {
		t.Fatal(err)
	}
	a.sees("a", "c dead")
	w.up.Store(false)
	a.sees("a", "c")
	c.sees("a", "c")
}

// A side of a split that is alone for long has forgotten no member: memberlist drops the
// dead, and then nothing would ask for them.
func TestTheDeadAreAskedFor(t *testing.T) {
	t.Parallel()
	a := start(t, "a")
	b := start(t, "b", a.addr) // a has no address to join by
	a.sees("a", "b")
	b.crash()
	a.sees("a", "b dead")
	want := a.join.targets()
	if len(want) != 1 || want[0] != b.addr {
		t.Errorf("a asks %v, want b's address %s", want, b.addr)
	}
	// b comes back and asks no address.
	again, cfg := configure(t, "b")
	cfg.BindAddr = b.addr
	if err := again.open(cfg); err != nil {
		t.Fatal(err)
	}
	again.sees("a", "b")
	a.sees("a", "b")
}

func TestNameWithManyAddresses(t *testing.T) {
	a := start(t, "a")
	_, port, err := splitAddr(a.addr)
	if err != nil {
		t.Fatal(err)
	}
	// Two more at the same port of other loopback addresses.
	bind := func(ip, name string) *node {
		n, cfg := configure(t, name)
		cfg.BindAddr = net.JoinHostPort(ip, strconv.Itoa(int(port)))
		if err := n.open(cfg); err != nil {
			t.Skipf("no second loopback address here: %v", err)
		}
		return n
	}
	b, c := bind("127.0.0.2", "b"), bind("127.0.0.3", "c")
	a.sees("a")
	b.sees("b")
	d, cfg := configure(t, "d", "weir.test:"+strconv.Itoa(int(port)))
	cfg.Resolve = func(_ context.Context, host string) ([]netip.Addr, error) {
		if host != "weir.test" {
			t.Errorf("asked for %q", host)
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2"),
			netip.MustParseAddr("::ffff:127.0.0.3")}, nil
	}
	if err := d.open(cfg); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*node{a, b, c, d} {
		n.sees("a", "b", "c", "d")
	}
	if n := d.JoinAddresses(); n != 4 {
		t.Errorf("%d addresses to join by, want three and its own", n)
	}
}

// A list of addresses that is the same for all nodes contains each node's own.
func TestOwnAddressIsKnown(t *testing.T) {
	first := start(t, "x") // for a free port
	first.crash()
	n, cfg := configure(t, "a", first.addr)
	cfg.BindAddr = first.addr
	if err := n.open(cfg); err != nil {
		t.Fatal(err)
	}
	if got := n.JoinAddresses(); got != 1 {
		t.Errorf("%d addresses to join by, want its own", got)
	}
	if n.SeedAnswered() {
		t.Error("it answered itself, and took that for an answer")
	}
}

// A node does not know its own address behind a name or address translation.
func TestOwnAddressIsFoundOut(t *testing.T) {
	first := start(t, "x")
	first.crash()
	n, cfg := configure(t, "a", first.addr)
	cfg.BindAddr = first.addr
	cfg.Advertise = "127.0.0.9:" + strconv.Itoa(int(mustPort(t, first.addr)))
	n.Gossip = nil
	cfg.wrap = func(inner memberlist.NodeAwareTransport) memberlist.NodeAwareTransport { return inner }
	if err := n.open(cfg); err != nil {
		t.Fatal(err)
	}
	n.join.mu.Lock()
	n.join.own = map[string]bool{n.addr: true} // as if the bound address were translated
	n.join.mu.Unlock()
	n.until("it knows its address", func() bool { return n.JoinAddresses() == 1 })
	if n.SeedAnswered() {
		t.Error("it answered itself, and took that for an answer")
	}
}

func mustPort(t *testing.T, addr string) uint16 {
	t.Helper()
	_, port, err := splitAddr(addr)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// If a name stops resolving, its last addresses stay.
func TestResolvedAddressesStay(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	var asked atomic.Int32
	n, cfg := configure(t, "a", "weir.test:1", "other.test:1")
	cfg.Resolve = func(_ context.Context, host string) ([]netip.Addr, error) {
		if host == "other.test" {
			asked.Add(1)
			return nil, nil
		}
		if broken.Load() {
			return nil, errors.New("out of order")
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3")}, nil
	}
	if err := n.open(cfg); err != nil {
		t.Fatal(err)
	}
	if got := n.JoinAddresses(); got != 4 {
		t.Errorf("%d addresses to join by, want 4: two, its own, and one for the name without any", got)
	}
	broken.Store(true)
	before := asked.Load()
	n.until("it looked the names up twice more", func() bool { return asked.Load() >= before+2 })
	if got := n.JoinAddresses(); got != 4 {
		t.Errorf("%d addresses to join by when they cannot be looked up any more, want 4", got)
	}
	n.says("weir.test", "out of order")
	n.says("other.test", "no address")
}

// Nodes that are started together find each other, without a first one.
func TestAllAtOnce(t *testing.T) {
	var addrs []string
	var before []*node
	for _, name := range []string{"x", "y", "z"} {
		n := start(t, name)
		before, addrs = append(before, n), append(addrs, n.addr)
	}
	for _, n := range before { // all were there at once: they have had ports of their own
		n.crash()
	}
	nodes := make([]*node, 3)
	var wg sync.WaitGroup
	for i, name := range []string{"a", "b", "c"} {
		wg.Go(func() {
			n, cfg := configure(t, name, addrs...)
			cfg.BindAddr = addrs[i]
			if err := n.open(cfg); err != nil {
				t.Error(err)
				return
			}
			nodes[i] = n
		})
	}
	wg.Wait()
	for _, n := range nodes {
		if n == nil {
			t.FailNow()
		}
		n.sees("a", "b", "c")
		if got := n.JoinAddresses(); got != 3 {
			t.Errorf("%d addresses to join by, want 3", got)
		}
	}
}

func TestOpenIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	_, cfg := configure(t, "a", "weir.test:1")
	cfg.Resolve = func(ctx context.Context, _ string) ([]netip.Addr, error) {
		cancel() // while it is being opened
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if _, err := Open(ctx, cfg); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was cancelled", err)
	}
}

// A node that is just starting answers before it knows itself. Its address is
// nevertheless another node's: if it were taken for this node's own, it would never be
// asked again.
func TestAnEmptyViewIsNotThisNodes(t *testing.T) {
	g := start(t, "a").Gossip
	exchanged := func(nodes ...*memberlist.Node) int {
		before := g.join.mirrored()
		if err := (delegate{g}).NotifyMerge(nodes); err != nil {
			t.Fatal(err)
		}
		return g.join.mirrored() - before
	}
	if got := exchanged(); got != 0 {
		t.Error("a view without members is taken for this node's own")
	}
	if got := exchanged(g.ml.LocalNode()); got != 1 {
		t.Error("a view of this node alone is not taken for its own")
	}
}

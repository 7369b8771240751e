package gossip

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/peer"
)

func TestThreeFindEachOther(t *testing.T) {
	a := start(t, "a")
	b := start(t, "b", a.addr)
	c := start(t, "c", a.addr)
	for _, n := range []*node{a, b, c} {
		n.sees("a", "b", "c")
		if !n.SeedAnswered() {
			t.Errorf("%s sees the others, but says that none answered", n.cfg.Name)
		}
	}
	for i, m := range c.Members() {
		want := []*node{a, b, c}[i]
		if m.Instance != want.cfg.Instance || m.GossipAddr != want.addr || m.PeerAddr != m.Name+":7947" ||
			m.Version != "test" {
			t.Errorf("c knows %s as %+v", m.Name, m)
		}
	}
}

func TestAloneAtFirst(t *testing.T) {
	a := start(t, "a")
	a.sees("a")
	if a.SeedAnswered() {
		t.Error("no node listens at that address, and an answer is reported")
	}
	if n := a.JoinAddresses(); n != 1 {
		t.Errorf("%d addresses to join by, want its own", n)
	}
}

func TestUpdateSpreads(t *testing.T) {
	a := start(t, "a")
	b := start(t, "b", a.addr)
	a.sees("a", "b")
	meta := b.cfg.Meta("")
	meta.State, meta.RulesHash, meta.HTTPAddr = peer.Leaving, 1234567890123456789, "10.0.0.1:80"
	meta.Name, meta.Instance = "somebody else", 99 // are not its to change
	if err := b.Update(meta); err != nil {
		t.Fatal(err)
	}
	a.sees("a", "b leaving")
	got := a.Members()[1]
	if got.RulesHash != meta.RulesHash || got.HTTPAddr != meta.HTTPAddr || got.Instance != b.cfg.Instance {
		t.Errorf("a knows b as %+v", got)
	}
	b.sees("a", "b leaving") // it sees itself, too
}

func TestUpdateOfTooMuch(t *testing.T) {
	a := start(t, "a")
	meta := a.cfg.Meta("")
	meta.HTTPAddr = strings.Repeat("x", 600)
	if err := a.Update(meta); !errors.Is(err, ErrMeta) {
		t.Errorf("600 bytes of address: %v, want ErrMeta", err)
	}
	if err := a.Update(peer.Member{State: peer.Dead}); err == nil {
		t.Error("a node said of itself that it is dead")
	}
	if got := a.Members()[0].HTTPAddr; got != "" {
		t.Errorf("what was refused took effect: %q", got)
	}
}

// A member that leaves is removed, and one that dies stays as dead; memberlist reports
// both alike.
func TestLeaveIsNotDeath(t *testing.T) {
	a := start(t, "a")
	b := start(t, "b", a.addr)
	c := start(t, "c", a.addr)
	a.sees("a", "b", "c")
	c.sees("a", "b", "c")
	if err := b.Leave(patience); err != nil {
		t.Fatal(err)
	}
	a.sees("a", "c")
	c.sees("a", "c")
	b.crash()
	if !a.Left("b") || a.Left("c") {
		t.Errorf("left: b %v, c %v; want b alone", a.Left("b"), a.Left("c"))
	}
	c.crash()
	a.sees("a", "c dead")
	if a.Left("c") {
		t.Error("c died, but is said to have left")
	}
	if a.saw("b dead") {
		t.Error("b left, but was dead in between")
	}
}

// A node that joins later counts the dead that it never saw. Otherwise its majority
// would be another's minority.
func TestNewcomersLearnOfTheDead(t *testing.T) {
	t.Parallel()
	a := start(t, "a")
	b := start(t, "b", a.addr)
	a.sees("a", "b")
	b.crash()
	a.sees("a", "b dead")
	c := start(t, "c", a.addr)
	c.sees("a", "b dead", "c")
	d := start(t, "d", c.addr)
	d.sees("a", "b dead", "c", "d")

	if err := d.Forget("a"); !errors.Is(err, ErrAlive) {
		t.Errorf("forgetting a live member: %v, want ErrAlive", err)
	}
	if err := d.Forget("d"); !errors.Is(err, ErrAlive) {
		t.Errorf("forgetting oneself: %v, want ErrAlive", err)
	}
	if err := d.Forget("x"); !errors.Is(err, ErrUnknown) {
		t.Errorf("forgetting who never was: %v, want ErrUnknown", err)
	}
	if err := d.Forget("b"); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*node{a, c, d} {
		n.sees("a", "c", "d")
	}
	if err := d.Forget("b"); !errors.Is(err, ErrUnknown) {
		t.Errorf("forgetting twice: %v, want ErrUnknown", err)
	}
}

// restart opens a node's next run.
func restart(t *testing.T, n *node, bind string) *node {
	t.Helper()
	next, cfg := configure(t, n.cfg.Name, n.cfg.Join...)
	cfg.BindAddr = bind
	if err := next.open(cfg); err != nil {
		t.Fatal(err)
	}
	return next
}

func TestQuickRestartAtTheSameAddress(t *testing.T) {
	a := start(t, "a")
	b := start(t, "b", a.addr)
	c := start(t, "c", a.addr)
	a.sees("a", "b", "c")
	b.crash()
	again := restart(t, b, b.addr)
	for _, n := range []*node{a, c} {
		n.until("b is another instance", func() bool { return instanceOf(n.members, "b") == again.cfg.Instance })
		n.sees("a", "b", "c")
	}
	again.sees("a", "b", "c")
}

// The former run may still count as alive when the next one comes from another address.
// The next one is let in once the former is known to be dead.
func TestQuickRestartAtAnotherAddress(t *testing.T) {
	t.Parallel()
	a := start(t, "a")
	b := start(t, "b", a.addr)
	c := start(t, "c", a.addr)
	a.sees("a", "b", "c")
	c.sees("a", "b", "c")
	b.crash()
	began := time.Now()
	again := restart(t, b, "127.0.0.1:0")
	for _, n := range []*node{a, c} {
		n.until("b is another instance", func() bool { return instanceOf(n.members, "b") == again.cfg.Instance })
	}
	t.Logf("taken in after %v", time.Since(began))
	again.sees("a", "b", "c")
	a.sees("a", "b", "c")
}

func TestRestartAfterLeaving(t *testing.T) {
	a := start(t, "a")
	b := start(t, "b", a.addr)
	a.sees("a", "b")
	if err := b.Leave(patience); err != nil {
		t.Fatal(err)
	}
	b.crash()
	a.sees("a")
	again := restart(t, b, "127.0.0.1:0")
	a.sees("a", "b")
	again.sees("a", "b")
	if a.Left("b") {
		t.Error("b is back, but is said to have left")
	}
}

func TestAfterLeaveAndClose(t *testing.T) {
	a := start(t, "a")
	if err := a.Leave(time.Second); err != nil {
		t.Fatal(err)
	}
	if err := a.Leave(time.Second); !errors.Is(err, ErrClosed) {
		t.Errorf("leaving twice: %v, want ErrClosed", err)
	}
	if err := a.Update(a.cfg.Meta("")); !errors.Is(err, ErrClosed) {
		t.Errorf("an update after leaving: %v, want ErrClosed", err)
	}
	a.crash()
	a.crash() // does nothing
	if err := a.Leave(time.Second); !errors.Is(err, ErrClosed) {
		t.Errorf("leaving after closing: %v, want ErrClosed", err)
	}
	if err := a.Forget("x"); !errors.Is(err, ErrClosed) {
		t.Errorf("forgetting after closing: %v, want ErrClosed", err)
	}
}

// Changes during a callback are combined into one later call, with the state at that
// time.
func TestChangesGather(t *testing.T) {
	inside, let := make(chan struct{}), make(chan struct{})
	var seen [][]peer.Member
	n, cfg := configure(t, "a")
	done := make(chan struct{})
	cfg.OnMembers = func(m []peer.Member) {
		seen = append(seen, m)
		switch len(seen) {
		case 1:
			close(inside)
			<-let
		case 2:
			close(done)
		}
	}
	if err := n.open(cfg); err != nil {
		t.Fatal(err)
	}
	<-inside
	for i := range uint64(10) {
		meta := cfg.Meta("")
		meta.RulesHash = i + 1
		if err := n.Update(meta); err != nil {
			t.Fatal(err)
		}
	}
	close(let)
	<-done
	if got := seen[1][0].RulesHash; got != 10 {
		t.Errorf("after ten changes the next call has the hash %d, want that of the tenth", got)
	}
	n.crash()
	if len(seen) != 2 {
		t.Errorf("%d calls, want two", len(seen))
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*Config)
		want string
	}{
		{"no name", func(c *Config) { c.Name = "" }, `the name "" must have 1 to 128 bytes`},
		{"a long name", func(c *Config) { c.Name = strings.Repeat("n", 129) }, "1 to 128 bytes"},
		{"a name of two lines", func(c *Config) { c.Name = "a b\nc" }, `"a b\nc" has a character that cannot be seen`},
		{"a name with a mark of direction", func(c *Config) { c.Name = "a\u202eb" }, "cannot be seen"},
		{"a name that begins with a space", func(c *Config) { c.Name = " a" }, `" a" begins or ends with a space`},
		{"a name that ends with a space", func(c *Config) { c.Name = "a " }, `"a " begins or ends with a space`},
		{"no instance", func(c *Config) { c.Instance = 0 }, "no instance"},
		{"no cluster", func(c *Config) { c.ClusterName = "" }, "the cluster's name"},
		{"no logger", func(c *Config) { c.Logger = nil }, "no logger"},
		{"a short key", func(c *Config) { c.Keys = [][]byte{make([]byte, 15)} }, "15 bytes"},
		{"a key twice", func(c *Config) { c.Keys = [][]byte{make([]byte, 16), make([]byte, 16)} }, "given twice"},
		{"no port to join", func(c *Config) { c.Join = []string{"host"} }, "host:port"},
		{"port 0 to join", func(c *Config) { c.Join = []string{"host:0"} }, "host:port"},
		{"too many to join", func(c *Config) { c.Join = slices.Repeat([]string{"host:1"}, MaxJoin+1) }, "65 addresses"},
		{"too much to say", func(c *Config) { c.Meta = says(peer.Member{PeerAddr: strings.Repeat("p", 600)}) }, "512"},
		{"nowhere to listen", func(c *Config) { c.BindAddr = "nowhere" }, "host:port"},
		{"a port that is none", func(c *Config) { c.BindAddr = "127.0.0.1:http" }, "host:port"},
		{"no address of a machine", func(c *Config) { c.Advertise = "0.0.0.0" }, "no other node can connect to it"},
		{"an address that is not here", func(c *Config) { c.BindAddr = "192.0.2.1:0" }, "cannot listen"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, cfg := configure(t, "a")
			c.set(&cfg)
			err := n.open(cfg)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error that says %q", err, c.want)
			}
		})
	}
}

// Names in other scripts, and of several words, are valid.
func TestNamesThatCanBe(t *testing.T) {
	for _, name := range []string{"a", "node-1.rack_2", "a b", "узел-1", "节点", strings.Repeat("n", maxName)} {
		if err := CheckName(name); err != nil {
			t.Error(err)
		}
	}
}

func TestStartThatFails(t *testing.T) {
	n, cfg := configure(t, "a")
	cfg.BindAddr = "[::]:0"
	err := n.open(cfg)
	if err != nil && strings.Contains(err.Error(), "cannot listen") {
		t.Skip("no IPv6 here")
	}
	if err == nil || !strings.Contains(err.Error(), "say which") {
		t.Errorf("bound to every address: %v, want that one must be said", err)
	}
}

// Closing a transport without a reader does not block.
func TestAbandon(t *testing.T) {
	_, cfg := configure(t, "a")
	conf := profile()
	conf.Logger = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	transport, port, err := cfg.listen(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if err := abandon(transport); err != nil {
		t.Error(err)
	}
}

func TestPortInUse(t *testing.T) {
	a := start(t, "a")
	n, cfg := configure(t, "b")
	cfg.BindAddr = a.addr
	if err := n.open(cfg); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("got %v, want that the address is in use", err)
	}
}

func TestAdvertise(t *testing.T) {
	n, cfg := configure(t, "a")
	cfg.BindAddr, cfg.Advertise = ":0", "127.0.0.1"
	if err := n.open(cfg); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(n.addr, "127.0.0.1:") || strings.HasSuffix(n.addr, ":0") {
		t.Errorf("it says that it is at %s", n.addr)
	}
	b := start(t, "b", n.addr)
	b.sees("a", "b")
	if got := b.Members()[0].GossipAddr; got != n.addr {
		t.Errorf("b knows a at %s, want %s", got, n.addr)
	}
	m, cfg := configure(t, "c")
	cfg.Advertise = fmt.Sprintf("192.0.2.7:%d", 4711)
	if err := m.open(cfg); err != nil {
		t.Fatal(err)
	}
	if m.addr != "192.0.2.7:4711" {
		t.Errorf("it says that it is at %s", m.addr)
	}
}

package gossip

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/hashicorp/memberlist"

	"github.com/weirlimit/weir/internal/peer"
)

// elsewhere opens a node that advertises an address of another machine, and returns the
// address at which it really listens.
func elsewhere(t *testing.T, n *node, cfg Config) (at string) {
	t.Helper()
	cfg.Advertise = "192.0.2.1"
	if err := n.open(cfg); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(n.addr)
	return net.JoinHostPort("127.0.0.1", port)
}

// A node that advertises loopback to a member elsewhere is refused, and both say why and
// what to do.
func TestLoopbackIsRefused(t *testing.T) {
	a, cfg := configure(t, "a")
	at := elsewhere(t, a, cfg)
	b, cfg := configure(t, "b", at)
	err := b.open(cfg)
	if !errors.Is(err, ErrLoopback) {
		t.Fatalf("got %v, want ErrLoopback", err)
	}
	for _, part := range []string{`node "a" is at 192.0.2.1:`, "this node advertises 127.0.0.1:", "--advertise"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
	a.says("a node is kept out", `node \"b\" advertises 127.0.0.1:`, "--advertise")
	a.sees("a")
}

// A node that members on loopback cannot reach is refused by them, and ends with the reason.
func TestLoopbackRefuses(t *testing.T) {
	a := start(t, "a")
	b, cfg := configure(t, "b", a.addr)
	cfg.Advertise = "192.0.2.1"
	err := b.open(cfg)
	if !errors.Is(err, ErrLoopback) || !strings.Contains(err.Error(), `node "a" advertises 127.0.0.1:`) {
		t.Errorf("got %v, want ErrLoopback", err)
	}
	a.says("a node is kept out", `node \"b\" is at 192.0.2.1:`, "this node advertises 127.0.0.1:")
	a.sees("a")
}

// heard returns a node as memberlist reports it.
func heard(t *testing.T, like *Gossip, name, host string) *memberlist.Node {
	t.Helper()
	a := like.self
	a.Name, a.Instance = name, peer.Instance(instances.Add(1))
	meta, err := a.encode()
	if err != nil {
		t.Fatal(err)
	}
	return &memberlist.Node{Name: name, Addr: net.ParseIP(host), Port: 7946, Meta: meta, State: memberlist.StateAlive}
}

// A list that names a node on loopback, as one of an older version or of a stranger may,
// keeps out that node only.
func TestLoopbackInAList(t *testing.T) {
	n, cfg := configure(t, "a")
	elsewhere(t, n, cfg)
	d := delegate{n.Gossip}
	good, bad := heard(t, n.Gossip, "good", "192.0.2.2"), heard(t, n.Gossip, "bad", "127.0.0.1")
	if err := d.NotifyMerge([]*memberlist.Node{good, bad}); err != nil {
		t.Errorf("the list is refused: %v", err)
	}
	if err := d.NotifyAlive(good); err != nil {
		t.Error(err)
	}
	for _, host := range []string{"127.0.0.1", "::1", "0.0.0.0", "::ffff:127.0.0.2"} {
		if err := d.NotifyAlive(heard(t, n.Gossip, "bad", host)); !errors.Is(err, ErrLoopback) {
			t.Errorf("%s: %v", host, err)
		}
	}
	// A forged message that this node itself is on loopback changes nothing either.
	if err := d.NotifyAlive(heard(t, n.Gossip, "a", "127.0.0.1")); !errors.Is(err, ErrLoopback) {
		t.Error(err)
	}
}

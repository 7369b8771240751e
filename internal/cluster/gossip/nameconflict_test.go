package gossip

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/weirlimit/weir/internal/peer"
)

const textNameConflict = "another live node has this node's name"

// Two nodes of one name that were let in by nodes that did not know each other yet both
// log that, and the members agree when one of them is gone.
func TestNameConflictsAreLogged(t *testing.T) {
	t.Parallel()
	a, b := start(t, "a"), start(t, "b")
	one, two := start(t, "x", a.addr), start(t, "x", b.addr)
	a.sees("a", "x")
	b.sees("b", "x")
	if _, err := a.ml.Join([]string{b.addr}); err != nil {
		t.Fatal(err)
	}
	a.sees("a", "b", "x")
	one.says("level=ERROR", textNameConflict, "name=x", two.addr)
	two.says("level=ERROR", textNameConflict, "name=x", one.addr)
	two.crash()
	for _, n := range []*node{a, b} {
		n.until("it knows the one that is left", func() bool { return instanceOf(n.members, "x") == one.cfg.Instance })
	}
}

// Of two nodes of one name, the later is refused although another node lets it in. In
// the end that node knows the earlier one.
func TestTheLaterOfOneNameEnds(t *testing.T) {
	t.Parallel()
	a, b := start(t, "a"), start(t, "b")
	one := start(t, "x", a.addr)
	a.sees("a", "x")
	two, cfg := configure(t, "x", b.addr, a.addr)
	if err := two.open(cfg); !errors.Is(err, ErrNameTaken) {
		t.Fatalf("got %v, want ErrNameTaken", err)
	}
	if _, err := a.ml.Join([]string{b.addr}); err != nil {
		t.Fatal(err)
	}
	b.until("it knows the one that is left", func() bool { return instanceOf(b.members, "x") == one.cfg.Instance })
}

// The earlier of the two stays, so that not both end.
func TestTheEarlierOfOneNameStays(t *testing.T) {
	a, b := start(t, "a"), start(t, "b")
	one := start(t, "x", a.addr)
	one.Gossip.mu.Lock()
	one.self.started += uint64(time.Hour / time.Millisecond)
	later := one.self.started
	one.Gossip.mu.Unlock()
	if err := one.Update(one.cfg.Meta("")); err != nil {
		t.Fatal(err)
	}
	a.until("it knows when x was started", func() bool {
		a.Gossip.mu.Lock()
		defer a.Gossip.mu.Unlock()
		return a.roster.live["x"].started == later
	})
	two, cfg := configure(t, "x", b.addr, a.addr)
	if err := two.open(cfg); err != nil {
		t.Fatal(err)
	}
}

// An ended run that others still believe alive is not a second node of the name; neither
// is a node that has its address by now.
func TestAFormerRunIsNoNameConflict(t *testing.T) {
	a, former := start(t, "a"), start(t, "b")
	former.crash()
	b := start(t, "b", a.addr)
	b.namesakes.suspect(former.addr)
	b.namesakes.suspect(a.addr)
	b.namesakes.check()
	b.namesakes.mu.Lock()
	left := len(b.namesakes.at)
	b.namesakes.mu.Unlock()
	if left != 0 {
		t.Errorf("%d addresses are asked on", left)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if strings.Contains(b.log.String(), textNameConflict) {
		t.Errorf("it logs a conflict with itself:\n%s", b.log.String())
	}
}

// The same holds if a member that has its address by now still lists it.
func TestAddressOfFormerRunIsTaken(t *testing.T) {
	b := start(t, "b")
	record := func(name string, i peer.Instance) *memberlist.Node {
		self := b.self
		self.Name, self.Instance = name, i
		meta, err := self.encode()
		if err != nil {
			t.Fatal(err)
		}
		return &memberlist.Node{Name: name, Addr: net.IPv4(127, 0, 0, 1), Port: 1, Meta: meta}
	}
	former, other := record("b", 9999), record("c", 9998)
	if r := b.namesakes.conflict(former, []*memberlist.Node{former}); r == nil || r.moved {
		t.Errorf("got %v, want that it may be there", r)
	}
	if r := b.namesakes.conflict(former, []*memberlist.Node{former, other}); r == nil || !r.moved {
		t.Errorf("got %v, want that another is there", r)
	}
}

// The addresses that others report for this node's name are bounded.
func TestNameConflictsAreBounded(t *testing.T) {
	b := start(t, "b")
	for i := range 3 * maxNameConflicts {
		b.namesakes.suspect("127.0.0.1:" + strconv.Itoa(i+1))
	}
	b.namesakes.suspect(b.addr)
	b.namesakes.mu.Lock()
	defer b.namesakes.mu.Unlock()
	if len(b.namesakes.at) != maxNameConflicts || b.namesakes.at[b.addr] {
		t.Errorf("%d addresses are asked, want %d and not its own", len(b.namesakes.at), maxNameConflicts)
	}
}

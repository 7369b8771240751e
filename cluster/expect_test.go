//go:build !race

// The bubbles of this file hold whole members. The race detector of Go 1.26 crashes now
// and then where two threads run timers of one bubble (golang/go#78156), so `make wire`
// runs these tests, and `make race` does not.

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
)

// trouble is what DNS answers at first. Later it answers with the addresses of all
// members.
type trouble struct {
	name string
	last time.Duration
}

// The troubles of DNS.
var troubles = []trouble{
	{"empty", 30 * time.Second},
	{"self", 10 * time.Second},  // each member's own address alone
	{"stale", 20 * time.Second}, // addresses at which nobody is any more
	{"right", 0},
}

// crew is the members of one cluster, and their DNS.
type crew struct {
	t       *testing.T
	net     *virtual
	expect  int
	host    []string // of each member
	nodes   []*weir.Node
	moves   int
	trouble trouble
	since   time.Time // when the trouble began
	old     []string  // hosts as they were before they changed
	charged int
	mu      sync.Mutex
	log     bytes.Buffer
}

// Write records a line of the log.
func (c *crew) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.Write(p)
}

const expectKeys, expectLimit = 20, 1000

const expectRules = `version: 1
rules:
  - {name: keys, match: {path: "^/k"}, key: [path], limits: [{limit: 1000, window: 1d, algorithm: fixed_window}]}
`

func newCrew(t *testing.T, n int) *crew {
	c := &crew{t: t, net: newVirtual(), expect: n, nodes: make([]*weir.Node, n), old: []string{"127.9.0.1", "127.9.0.2"}}
	for i := range n {
		c.host = append(c.host, "")
		c.move(i)
	}
	c.trouble, c.since = troubles[3], time.Now()
	t.Cleanup(func() {
		for _, n := range c.nodes {
			if n == nil {
				continue
			}
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Minute) // a probe under way ends with its timer
		if t.Failed() {
			t.Log(c.log.String())
		}
	})
	return c
}

// move gives a member another address.
func (c *crew) move(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moves++
	if c.host[i] != "" {
		c.old = append(c.old, c.host[i])
	}
	c.host[i] = fmt.Sprintf("127.1.%d.%d", c.moves, i+1)
}

// resolve returns what DNS answers a member.
func (c *crew) resolve(asker int) func(context.Context, string) ([]netip.Addr, error) {
	return func(context.Context, string) ([]netip.Addr, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		hosts := c.host
		if time.Since(c.since) < c.trouble.last {
			switch c.trouble.name {
			case "empty":
				return nil, errors.New("no such host")
			case "self":
				hosts = c.host[asker : asker+1]
			case "stale":
				hosts = c.old
			}
		}
		var out []netip.Addr
		for _, h := range hosts {
			out = append(out, netip.MustParseAddr(h))
		}
		return out, nil
	}
}

// open starts a member.
func (c *crew) open(i int) {
	n, err := weir.Open(context.Background(), weir.Config{
		Rules: []byte(expectRules), MaxKeys: 10_000,
		Logger: slog.New(slog.NewTextHandler(c, nil)).With("node", i+1),
		Cluster: &settled{Config{
			Name: fmt.Sprint("node-", i+1), PeerAddr: c.host[i] + ":7947", GossipAddr: c.host[i] + ":7946",
			Join: []string{NamePrefix + "weir.test:7946"}, Expect: c.expect, Deadline: 5 * time.Second,
		}, network{listen: c.net.listen, dial: c.net.dialer(c.host[i]), gossip: c.net.gossip, resolve: c.resolve(i)}},
	})
	if err != nil {
		c.t.Errorf("node %d: %v", i+1, err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[i] = n
}

// node returns a member; nil if it is not open.
func (c *crew) node(i int) *weir.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[i]
}

// begin lets DNS be in trouble from now.
func (c *crew) begin(d trouble) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trouble, c.since = d, time.Now()
}

// charge charges one unit to every key by one member, and requires that nothing that was
// charged by another is missing.
func (c *crew) charge(i int) {
	c.charged++
	for k := range expectKeys {
		d, err := c.nodes[i].Check(context.Background(), weir.Request{Path: fmt.Sprint("/k/", k)})
		if err != nil {
			c.t.Fatalf("node %d: %v", i+1, err)
		}
		if d.Source.ByPolicy() {
			c.t.Fatalf("node %d: a policy answered: %v", i+1, d.Source)
		}
		if got, want := int(d.Limit(0).Remaining), expectLimit-c.charged; got != want {
			c.t.Fatalf("node %d: key %d has %d left after %d charges, want %d: a cluster began beside another, or counts were "+
				"lost", i+1, k, got, c.charged, want)
		}
	}
}

// ready waits until members are ready, and charges by each as soon as it is. They must
// be within 15 seconds after DNS is right.
func (c *crew) ready(which ...int) {
	due := c.since.Add(c.trouble.last + 15*time.Second)
	waits := map[int]error{}
	for _, i := range which {
		waits[i] = errors.New("not open")
	}
	for len(waits) > 0 {
		for i := range waits {
			n := c.node(i)
			if n == nil {
				continue
			}
			if waits[i] = n.Ready(); waits[i] == nil {
				delete(waits, i)
				if met := len(n.Cluster().Members()); met < c.expect/2+1 {
					c.t.Fatalf("node %d is ready and knows %d members", i+1, met)
				}
				c.charge(i)
			}
		}
		if time.Now().After(due) && len(waits) > 0 {
			c.t.Fatalf("not ready 15 seconds after DNS was right: %v", waits)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// all returns the numbers of all members.
func (c *crew) all() (out []int) {
	for i := range c.host {
		out = append(out, i)
	}
	return out
}

// start starts all members at once.
func (c *crew) start(d trouble) {
	c.begin(d)
	for i := range c.host {
		go c.open(i)
	}
	c.ready(c.all()...)
}

// roll restarts one member after another.
func (c *crew) roll(d trouble, moved bool) {
	for i := range c.host {
		if err := c.nodes[i].Cluster().Leave(context.Background()); err != nil {
			c.t.Fatal(err)
		}
		c.nodes[i] = nil
		if len(c.host) == 1 {
			c.charged = 0 // a single member takes its counters with it
		}
		if moved {
			c.move(i)
		}
		c.begin(d)
		c.open(i)
		c.ready(i)
	}
}

// moveAll restarts all members at once, at other addresses. Nobody keeps their counters.
func (c *crew) moveAll(d trouble) {
	for i, n := range c.nodes {
		if err := n.Close(); err != nil {
			c.t.Fatal(err)
		}
		c.nodes[i] = nil
	}
	for i := range c.host {
		c.move(i)
	}
	c.charged = 0
	c.start(d)
}

// whole requires that all members see each other active.
func (c *crew) whole() {
	time.Sleep(10 * time.Second)
	for i, n := range c.nodes {
		active := 0
		for _, m := range n.Cluster().Members() {
			if m.State == "active" {
				active++
			}
		}
		if active != len(c.nodes) {
			c.t.Errorf("node %d sees %d active members, want %d", i+1, active, len(c.nodes))
		}
		c.charge(i)
	}
}

// However DNS answers at first, the members begin one cluster, restarted ones find it,
// and no count is lost but with the whole cluster. The members are whole ones, in virtual
// time.
func TestJoinByName(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		for _, d := range troubles {
			for name, run := range map[string]func(*crew){
				"first start":               func(c *crew) { c.start(d) },
				"rolling restart":           func(c *crew) { c.start(troubles[3]); c.roll(d, false) },
				"rolling restart, moved":    func(c *crew) { c.start(troubles[3]); c.roll(d, true) },
				"all addresses are changed": func(c *crew) { c.start(troubles[3]); c.moveAll(d) },
			} {
				t.Run(fmt.Sprintf("%d/%s/%s", n, d.name, name), func(t *testing.T) {
					first := name == "first start"
					if testing.Short() && (n != 3 || !first) {
						t.Skip("long; make wire runs it")
					}
					if os.Getenv("WEIR_SEEDS") == "" && !first && (n != 3 || d.name != "stale") {
						t.Skip("long; make test-long runs it")
					}
					synctest.Test(t, func(t *testing.T) {
						c := newCrew(t, n)
						run(c)
						c.whole()
					})
				})
			}
		}
	}
}

// A member that waits says for what.
func TestExpectedMembersAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3)
		c.open(0)
		time.Sleep(time.Hour)
		err := c.nodes[0].Ready()
		if !errors.Is(err, limiter.ErrJoining) || !strings.Contains(err.Error(),
			"waits until it has met an active member or 2 of the 3 expected ones (it has met 1, itself included)") {
			t.Errorf("it says %v", err)
		}
		if n := strings.Count(c.log.String(),
			"this node waits for other members before it begins a cluster with them"); n != 1 {
			t.Errorf("it is logged %d times", n)
		}
	})
}

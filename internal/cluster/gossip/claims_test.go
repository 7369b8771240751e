package gossip

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/peer"
)

// send sends a node a packet or a stream, and returns the address that it came from.
func send(t testing.TB, n *node, network string, message []byte) (from string, end func()) {
	t.Helper()
	c, err := net.Dial(network, n.addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(message); err != nil {
		t.Fatal(err)
	}
	return c.LocalAddr().String(), func() { _ = c.Close() }
}

// waits returns how many claims a node has to judge.
func (n *node) waits() int {
	n.claims.mu.Lock()
	defer n.claims.mu.Unlock()
	return len(n.claims.waiting)
}

// Any number of invented members leaves room for a departure.
func TestClaimsHaveABound(t *testing.T) {
	var c claims
	now := someday
	for i := range 3 * maxClaims {
		c.add(claim{known: peer.Known{Name: "ghost", Instance: peer.Instance(i)}, at: now})
	}
	c.add(claim{known: peer.Known{Name: "b", Instance: 1, Gone: true}, at: now})
	c.add(claim{known: peer.Known{Name: "b", Instance: 1, Gone: true}, at: now})
	if n := len(c.waiting); n != maxClaims+1 {
		t.Errorf("%d wait", n)
	}
	if n := len(c.due(now.Add(judgeAfter - 1))); n != 0 {
		t.Errorf("%d are judged early", n)
	}
	if due := c.due(now.Add(judgeAfter)); len(due) != maxClaims+1 || len(c.waiting) != 0 {
		t.Errorf("%d are judged, %d are left", len(due), len(c.waiting))
	}
	var s sources
	for i := range 3 * maxSources {
		s.keep(goneClaim(string(rune(i+1000))), "x", now)
	}
	if n := len(s.first); n > maxSources {
		t.Errorf("%d senders are remembered", n)
	}
	s.keep(aliveClaim(strings.Repeat("n", maxName), "[2001:db8:1111:2222:3333:4444:5555:6666]:65535"), "x", now)
	s.keep(aliveClaim(strings.Repeat("n", 60_000), "192.0.2.1:7946"), "x", now)
	for one := range s.first {
		if len(one) > maxKey {
			t.Errorf("a claim of %d bytes is remembered", len(one))
		}
	}
	if s.of(aliveClaim(strings.Repeat("n", maxName), "[2001:db8:1111:2222:3333:4444:5555:6666]:65535")) == "" {
		t.Error("a claim of the longest name is not remembered")
	}
	s.keep("a claim", "first", now)
	s.keep("a claim", "repeats it", now.Add(keepSource-1))
	if got := s.of("a claim"); got != "first" {
		t.Errorf("it is of %q", got)
	}
	s.keep("a claim", "later", now.Add(keepSource))
	if got := s.of("a claim"); got != "later" {
		t.Errorf("a minute later it is of %q", got)
	}
}

// linkWords is what a node has told of, and what its links say.
type linkWords struct {
	mu     sync.Mutex
	lines  []string
	linked map[string]bool
	gone   map[string]bool
}

func (c *linkWords) refused(from, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, from+" "+why)
}

func (c *linkWords) vouched(k peer.Known) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.Gone {
		return c.gone[k.Name]
	}
	return c.linked[k.Name] && !c.gone[k.Name]
}

func (c *linkWords) set(in map[string]bool, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in[name] = true
}

// What strangers say of members without a key, and no link confirms, is told with the
// address of the sender: that there is a member, that a live one has left or was
// forgotten. What links confirm in time is not, nor what is said of members that left long
// ago, which links no longer know.
func TestClaimsOfStrangersAreTold(t *testing.T) {
	list := func(who about, f fate) []byte {
		return encodeGone([]gone{{about: who, fate: f, since: time.Now()}}, time.Now())
	}
	packet := func(list []byte) []byte { return append([]byte{msgUser}, list...) }
	stream := func(list []byte) []byte { return append(packed(msgUser, "UserMsgLen", len(list)), list...) }
	ghost := invented(t, "ghost")
	say := func(message []byte) func(about) []byte { return func(about) []byte { return message } }
	for name, c := range map[string]struct {
		network string
		message func(b about) []byte
		confirm string // the member of which a link says it in time
		want    string // empty: nothing is told
	}{
		"an invented member": {"udp",
			say(compound(forgedAlive(t, ghost), forgedAlive(t, invented(t, "other")))), "", ` at 127.0.0.1:9, instance`},
		"an invented dead member": {"udp", say(packet(list(ghost, dead))), "", ` at 127.0.0.1:9, instance`},
		"one that a link shows":   {"udp", say(forgedAlive(t, ghost)), "ghost", ""},
		"a departure": {"udp", func(b about) []byte {
			return packet(list(b, left))
		}, "", `the departure of the member "b"`},
		"that it was forgotten": {"udp", func(b about) []byte {
			return packet(list(b, forgotten))
		}, "", `the departure of the member "b"`},
		"a departure that a link tells of": {"udp", func(b about) []byte { return packet(list(b, left)) }, "b", ""},
		"a departure, by a stream": {"tcp", func(b about) []byte {
			return stream(list(b, left))
		}, "", `the departure of the member "b"`},
		"in memberlist's way": {"udp", say(forgedDead("b", "b")), "", `the departure of the member "b"`},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, "b")
			b.mu.Lock()
			self := b.self
			b.mu.Unlock()
			n, cfg := configure(t, "a", b.addr)
			says := &linkWords{linked: map[string]bool{"b": true}, gone: map[string]bool{}}
			cfg.Refused, cfg.Vouched = says.refused, says.vouched
			if err := n.open(cfg); err != nil {
				t.Fatal(err)
			}
			n.sees("a", "b")
			from, end := send(t, n, c.network, c.message(self))
			n.until("it is noted", func() bool { return n.waits() > 0 })
			end()
			n.claims.judge(time.Now())
			if len(says.lines) > 0 {
				t.Errorf("told at once of %q", says.lines)
			}
			if c.want == "" {
				says.set(says.linked, c.confirm)
				says.set(says.gone, strings.TrimPrefix(c.confirm, "ghost"))
			}
			n.claims.judge(time.Now().Add(judgeAfter))
			says.mu.Lock()
			defer says.mu.Unlock()
			switch {
			case c.want == "" && len(says.lines) == 0:
			case c.want == "" || len(says.lines) != 1 || !strings.HasPrefix(says.lines[0], from+" ") ||
				!strings.Contains(says.lines[0], c.want):
				t.Errorf("from %s: told of %q, want %q", from, says.lines, c.want)
			}
		})
	}
}

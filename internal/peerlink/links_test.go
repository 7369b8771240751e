package peerlink_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/internal/peerlink"
)

func TestFramesArriveInOrder(t *testing.T) {
	a, b := start(t, 1, "", nil), start(t, 2, "", nil)
	introduce(a, b)
	a.waitUp(t, 2)
	b.waitUp(t, 1)
	const n = 2000
	for i := range n {
		a.send(2, announce(i))
		b.send(1, announce(i))
	}
	for _, x := range []*node{a, b} {
		x.wait(t, "all frames", func() bool { return len(x.got) == n })
		for i, f := range x.got {
			if got := f.Announces[0].Epoch.Counter; got != uint64(i) {
				t.Fatalf("frame %d of %s has number %d", i, x.self, got)
			}
			if want := 3 - x.self; f.From != want || f.To != x.self {
				t.Fatalf("frame %d of %s is from %s to %s", i, x.self, f.From, f.To)
			}
		}
		x.wait(t, "what was sent is counted", func() bool {
			frames, size := x.Sent(3 - x.self)
			return frames == n && size > 10*n
		})
	}
	if frames, size := a.Sent(7); frames+size > 0 {
		t.Error("something was sent to a stranger")
	}
}

func TestThreeNodes(t *testing.T) {
	nodes := []*node{start(t, 1, "", nil), start(t, 2, "", nil), start(t, 3, "", nil)}
	introduce(nodes...)
	for _, x := range nodes {
		for _, y := range nodes {
			if x != y {
				x.waitUp(t, y.self)
				x.send(y.self, checks(uint64(x.self)<<8, 10))
			}
		}
	}
	for _, x := range nodes {
		x.wait(t, "the checks of the others", func() bool { return len(x.got) == 2 })
		from := map[peer.Instance]int{}
		for _, f := range x.got {
			from[f.From] += len(f.Checks)
		}
		for _, y := range nodes {
			if x != y && from[y.self] != 10 {
				t.Errorf("%s got %d checks of %s, not 10", x.self, from[y.self], y.self)
			}
		}
	}
}

// TestOneSideKnows makes a node dial another that does not know it yet. It is refused,
// and tries again until it is known. The refusing side logs that once, and the dialling
// side not at all.
func TestOneSideKnows(t *testing.T) {
	for name, ids := range map[string][2]peer.Instance{"it is to dial": {1, 2}, "the other is": {2, 1}} {
		t.Run(name, func(t *testing.T) {
			a, b := start(t, ids[0], "", nil), start(t, ids[1], "", nil)
			a.SetMembers([]peer.Member{a.member, b.member})
			a.waitMore(t, "down "+b.self.String(), 3)
			if n := a.tally("up " + b.self.String()); n != 0 || b.tally("up "+a.self.String()) != 0 {
				t.Errorf("it is up %d times with a node that does not know it", n)
			}
			if a, b := a.log.String(), b.log.String(); a != "" || strings.Count(b, "no member here") != 1 ||
				strings.Contains(b, "WARN") {
				t.Errorf("a start is no trouble, and logged as:\n%s\n%s", a, b)
			}
			impostor := a.member
			impostor.Name = "somebody"
			b.SetMembers([]peer.Member{impostor, b.member}) // who must not be taken for a
			a.waitMore(t, "down "+b.self.String(), 6)
			if n := a.tally("up " + b.self.String()); n != 0 {
				t.Error("it is up under another name than its own")
			}
			b.SetMembers([]peer.Member{a.member, b.member})
			a.waitUp(t, b.self)
			b.waitUp(t, a.self)
			a.send(b.self, checks(1, 1))
			b.send(a.self, checks(1, 1))
			a.wait(t, "a check", func() bool { return len(a.got) == 1 })
			b.wait(t, "a check", func() bool { return len(b.got) == 1 })
		})
	}
}

// TestAStrangerIsToldInTheEnd leaves a node unknown for long: then it logs that, for an
// operator.
func TestAStrangerIsToldInTheEnd(t *testing.T) {
	a, b := start(t, 1, "", nil), start(t, 2, "", nil)
	a.SetMembers([]peer.Member{a.member, b.member})
	a.log.wait(t, "is no member that")
	if n := a.tally("down " + b.self.String()); n < 10 {
		t.Errorf("it is told after %d attempts", n)
	}
}

// TestBothDial makes many pairs dial each other at once: each pair ends with one
// established link.
func TestBothDial(t *testing.T) {
	var nodes []*node
	for i := range 6 {
		nodes = append(nodes, start(t, peer.Instance(i+1), "", nil))
	}
	introduce(nodes...)
	for _, x := range nodes {
		for _, y := range nodes {
			if x != y {
				x.waitUp(t, y.self)
			}
		}
	}
	for _, x := range nodes {
		for _, y := range nodes {
			if x != y {
				x.send(y.self, announce(int(x.self)))
			}
		}
	}
	for _, x := range nodes {
		x.wait(t, "a frame of each", func() bool { return len(x.got) == len(nodes)-1 })
	}
}

func TestDownComesWithTheEndAndAtEachAttempt(t *testing.T) {
	a, b := start(t, 1, "", nil), start(t, 2, "", nil)
	introduce(a, b)
	a.waitUp(t, 2)
	b.waitUp(t, 1)
	b.Close()
	a.waitMore(t, "down "+b.self.String(), 4)
	if n := strings.Count(a.log.String(), "connection refused"); n != 1 {
		t.Errorf("that the connection is refused was logged %d times, not once:\n%s", n, a.log)
	}
}

// TestRestart restarts a node as another instance at the same address.
func TestRestart(t *testing.T) {
	a, b := start(t, 1, "", nil), start(t, 2, "", nil)
	introduce(a, b)
	a.waitUp(t, 2)
	b.stop(t)
	again := start(t, 3, b.member.PeerAddr, nil)
	a.waitMore(t, "down "+b.self.String(), 6)
	if text := a.log.String(); strings.Count(text, "does not run here") != 1 {
		t.Errorf("the log does not say once that another instance runs there:\n%s", text)
	}
	if n := a.tally("up " + again.self.String()); n != 0 {
		t.Errorf("the new instance is up %d times before anybody spoke of it", n)
	}
	introduce(a, again)
	a.waitUp(t, 3)
	a.send(3, checks(1, 1))
	again.wait(t, "a check", func() bool { return len(again.got) == 1 })
}

func TestDeadMemberComesBack(t *testing.T) {
	a, b := start(t, 1, "", nil), start(t, 2, "", nil)
	b.stop(t)
	dead := b.member
	dead.State = peer.Dead
	a.SetMembers([]peer.Member{dead})
	a.waitMore(t, "down "+b.self.String(), 0) // slowly, but it is tried
	again := start(t, 2, b.member.PeerAddr, nil)
	introduce(a, again)
	a.waitUp(t, 2)
}

func TestDismissed(t *testing.T) {
	a, b := start(t, 1, "", nil), start(t, 2, "", nil)
	introduce(a, b)
	a.waitUp(t, 2)
	b.waitUp(t, 1)
	b.SetMembers(nil) // or it would dial in its turn
	a.SetMembers([]peer.Member{a.member})
	a.wait(t, "down", func() bool { return a.last(2) == "down" })
	b.wait(t, "down", func() bool { return b.last(1) == "down" })
	a.Wake(2) // of nobody
	introduce(a, b)
	a.waitUp(t, 2)
	b.waitUp(t, 1)
}

func TestRefusedHellos(t *testing.T) {
	secret := func(s string) func(*peerlink.Config) {
		return func(c *peerlink.Config) { c.Secret = []byte(s) }
	}
	for name, test := range map[string]struct {
		a, b func(*peerlink.Config)
		want string
	}{
		"cluster": {nil, func(c *peerlink.Config) {
			c.ClusterName = "prod"
		}, `of cluster \"prod\", and the other of \"test\"`},
		"ring": {nil, func(c *peerlink.Config) { c.RingConfig = 8 }, "ring configuration is 0000000000000008"},
		"wire": {nil, func(c *peerlink.Config) {
			c.Self.Wire = 6
		}, "speaks version 6 of the peer wire, and the other 4"},
		"old wire": {nil, func(c *peerlink.Config) {
			c.Self.Wire = 1
		}, "speaks version 1 of the peer wire, and the other 4"},
		"other secrets":  {secret("x"), secret("y"), "another secret"},
		"secret dialler": {secret("x"), nil, "the other node has no secret"},
		"secret dialled": {nil, secret("x"), "this node has no secret"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := start(t, 1, "", test.a), start(t, 2, "", test.b)
			a.SetMembers([]peer.Member{b.member})
			quiet := a.member
			quiet.State = peer.Dead // so that b does not dial
			b.SetMembers([]peer.Member{quiet})
			a.waitMore(t, "down "+b.self.String(), 4)
			if n := strings.Count(a.log.String(), test.want); n != 1 {
				t.Errorf("the log says %q %d times, not once:\n%s", test.want, n, a.log)
			}
			if a.tally("up "+b.self.String())+b.tally("up "+a.self.String()) != 0 {
				t.Error("there was a link")
			}
			if !strings.HasPrefix(name, "secret") && !strings.HasPrefix(name, "other") &&
				strings.Count(b.log.String(), "was refused") != 1 {
				t.Errorf("the node that refused does not say so once:\n%s", b.log)
			}
		})
	}
}

func TestSecretsAndNeighbouringVersions(t *testing.T) {
	secret := func(c *peerlink.Config) { c.Secret = []byte("a secret") }
	a := start(t, 1, "", secret)
	for i, wire := range []uint16{peerlink.Wire - 1, peerlink.Wire + 1} {
		b := start(t, peer.Instance(2+i), "", func(c *peerlink.Config) { secret(c); c.Self.Wire = wire })
		introduce(a, b)
		a.waitUp(t, b.self)
		b.waitUp(t, 1)
		b.send(1, checks(1, 1))
		a.wait(t, "a check", func() bool { return len(a.got) == 1+i })
	}
}

// TestItself tells a node that its own address is another node's.
func TestItself(t *testing.T) {
	a := start(t, 1, "", nil)
	other := a.member
	other.Instance = 2
	a.SetMembers([]peer.Member{other})
	a.waitMore(t, "down "+other.Instance.String(), 2)
	a.log.wait(t, "this node itself")
}

// TestShutdownSendsWhatThereIs shuts a node down right after its last frames.
func TestShutdownSendsWhatThereIs(t *testing.T) {
	a, b := start(t, 1, "", nil), start(t, 2, "", nil)
	introduce(a, b)
	a.waitUp(t, 2)
	b.waitUp(t, 1)
	const n = 500
	for i := range n {
		a.send(2, announce(i))
	}
	a.stop(t)
	b.wait(t, "the last words", func() bool { return len(b.got) == n })
	b.wait(t, "down", func() bool { return b.last(1) == "down" })
	b.log.wait(t, "the node is stopping")
	a.SetMembers([]peer.Member{b.member}) // is too late
	if err := a.Serve(listen(t)); err != nil {
		t.Errorf("serving after the end: %v", err)
	}
}

func TestShutdownIsBounded(t *testing.T) {
	a, b := start(t, 1, "", nil), start(t, 2, "", nil)
	introduce(a, b)
	a.waitUp(t, 2)
	b.waitUp(t, 1)
	b.hold()
	a.send(2, checks(1, 1)) // is held
	for i := range 200 {
		a.send(2, large(i, 64<<10)) // more than can be under way
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := a.Shutdown(ctx); err == nil {
		t.Error("everything was sent to a node that takes nothing")
	}
	b.release()
}

func TestConfig(t *testing.T) {
	self := peer.Member{Instance: 1}
	for want, c := range map[string]peerlink.Config{
		"no instance":              {ClusterName: "c", Frames: newBox(1)},
		"ClusterName is empty":     {Self: self, Frames: newBox(1)},
		"Frames is nil":            {Self: self, ClusterName: "c"},
		"Window is negative":       {Self: self, ClusterName: "c", Frames: newBox(1), Window: -1},
		"StallTimeout is negative": {Self: self, ClusterName: "c", Frames: newBox(1), StallTimeout: -1},
	} {
		if _, err := peerlink.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	l, err := peerlink.New(peerlink.Config{Self: self, ClusterName: "c", Frames: newBox(1)})
	if err != nil {
		t.Fatal(err)
	}
	l.Wake(5)
	l.Close()
	l.Close()
}

// large returns a frame without checks of about so many bytes.
func large(n, bytes int) *peer.Frame {
	f := announce(n)
	f.Limits = []peer.Limit{{Name: "log"}}
	f.Batches = []peer.Batch{{Keys: 1}}
	words := make([]uint64, bytes/8)
	for i := range words {
		words[i] = uint64(i + n)
	}
	f.Entries = []peer.Entry{{First: true, Words: words}}
	return f
}

// TestAMemberHasOneName: what a member says of itself under another name than the one it has proved is not delivered.
// What it says of others is, and what a relay brings is for others to judge.
func TestAMemberHasOneName(t *testing.T) {
	a, b := start(t, 1, "", nil), start(t, 2, "", nil)
	introduce(a, b)
	a.waitUp(t, b.self)
	b.waitUp(t, a.self)
	said := []peer.Known{
		{Name: "another", Instance: b.self}, {Name: b.member.Name, Instance: b.self}, {Name: "third", Instance: 3},
	}
	b.send(a.self, &peer.Frame{Known: slices.Clone(said)})
	b.send(a.self, &peer.Frame{Via: b.self, Relayed: true, Known: slices.Clone(said)})
	a.wait(t, "both frames", func() bool { return len(a.got) == 2 })
	for i, want := range [][]peer.Known{said[1:], said} {
		if got := a.got[i].Known; !slices.EqualFunc(got, want, func(x, y peer.Known) bool {
			return x.Name == y.Name && x.Instance == y.Instance
		}) {
			t.Errorf("frame %d brings %v", i, got)
		}
	}
}

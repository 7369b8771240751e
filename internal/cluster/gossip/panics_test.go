package gossip

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/weirlimit/weir/internal/peer"
)

// A delegate that panics drops its input, lets no node in and leaves nothing locked:
// gossip continues.
func TestAPanicEndsOneCallback(t *testing.T) {
	n, cfg := configure(t, "a")
	panics := 0
	cfg.Panicked = func(any) { panics++ }
	broken := true
	cfg.Vouched = func(peer.Known) bool {
		if broken {
			panic("vouched")
		}
		return true
	}
	g, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	n.Gossip = g
	defer func() { _ = g.Close() }()
	d := delegate{g}
	alive := &memberlist.Node{Name: "b", Addr: net.IPv4(127, 0, 0, 1), Port: 1, Meta: d.NodeMeta(0)}
	list := encodeGone([]gone{{about: about{Member: peer.Member{Name: "c", Instance: 9, GossipAddr: "127.0.0.1:9"}},
		fate: left, since: time.Now()}}, time.Now())
	for what, call := range map[string]func() error{
		"a message":     func() error { d.NotifyMsg(list); return errDefect },
		"a view":        func() error { d.MergeRemoteState(list, false); return errDefect },
		"a new node":    func() error { return d.NotifyAlive(nil) },
		"a join":        func() error { return d.NotifyMerge([]*memberlist.Node{nil}) },
		"a joined node": func() error { d.NotifyJoin(nil); return errDefect },
		"an update":     func() error { d.NotifyUpdate(nil); return errDefect },
		"a conflict":    func() error { d.NotifyConflict(alive, nil); return errDefect },
		"a loss":        func() error { d.NotifyLeave(nil); return errDefect },
	} {
		before := panics
		if err := call(); !errors.Is(err, errDefect) {
			t.Errorf("%s: it is answered %v, so the node is let in", what, err)
		}
		if panics != before+1 {
			t.Errorf("%s: %d panics were told of, want one", what, panics-before)
		}
	}
	broken = false
	n.until("nothing is locked", func() bool {
		free := g.mu.TryLock() // gossip may hold it for a moment
		if free {
			g.mu.Unlock()
		}
		return free
	})
	if err := d.NotifyAlive(alive); err != nil {
		t.Errorf("a sound node is kept out: %v", err)
	}
	d.NotifyMsg(list)
	if !g.Left("c") {
		t.Error("what a sound message says is not taken in")
	}
}

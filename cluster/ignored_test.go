package cluster

import (
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	core "github.com/weirlimit/weir/internal/cluster"
	"github.com/weirlimit/weir/internal/peer"
)

// Parts of frames that were ignored are told with the sender's address, once a minute for
// each sender and part, with their number, and within a bound.
func TestIgnoredPartsOfFramesAreTold(t *testing.T) {
	var told []string
	m := &member{log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	m.census = &census{member: m, all: []peer.Member{{Name: "b", Instance: 7, PeerAddr: "10.0.0.2:7947"}}}
	r := &reports{member: m}
	m.config.PeerRefused = func(from, why string) { told = append(told, from+" "+why) }
	send := func(from peer.Instance, what string, times int) {
		for range times {
			r.Problem("a part of a frame was ignored", &core.NotCredibleError{From: from, What: what})
		}
	}
	expect := func(now time.Time, want ...string) {
		t.Helper()
		told = nil
		r.ofIgnored(now)
		slices.Sort(told)
		if !slices.Equal(told, want) {
			t.Errorf("told of %q, want %q", told, want)
		}
	}
	const (
		of7 = `10.0.0.2:7947 the member "b", instance 0000000000000007, sent an impossible value, and this part of its ` +
			`frames was ignored: `
		of8 = `unknown the member instance 0000000000000008, sent an impossible value, and this part of its frames was ` +
			`ignored: `
	)
	now := time.Now()
	expect(now)
	send(7, "a claim", 1000)
	send(7, "a batch", 1)
	send(8, "a claim", 2)
	expect(now, of7+"a batch, 1 times", of7+"a claim, 1000 times", of8+"a claim, 2 times")
	send(7, "a claim", 3)
	expect(now.Add(ignoredFor - 1))
	expect(now.Add(ignoredFor), of7+"a claim, 3 times")
	expect(now.Add(3 * ignoredFor))
	if n := len(r.failures.ignored.parts); n != 0 {
		t.Errorf("%d are remembered for ever", n)
	}
	for i := range 2 * maxIgnored {
		send(peer.Instance(i+100), "a claim", 1)
	}
	if n := len(r.failures.ignored.parts); n != maxIgnored {
		t.Errorf("%d are remembered", n)
	}
}

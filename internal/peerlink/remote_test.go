package peerlink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/peer"
)

func TestDelays(t *testing.T) {
	const ms = time.Millisecond
	l := &Links{config: Config{Rand: rand.New(rand.NewPCG(1, 1))}}
	for _, test := range []struct {
		state    peer.State
		dials    bool
		failures int
		from, to time.Duration
	}{
		{peer.Active, true, 0, 0, 0}, // at once
		{peer.Active, true, 1, 0, 0}, // and again
		{peer.Active, true, 2, 10 * ms, 20 * ms},
		{peer.Active, true, 3, 20 * ms, 40 * ms},
		{peer.Active, true, 6, 160 * ms, 320 * ms},
		{peer.Active, true, 7, 250 * ms, 500 * ms},
		{peer.Active, true, 1000, 250 * ms, 500 * ms},
		{peer.Active, false, 0, grace, grace},
		{peer.Active, false, 3, grace, grace},
		{peer.Active, false, 1000, 250 * ms, 500 * ms},
		{peer.Dead, true, 0, 500 * ms, 1000 * ms},
		{peer.Dead, true, 1, 500 * ms, 1000 * ms},
		{peer.Dead, true, 3, 1000 * ms, 2000 * ms},
		{peer.Dead, true, 1000, 2500 * ms, 5000 * ms},
	} {
		least, most := time.Hour, time.Duration(0)
		for range 200 {
			d := l.delay(test.failures, test.state, test.dials)
			least, most = min(least, d), max(most, d)
		}
		if least < test.from || most > test.to {
			t.Errorf("%+v: between %s and %s", test, least, most)
		}
		if test.to > test.from && most-least < (test.to-test.from)/2 {
			t.Errorf("%+v: the waits are hardly spread: %s to %s", test, least, most)
		}
	}
}

// TestWhichOfTwoSessionsStays tries every kind of session against every kind that is
// attached already.
func TestWhichOfTwoSessionsStays(t *testing.T) {
	begin := time.Now()
	for _, test := range []struct {
		name             string
		self             peer.Instance // the other is 5
		session, dialing bool
		ours             bool // the session is
		age              time.Duration
		admits           bool // one that the other dialled
	}{
		{"nothing there", 1, false, false, false, 0, true},
		{"we are to dial, and are at it", 1, false, true, false, 0, false},
		{"the other is to dial, we are at it too", 9, false, true, false, 0, true},
		{"we have just dialled, as we are to", 1, true, false, true, settled - 1, false},
		{"the one that we dialled is old, so it is dead over there", 1, true, false, true, settled, true},
		{"we have just dialled, but the other is to", 9, true, false, true, 0, true},
		{"the other dialled before", 1, true, false, false, 0, true},
	} {
		l := &Links{config: Config{Self: peer.Member{Instance: test.self}}, now: func() time.Time {
			return begin.Add(test.age)
		}}
		r := newRemote(l, 5)
		r.dialing, r.ours, r.since = test.dialing, test.ours, begin
		if test.session {
			r.session = new(session)
		}
		if err := r.admits(); (err == nil) != test.admits || err != nil && status.Code(err) != codes.Aborted {
			t.Errorf("%s: %v", test.name, err)
		}
		if !r.keeps(true) {
			t.Errorf("%s: one that we dial takes its place", test.name)
		}
	}
}

// TestProofs shows that a proof is valid for one side of one link.
func TestProofs(t *testing.T) {
	node := func(secret string, i peer.Instance) *handshake {
		return &handshake{self: peer.Member{Name: "n", Instance: i, Wire: Wire, PeerAddr: "n:7947"}, cluster: "c",
			secret: []byte(secret)}
	}
	a, b := node("secret", 1), node("secret", 2)
	ha, hb := a.hello(b.self), b.hello(peer.Member{})
	if bytes.Equal(ha.GetNonce(), hb.GetNonce()) {
		t.Error("two nonces are alike")
	}
	good := b.prove(sideDialled, ha, hb)
	if err := a.verify(sideDialled, ha, hb, good); err != nil {
		t.Errorf("a good proof is refused: %v", err)
	}
	for name, err := range map[string]error{
		"of the other side":  a.verify(sideDialler, ha, hb, good),
		"of another link":    a.verify(sideDialled, a.hello(b.self), hb, good),
		"of another answer":  a.verify(sideDialled, ha, b.hello(peer.Member{}), good),
		"of another secret":  a.verify(sideDialled, ha, hb, node("guess", 2).prove(sideDialled, ha, hb)),
		"none":               a.verify(sideDialled, ha, hb, nil),
		"one, and no secret": node("", 1).verify(sideDialled, ha, hb, good),
	} {
		if status.Code(err) != codes.FailedPrecondition {
			t.Errorf("a proof %s: %v", name, err)
		}
	}
	if err := node("", 1).verify(sideDialled, ha, hb, node("", 2).prove(sideDialled, ha, hb)); err != nil {
		t.Errorf("two nodes without a secret: %v", err)
	}
}

// deaf implements Frames and only counts calls of Down.
type deaf struct {
	Frames
	downs int
}

func (d *deaf) Up(peer.Instance)   {}
func (d *deaf) Down(peer.Instance) { d.downs++ }

// TestFailuresAreSaidOnce makes many attempts fail, from different ports and for two
// reasons in turn. Each reason is logged once until there is a connection, with the
// member and its address.
func TestFailuresAreSaidOnce(t *testing.T) {
	var log bytes.Buffer
	d := &deaf{}
	l := &Links{config: Config{Frames: d, Logger: slog.New(slog.NewTextHandler(&log, nil))}, now: time.Now}
	r := newRemote(l, 5)
	r.member = peer.Member{Name: "node-5", PeerAddr: "192.0.2.5:7947"}
	fail := func() (lines int) {
		log.Reset()
		for i := range 1000 {
			r.failed(fmt.Errorf("cannot connect: read tcp 192.0.2.1:%d->192.0.2.5:7947: connection reset by peer", 30000+i))
			r.failed(errors.New("cannot connect: i/o timeout"))
			r.failed(status.Error(codes.Aborted, "there is a connection already"))
		}
		return strings.Count(log.String(), "no connection to node \\\"node-5\\\" at 192.0.2.5:7947")
	}
	if lines := fail(); lines != 2 || strings.Count(log.String(), "\n") != 2 || d.downs != 2000 {
		t.Errorf("%d lines for two reasons, told down %d times:\n%s", lines, d.downs, log.String())
	}
	for i := range 26 {
		r.failed(errors.New("reason " + string(rune('a'+i))))
	}
	if lines := strings.Count(log.String(), "\n"); lines != maxLogged {
		t.Errorf("%d lines, want %d for any number of reasons", lines, maxLogged)
	}
	if err := r.attach(new(session), true); err != nil {
		t.Fatal(err)
	}
	r.session = nil
	r.live.Store(nil)
	if lines := fail(); lines != 2 {
		t.Errorf("%d lines after there was a connection:\n%s", lines, log.String())
	}
}

func TestReasons(t *testing.T) {
	for want, err := range map[string]error{
		"the other node closed the connection": io.EOF,
		"plain":                                errors.New("plain"),
		"told":                                 status.Error(codes.Unavailable, "told"),
		"no peer port of a Weir node":          status.Error(codes.Unimplemented, "unknown service"),
		"does not speak gRPC": status.Error(codes.Unavailable,
			"error reading server preface: http2: frame too large"),
		"as when the other node is ended": status.Error(codes.Unavailable,
			"error reading server preface: read tcp: connection reset by peer"),
		"ended before gRPC was spoken": status.Error(codes.Unavailable, "error reading server preface: EOF"),
	} {
		if got := reasonOf(err); !strings.Contains(got, want) {
			t.Errorf("%v is told as %q, without %q", err, got, want)
		}
	}
}

// TestTurnsOfStrangers: members that were never connected are dialled at once as far as
// the burst goes, and then one after the other. A pause gives the burst back.
func TestTurnsOfStrangers(t *testing.T) {
	var s strangers
	now := time.Unix(1_800_000_000, 0)
	for i := range strangersBurst {
		if at := s.turn(now); !at.Equal(now) {
			t.Fatalf("turn %d is %v late", i, at.Sub(now))
		}
	}
	for i := range 10 {
		if at, want := s.turn(now), time.Duration(i+1)*strangersEvery; at.Sub(now) != want {
			t.Errorf("turn %d beyond the burst is %v late, want %v", i+1, at.Sub(now), want)
		}
	}
	now = now.Add(10*strangersEvery + strangersBurst*strangersEvery)
	for range strangersBurst {
		if at := s.turn(now); !at.Equal(now) {
			t.Fatalf("after a pause a turn is %v late", at.Sub(now))
		}
	}
	if at := s.turn(now); at.Equal(now) {
		t.Error("there is no bound after a pause")
	}
}

// TestStrangersWaitForTheirTurn: a member that was never connected waits until strangers
// have had theirs, and until then the other side may connect. One that was connected
// before waits for nobody.
func TestStrangersWaitForTheirTurn(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	l := &Links{config: Config{Self: peer.Member{Instance: 1}}, now: func() time.Time { return at }}
	const before = 100_000 // turns, for some minutes
	for range strangersBurst + before {
		l.unmet.turn(at)
	}
	known, unknown := newRemote(l, 2), newRemote(l, 3)
	known.wanted, known.met, unknown.wanted = true, true, true
	if _, ok := known.await(t.Context(), 0); !ok || !known.dialing {
		t.Error("a member that was connected before waits for strangers")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan bool, 1)
	go func() {
		_, ok := unknown.await(ctx, 0)
		ended <- ok
	}()
	for asked := false; !asked; { // until it has a turn
		l.unmet.mu.Lock()
		asked = l.unmet.next.Equal(at.Add((before + 1) * strangersEvery))
		l.unmet.mu.Unlock()
		select {
		case <-ended:
			t.Fatal("it was dialled without a turn")
		default:
			runtime.Gosched()
		}
	}
	unknown.change() // what makes it look again
	if err := unknown.admits(); err != nil {
		t.Errorf("the other side may not connect meanwhile: %v", err)
	}
	cancel()
	if <-ended {
		t.Error("it was dialled before its turn")
	}
}

// A remote is described by what is known of it, and never by an empty address.
func TestDescribe(t *testing.T) {
	for want, m := range map[string]peer.Member{
		`node "a" at h:1`: {Name: "a", PeerAddr: "h:1"}, `node "a"`: {Name: "a"},
		"instance " + peer.Instance(7).String(): {PeerAddr: "h:1"},
	} {
		if got := (&remote{instance: 7, member: m}).describe(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

//go:build linux

package attack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// sound is a tally of every attack that did what it should.
func sound(keyed bool) map[string]Tally {
	done := make(map[string]Tally)
	for _, a := range of(keyed) {
		want := a.without
		if keyed {
			want = a.with
		}
		t := Tally{Sent: 10}
		if want == refused {
			t.Refused = 10
		}
		done[a.name] = t
	}
	return done
}

// An attack that did nothing makes the trial void, with its name, and one that a node
// should not have accepted breaks it.
func TestJudge(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		if err := Judge(sound(keyed), keyed); err != nil {
			t.Errorf("keyed %v: %v", keyed, err)
		}
		for _, a := range of(keyed) {
			done := sound(keyed)
			done[a.name] = Tally{}
			if err := Judge(done, keyed); !errors.Is(err, ErrVoid) || !strings.Contains(err.Error(), fmt.Sprintf("%q", a.name)) {
				t.Errorf("%s did nothing: %v", a.name, err)
			}
			done[a.name] = Tally{Sent: 10, Lost: 10}
			if err := Judge(done, keyed); !errors.Is(err, ErrVoid) {
				t.Errorf("%s reached nobody: %v", a.name, err)
			}
		}
	}
	done := sound(false)
	done["crowded keys"] = Tally{Sent: 10, Refused: 7, Lost: 3}
	if err := Judge(done, false); !errors.Is(err, ErrVoid) || !strings.Contains(err.Error(), "crowded keys") {
		t.Errorf("nothing of the crowd was accepted: %v", err)
	}
	done = sound(false)
	done["forged frames"] = Tally{Sent: 10, Refused: 9}
	if err := Judge(done, false); err == nil || errors.Is(err, ErrVoid) ||
		!strings.Contains(err.Error(), "forged frames") {
		t.Errorf("a forged frame was accepted: %v", err)
	}
}

// With keys, forged exchanges and borrowed names must be refused; without, gossip is
// open to all.
func TestKeysRefuseForgeries(t *testing.T) {
	done := sound(true)
	for _, name := range []string{"forged exchanges", "borrowed names"} {
		done[name] = Tally{Sent: 10, Refused: 9}
		if err := Judge(done, true); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	done = sound(false)
	if _, ok := done["borrowed names"]; ok {
		t.Error("who has no keys does not promise to refuse borrowed names")
	}
}

// An attack is idle that neither sends nor holds anything.
func TestIdle(t *testing.T) {
	before, after := sound(false), sound(false)
	for name, tally := range after {
		tally.Sent++
		after[name] = tally
	}
	if err := Idle(before, after, false); err != nil {
		t.Error(err)
	}
	after["silent gossip"] = Tally{Sent: before["silent gossip"].Sent, Held: 1}
	if err := Idle(before, after, false); err != nil {
		t.Error(err)
	}
	after["silent gossip"] = before["silent gossip"]
	if err := Idle(before, after, false); !errors.Is(err, ErrVoid) || !strings.Contains(err.Error(), "silent gossip") {
		t.Errorf("an attack stopped: %v", err)
	}
}

// What was not answered is neither accepted nor refused.
func TestTally(t *testing.T) {
	var c tally
	for _, err := range []error{
		nil, errClosed, fmt.Errorf("%w: reset", errClosed),
		&net.OpError{Op: "dial", Err: errors.New("refused")}, status.Error(codes.Unavailable, ""), context.DeadlineExceeded,
		status.Error(codes.InvalidArgument, ""),
	} {
		c.add(err)
	}
	c.hold()
	c.hold()()
	if got, want := c.now(), (Tally{Sent: 7, Refused: 3, Lost: 3, Held: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

//go:build linux

package attack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// expectation is what must become of an attack for it to have been one, and for the
// nodes to have withstood it.
type expectation uint8

const (
	// delivered: it reached the nodes. They may serve or refuse it.
	delivered expectation = iota
	// taken: the nodes must have accepted some of it, else it attacked nothing.
	taken
	// refused: the nodes must have refused all of it.
	refused
)

// attack is one way to do harm. It runs until the context ends.
type attack struct {
	name string
	run  func(ctx context.Context, c *Cluster, t *tally) error
	// without is what is expected of nodes without keys, with of nodes that have them.
	without, with expectation
	// keyedOnly: nodes without keys cannot withstand it, and do not promise to.
	keyedOnly bool
}

// of returns the attacks on clusters with or without keys.
func of(keyed bool) []attack {
	all := []attack{
		{name: "crowded keys", run: crowd, without: taken, with: taken},
		{name: "empty limits", run: emptyLimits, without: refused, with: refused},
		{name: "attribute columns", run: attributeColumns, without: refused, with: refused},
		{name: "request limits", run: distinctLimits, without: taken, with: taken},
		{name: "silent connections", run: silentConnections, without: delivered, with: delivered},
		{name: "half messages", run: halfMessages, without: delivered, with: delivered},
		{name: "trickled frames", run: trickledFrames, without: delivered, with: delivered},
		{name: "slow headers", run: slowHeaders, without: delivered, with: delivered},
		{name: "unread replies", run: unreadReplies, without: delivered, with: delivered},
		{name: "slow readers", run: slowReaders, without: taken, with: taken},
		{name: "slow batches", run: slowBatches, without: delivered, with: delivered},
		{name: "large calls", run: largeCalls, without: taken, with: taken},
		{name: "large bodies", run: largeBodies, without: refused, with: refused},
		{name: "watches", run: watches, without: taken, with: taken},
		{name: "watches of long names", run: longWatches, without: refused, with: refused},
		{name: "long paths", run: longPaths, without: refused, with: refused},
		{name: "rules in steps", run: stepped, without: taken, with: taken},
		{name: "silent probes", run: silentProbes, without: delivered, with: delivered},
		{name: "silent gossip", run: silentGossip, without: delivered, with: delivered},
		{name: "forged gossip", run: forgedGossip, without: delivered, with: delivered},
		{name: "forged exchanges", run: forgedExchanges, without: taken, with: refused},
		{name: "gossip bombs", run: gossipBombs, without: refused, with: refused},
		{name: "forged frames", run: forgedFrames, without: refused, with: refused},
		{name: "borrowed names", run: borrowedNames, with: refused, keyedOnly: true},
		{name: "refused handshakes", run: refusedHandshakes, without: refused, with: refused},
	}
	return slices.DeleteFunc(all, func(a attack) bool { return a.keyedOnly && !keyed })
}

// Tally counts what one attack did.
type Tally struct {
	// Sent counts the hostile messages, connections or checks. Refused are those that
	// the nodes answered with an error or cut off, Lost those that did not reach a node
	// or were not answered in time. The nodes accepted the rest.
	Sent, Refused, Lost uint64
	// Held is how many hostile connections and streams are open.
	Held int64
}

// reached returns how many reached a node, accepted how many a node accepted.
func (t *Tally) reached() uint64  { return t.Sent - t.Lost }
func (t *Tally) accepted() uint64 { return t.Sent - t.Lost - t.Refused }

// tally is a Tally that goroutines add to.
type tally struct {
	sent, refused, lost atomic.Uint64
	held                atomic.Int64
}

// now returns the counts so far. None is counted as refused or lost before it is counted
// as sent.
func (t *tally) now() Tally {
	refused, lost := t.refused.Load(), t.lost.Load()
	return Tally{Sent: t.sent.Load(), Refused: refused, Lost: lost, Held: t.held.Load()}
}

// add counts one message, by the error that became of it.
func (t *tally) add(err error) {
	t.sent.Add(1)
	switch {
	case err == nil:
	case isLost(err):
		t.lost.Add(1)
	default:
		t.refused.Add(1)
	}
}

// hold counts an open connection or stream until it is called.
func (t *tally) hold() func() {
	t.held.Add(1)
	return func() { t.held.Add(-1) }
}

// isLost reports whether an error says that there was no answer.
func isLost(err error) bool {
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
		return true
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return true
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// ErrVoid is the error of attacks that did nothing: what the nodes withstood is not
// known.
var ErrVoid = errors.New("the trial is void")

// Judge returns what is wrong with what was done in all: attacks that were none, which
// wrap [ErrVoid], and attacks of which the nodes accepted what they must refuse.
func Judge(done map[string]Tally, keyed bool) error {
	var errs []error
	for _, a := range of(keyed) {
		t, want := done[a.name], a.without
		if keyed {
			want = a.with
		}
		switch {
		case t.reached() == 0:
			errs = append(errs, fmt.Errorf("%w: the attack %q did nothing: %d sent, %d of them lost", ErrVoid, a.name, t.Sent,
				t.Lost))
		case want == taken && t.accepted() == 0:
			errs = append(errs, fmt.Errorf("%w: the nodes accepted nothing of the attack %q: %d sent, %d refused, %d lost",
				ErrVoid, a.name, t.Sent, t.Refused, t.Lost))
		case want == refused && t.accepted() > 0:
			errs = append(errs, fmt.Errorf("the nodes accepted %d of %d of the attack %q, which they must refuse", t.accepted(),
				t.Sent, a.name))
		}
	}
	return errors.Join(errs...)
}

// Idle returns an error that wraps [ErrVoid] and names the attacks that did nothing
// between two moments: they sent nothing and hold nothing open.
func Idle(before, after map[string]Tally, keyed bool) error {
	var errs []error
	for _, a := range of(keyed) {
		if t := after[a.name]; t.Sent == before[a.name].Sent && t.Held == 0 {
			errs = append(errs, fmt.Errorf("%w: the attack %q did nothing", ErrVoid, a.name))
		}
	}
	return errors.Join(errs...)
}

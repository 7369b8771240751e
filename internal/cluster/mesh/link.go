package mesh

import (
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// link is the outbox for one member, and the state of the connection to it.
//
// mu is taken after the lock of a partition or of the mesh. While it is held, only the
// locks of the tables are taken, to export counters into a frame.
type link struct {
	to peer.Instance
	up atomic.Bool // written with mu held

	mu   sync.Mutex
	out  outbox
	line line

	downAt limiter.Tick // when the connection went down
	// leaving means that the member said that it leaves, so it is not used as a relay.
	leaving bool
	// name is the name that the member gave on its own connection; "" before. No other
	// member can set it.
	name string
	// via is the member that last relayed a frame from this one, at relayedAt.
	via       peer.Instance
	relayedAt limiter.Tick
	// carriesSince is when the member was given requests to relay, if nothing came from it or by it
	// since; 0 otherwise.
	carriesSince limiter.Tick
	// heardAt is when something came last over the connection with the member; question is what
	// became of asking whether it is alive.
	heardAt  limiter.Tick
	question question

	// snapshots is how many snapshots are under way to the member, snapshotKeys how many
	// counters they have.
	snapshots, snapshotKeys int
	awake                   bool
}

// line is what is known of the frames that were sent directly, and of their arrival.
type line struct {
	// suspect means that what is sent directly does not seem to arrive, since suspectAt.
	suspect   bool
	suspectAt limiter.Tick
	number    uint64       // number of the last frame sent directly
	got       uint64       // highest number received directly
	lacks     uint64       // first number that the member has not confirmed; 0 if all are
	lacksAt   limiter.Tick // when that frame was sent
	expects   bool         // an answer is expected
	probedAt  limiter.Tick // when the last probe was sent
	rtt       limiter.Tick // smoothed round-trip time; 0 if not measured
}

// question is the question whether a member is alive that gossip calls dead. It was
// asked at `at`, and the answer was last looked for at lookedAt. waited is how long this
// node has waited for it.
type question struct{ at, lookedAt, waited limiter.Tick }

// send numbers a frame that is taken to be sent directly.
func (n *line) send(f *peer.Frame, now limiter.Tick) {
	n.number++
	f.Number, f.Got = n.number, n.got
	if n.lacks == 0 {
		n.lacks, n.lacksAt = n.number, now
	}
}

// confirmed records what an arriving frame says about the connection.
func (n *line) confirmed(f *peer.Frame, now limiter.Tick) {
	if !f.Relayed {
		n.got = max(n.got, f.Number)
	}
	switch {
	case n.lacks == 0:
	case f.Got >= n.number:
		n.lacks, n.suspect, n.expects = 0, false, false
	case f.Got >= n.lacks:
		n.lacks, n.lacksAt, n.suspect = f.Got+1, now, false
	case n.late(now):
		n.suspects(now)
	}
}

// suspects records that the connection is suspect.
func (n *line) suspects(now limiter.Tick) {
	if !n.suspect {
		n.suspect, n.suspectAt = true, now
	}
}

// late reports whether the confirmation that is missing should have come.
func (n *line) late(now limiter.Tick) bool { return now-n.lacksAt > max(suspectAfter, 3*n.rtt) }

// watch does what is due. busy means that it must be called again, probe that the member
// must be asked something.
func (n *line) watch(now limiter.Tick) (busy, probe bool) {
	if n.expects && n.lacks != 0 {
		busy = true
		if n.late(now) {
			n.suspects(now)
		}
		if now-n.lacksAt > silentAfter {
			n.expects = false // the member is silent: wait no longer until something is asked of it again
		}
	}
	if probe = n.suspect && now-n.probedAt >= probeEvery; probe {
		n.probedAt = now
	}
	return busy || n.suspect, probe
}

// measured adds a round trip to the smoothed time: the old value moves by an eighth of
// the difference. Times above a second count as a second.
func (n *line) measured(took limiter.Tick) {
	if took = min(took, limiter.Second); n.rtt == 0 {
		n.rtt = took
	} else {
		n.rtt += (took - n.rtt) / 8
	}
}

package cluster

import (
	"sync"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// link is the outbox for one member, and the state of the connection to it.
//
// mu is taken after the lock of a partition or linksMu. While it is held, only
// the locks of the tables (to export counters into a frame) and of an operation's shard
// are taken.
type link struct {
	to peer.Instance

	mu     sync.Mutex
	frames []*peer.Frame // full control frames, oldest first
	waits  int           // approximate bytes of frames
	asking []*peer.Frame // full frames of checks and refunds
	open   *peer.Frame   // the control frame being filled: everything except checks, refunds and bulk
	checks *peer.Frame   // the frame of checks and refunds being filled
	rule   *limiter.Rule // rule of the last check put into checks; nil if none
	ruleAt uint16        // its index in checks
	bulk   *peer.Frame   // the frame being filled with snapshots and pushes, sent after everything else
	bulks  []*peer.Frame // full frames of bulk
	drafts [2]draft      // of open and bulk
	draft  *draft        // the draft being written to

	relayed     []*peer.Frame // frames of other members, to be relayed to this member
	relayedSize int           // approximate bytes of relayed
	carried     []*peer.Frame // frames to other members, to be relayed by this member

	up     bool
	downAt limiter.Tick // when the connection went down
	// leaving means that the member said that it leaves, so it is not used as a relay.
	leaving bool
	// name is the name that the member gave on its own connection; "" before. No other
	// member can set it.
	name string
	// suspect means that what is sent directly does not seem to arrive.
	suspect  bool
	via      peer.Instance // the member that last relayed a frame from this one
	number   uint64        // number of the last frame sent directly
	got      uint64        // highest number received directly
	lacks    uint64        // first number that the member has not confirmed; 0 if all are
	lacksAt  limiter.Tick  // when that frame was sent
	asks     bool          // an answer is expected
	probedAt limiter.Tick  // when the last probe was sent
	heardAt  limiter.Tick  // when the last frame arrived directly from the member
	// challengedAt is when the member was asked whether it is alive, because gossip says
	// that it is dead. lookedAt is when an answer was last looked for. awaited is how
	// long this node has waited for one.
	challengedAt, lookedAt, awaited limiter.Tick

	rtt       limiter.Tick // smoothed round-trip time; 0 if not measured
	snapshots int          // snapshots under way to the member
	awake     bool
}

// queued returns how many frames wait for the member to take them.
func (l *link) queued() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.frames) + len(l.asking) + len(l.bulks) + len(l.relayed) + len(l.carried)
	for _, f := range []*peer.Frame{l.open, l.checks, l.bulk} {
		if f != nil && !f.Empty() {
			n++
		}
	}
	return n
}

// control returns the frame for everything except checks, refunds and bulk, with room
// for the given number of bytes. l.mu is held.
func (c *Core) control(l *link, bytes int) *peer.Frame {
	if l.open != nil && l.drafts[0].size+bytes > maxFrame {
		l.closeOpen()
	}
	if l.open == nil {
		l.open = c.frame(l.to)
		l.drafts[0].begin()
	}
	l.draft = &l.drafts[0]
	l.draft.size += bytes
	return l.open
}

// large returns the frame for snapshots and pushes, with room for the given number of
// bytes. l.mu is held.
func (c *Core) large(l *link, bytes int) *peer.Frame {
	if l.bulk != nil && l.drafts[1].size+bytes > maxBulk {
		l.closeBulk()
	}
	if l.bulk == nil {
		l.bulk = c.frame(l.to)
		l.drafts[1].begin()
	}
	l.draft = &l.drafts[1]
	l.draft.size += bytes
	return l.bulk
}

// draft describes a frame that is being filled.
type draft struct {
	size   int // in bytes, roughly
	limits map[*limiter.Limit]uint16
	last   *limiter.Limit // the limit that was added or found last
	lastAt uint16
}

func (d *draft) begin() {
	d.size = 0
	d.forget()
}

// forget clears the index of the frame's limits. Later ones are appended again.
func (d *draft) forget() {
	clear(d.limits)
	d.last = nil
}

func (l *link) closeBulk() {
	if l.bulk != nil && len(l.bulks) < maxFrames {
		l.bulks = append(l.bulks, l.bulk)
	}
	l.bulk = nil
}

func (l *link) closeOpen() {
	if l.open == nil {
		return
	}
	if !l.open.Empty() {
		l.queue(l.open)
	}
	l.open = nil
}

// queue adds a frame to the full control frames. It reports false if there is no room: a
// member that asks much and reads nothing can make only a bounded amount wait. One frame
// is always accepted, however large the counter in it. l.mu is held.
func (l *link) queue(f *peer.Frame) bool {
	size := weight(f)
	if n := len(l.frames); n >= maxFrames || n > 0 && l.waits+size > maxFramesSize {
		return false
	}
	l.frames = append(l.frames, f)
	l.waits += size
	return true
}

func (l *link) closeChecks() {
	if l.checks == nil {
		return
	}
	if !l.checks.Empty() && len(l.asking) < maxFrames {
		l.asking = append(l.asking, l.checks)
	}
	l.checks = nil
}

// send runs add, under the link's lock, on the frame for control messages to a member.
// bytes is roughly what add appends. asks means that an answer is expected.
func (c *Core) send(t *turn, to peer.Instance, bytes int, asks bool, add func(l *link, f *peer.Frame)) {
	c.write(t, to, asks, func(l *link) *peer.Frame { return c.control(l, bytes) }, add)
}

// sendLarge is send for the frame of snapshots and pushes; an answer is always expected.
func (c *Core) sendLarge(t *turn, to peer.Instance, bytes int, add func(l *link, f *peer.Frame)) {
	c.write(t, to, true, func(l *link) *peer.Frame { return c.large(l, bytes) }, add)
}

// write runs add on a frame for a member. If add panics, the frame is restored. It does
// nothing for this node itself and for instance 0.
func (c *Core) write(t *turn, to peer.Instance, asks bool, frame func(*link) *peer.Frame, add func(*link, *peer.Frame)) {
	if to == 0 || to == c.self {
		return
	}
	l := c.link(to)
	l.mu.Lock()
	defer l.mu.Unlock()
	f := frame(l)
	before, whole := *f, false
	defer func() {
		if !whole {
			*f = before
			l.draft.forget()
		}
	}()
	add(l, f)
	whole = true
	l.asks = l.asks || asks
	t.wake(l)
	t.arm = t.arm || asks
}

// Take returns the next frame to send to a member, nil if there is none. If checks is
// false, frames of checks stay queued. The caller owns the frame until it calls
// [Core.Release].
func (c *Core) Take(to peer.Instance, checks bool) *peer.Frame {
	l := c.link(to)
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.take(checks)
	if f != nil && f.From == c.self && f.To == to {
		l.number++
		f.Number, f.Got = l.number, l.got
		if l.lacks == 0 {
			l.lacks, l.lacksAt = l.number, c.sched.Now()
		}
	}
	return f
}

func (l *link) take(checks bool) *peer.Frame {
	switch {
	case len(l.carried) > 0:
		return shift(&l.carried)
	case len(l.relayed) > 0:
		f := shift(&l.relayed)
		l.relayedSize -= weight(f)
		return f
	case len(l.frames) > 0:
		f := shift(&l.frames)
		l.waits -= weight(f)
		return f
	case l.open != nil && !l.open.Empty():
		f := l.open
		l.open = nil
		return f
	case checks && len(l.asking) > 0:
		return shift(&l.asking)
	case checks && l.checks != nil && !l.checks.Empty():
		f := l.checks
		l.checks = nil
		return f
	case len(l.bulks) > 0:
		return shift(&l.bulks)
	case l.bulk != nil:
		f := l.bulk
		l.bulk = nil
		return f
	}
	return nil
}

func shift(q *[]*peer.Frame) *peer.Frame {
	f := (*q)[0]
	(*q)[0] = nil
	if *q = (*q)[1:]; len(*q) == 0 {
		*q = nil
	}
	return f
}

// confirmed records what a frame says about the connection. l.mu is held.
func (l *link) confirmed(f *peer.Frame, now limiter.Tick) {
	if !f.Relayed {
		l.got = max(l.got, f.Number)
	}
	switch {
	case l.lacks == 0:
	case f.Got >= l.number:
		l.lacks, l.suspect, l.asks = 0, false, false
	case f.Got >= l.lacks:
		l.lacks, l.lacksAt, l.suspect = f.Got+1, now, false
	case now-l.lacksAt > max(suspectAfter, 3*l.rtt):
		l.suspect = true
	}
}

// Release returns a frame that [Core.Take] returned. The caller must not use it any
// more.
func (c *Core) Release(f *peer.Frame) {
	// A frame that is to be relayed may be queued for several members, so it is not
	// reused.
	if f.From == c.self && f.Number != 0 && cap(f.Entries) <= maxKept {
		c.frames.Put(f)
	}
}

// frame returns an empty frame from this node to a member.
func (c *Core) frame(to peer.Instance) *peer.Frame {
	f := c.frames.Get().(*peer.Frame)
	f.Reset()
	f.From, f.To = c.self, to
	return f
}

// Up reports that a member can be reached directly.
func (c *Core) Up(i peer.Instance) {
	t := c.begin()
	defer t.end()
	defer t.catch()
	c.linksMu.Lock() // so that the link is not removed meanwhile
	l := c.linkLocked(i)
	l.mu.Lock()
	l.up, l.suspect, l.lacks, l.asks = true, false, 0, false
	l.got = 0 // confirm only frames that arrive from now on
	l.mu.Unlock()
	c.linksMu.Unlock()
	c.introduce(t, i)
	for _, p := range c.parts {
		c.in(t, p, func(r *replica.Replica, s *replica.Turn) { r.Connected(s, i) })
	}
}

// Down reports that a member cannot be reached directly, and that what was sent and not
// answered may be lost. It may be called again for each failed attempt to connect.
func (c *Core) Down(i peer.Instance) {
	t := c.begin()
	defer t.end()
	defer t.catch()
	l := c.links.Load().byID[i]
	if l == nil { // attempts to reach a member that is long gone need no link
		c.ops.lost(t, i)
		return
	}
	l.mu.Lock()
	was := l.up
	l.up = false
	l.snapshots = 0
	carried, relayed := l.carried, l.relayed
	l.carried, l.relayed, l.relayedSize = nil, nil, 0
	if was {
		l.downAt = t.now
		t.wake(l)
	}
	l.mu.Unlock()
	if was {
		c.news()
	}
	c.ops.lost(t, i)
	c.carryOn(t, carried)
	for _, f := range relayed {
		c.sendLost(t, f)
	}
}

// reachable reports whether there is a direct connection to a member.
func (c *Core) reachable(i peer.Instance) bool {
	l := c.links.Load().byID[i]
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up
}

// watch marks connections whose member does not confirm frames as suspect, and probes
// those that are, so that their recovery is noticed. It reports whether it must run
// again.
func (c *Core) watch(t *turn) (busy bool) {
	for _, l := range c.links.Load().list {
		l.mu.Lock()
		if l.up && l.asks && l.lacks != 0 {
			busy = true
			if t.now-l.lacksAt > max(suspectAfter, 3*l.rtt) {
				l.suspect = true
			}
			if t.now-l.lacksAt > replica.GoneAfter {
				l.asks = false // the member is silent: wait no longer until something is asked of it again
			}
		}
		probe := l.up && l.suspect && t.now-l.probedAt >= probeEvery
		if probe {
			l.probedAt = t.now
		}
		busy = busy || l.up && l.suspect
		l.mu.Unlock()
		if probe && c.view.Load().Has(l.to) {
			c.probe(t, l.to)
		}
	}
	return busy
}

// probe sends a member a question that it answers in every state.
func (c *Core) probe(t *turn, to peer.Instance) {
	if len(c.parts) == 0 {
		return
	}
	q := peer.Claim{Partition: c.parts[0].id, Kind: peer.Ask}
	c.sendClaim(t, to, q, false)
}

// measured adds a round trip to the smoothed time of a link: the old value moves by an
// eighth of the difference. Times above a second count as a second.
func (c *Core) measured(to peer.Instance, took limiter.Tick) {
	l := c.link(to)
	l.mu.Lock()
	defer l.mu.Unlock()
	if took = min(took, limiter.Second); l.rtt == 0 {
		l.rtt = took
	} else {
		l.rtt += (took - l.rtt) / 8
	}
}

// patience returns span, or three round trips to a member if that is longer.
func (c *Core) patience(to peer.Instance, span limiter.Tick) limiter.Tick {
	l := c.link(to)
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(span, 3*l.rtt)
}

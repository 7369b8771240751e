package cluster

import (
	"sync"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// link is what there is to say to one member, and what was asked of it. Its
// lock is taken last: under those of partitions and of the table.
type link struct {
	to peer.Instance

	mu     sync.Mutex
	frames []*peer.Frame // full ones, in order
	waits  int           // bytes of those, roughly
	asking []*peer.Frame // full ones of checks and refunds
	open   *peer.Frame   // all but checks and refunds
	checks *peer.Frame   // checks and refunds
	rule   *limiter.Rule // of the last check put into checks, nil: none
	ruleAt uint16        // its index there
	bulk   *peer.Frame   // snapshots and the like, which checks do not wait for
	bulks  []*peer.Frame // full ones
	drafts [2]draft      // of open and bulk
	draft  *draft        // the one that is written to

	relayed     []*peer.Frame // of others, to be passed on to this member
	relayedSize int           // in bytes, roughly
	carried     []*peer.Frame // to others, to be passed on by this member

	up     bool
	downAt limiter.Tick // since when it is not
	// leaving: the member said so. It passes nothing on for long.
	leaving bool
	// name is what the member said on its own connection that it is called, "" before.
	// Nobody else can say so of it.
	name string
	// suspect: what is sent does not seem to arrive.
	suspect  bool
	via      peer.Instance // who passed something on from the member last
	number   uint64        // of the last frame sent directly
	got      uint64        // the highest number received
	lacks    uint64        // the first number that the member has not confirmed, 0: none
	lacksAt  limiter.Tick  // when it was sent
	asks     bool          // an answer is expected
	probedAt limiter.Tick  // when it was asked whether it is in reach
	heardAt  limiter.Tick  // when a frame came from it directly
	// challengedAt is when it was asked whether it is alive, as gossip says that it is not;
	// lookedAt is when an answer was last looked for, and awaited for how long one was.
	challengedAt, lookedAt, awaited limiter.Tick

	rtt       limiter.Tick // of a message and its answer, smoothed
	snapshots int          // on their way
	awake     bool
}

// queued is how many frames wait until the member takes them.
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

// control returns the frame for everything but checks and refunds; l.mu is held.
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

// large returns the frame for what is large and can wait; l.mu is held.
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

// draft is what is known of a frame that is being filled.
type draft struct {
	size   int // in bytes, roughly
	limits map[*limiter.Limit]uint16
	last   *limiter.Limit // the one that was added or looked for last
	lastAt uint16
}

func (d *draft) begin() {
	d.size = 0
	d.forget()
}

// forget forgets which limits the frame has: those to come are added again.
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

// queue adds to the full frames, and reports false where there is no room: a member that
// asks much and reads nothing makes no more wait than this. One frame there may always be,
// however large the counter in it. l.mu is held.
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

// send runs add on the frame for control messages to a member, of which it adds
// so many bytes; asks tells that an answer is expected.
func (c *Core) send(t *turn, to peer.Instance, bytes int, asks bool, add func(l *link, f *peer.Frame)) {
	c.write(t, to, asks, func(l *link) *peer.Frame { return c.control(l, bytes) }, add)
}

// sendLarge does the same on the frame for what is large.
func (c *Core) sendLarge(t *turn, to peer.Instance, bytes int, add func(l *link, f *peer.Frame)) {
	c.write(t, to, true, func(l *link) *peer.Frame { return c.large(l, bytes) }, add)
}

// write runs add on a frame for a member. If it panics, the frame is as it was.
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

// Take returns what is to be sent to a member now, nil if there is nothing. With
// checks false, checks are held back. The frame is the caller's until Release.
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

// confirmed takes note of what a frame says of the connection. l.mu is held.
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

// Release gives a frame back that Take returned.
func (c *Core) Release(f *peer.Frame) {
	// One that is to be passed on may be on its way to several.
	if f.From == c.self && f.Number != 0 && cap(f.Entries) <= maxKept {
		c.frames.Put(f)
	}
}

// frame returns an empty frame for a member.
func (c *Core) frame(to peer.Instance) *peer.Frame {
	f := c.frames.Get().(*peer.Frame)
	f.Reset()
	f.From, f.To = c.self, to
	return f
}

// Up tells that a member can be reached directly.
func (c *Core) Up(i peer.Instance) {
	t := c.begin()
	defer t.end()
	defer t.catch()
	c.linksMu.Lock() // so that it is not forgotten meanwhile
	l := c.linkLocked(i)
	l.mu.Lock()
	l.up, l.suspect, l.lacks, l.asks = true, false, 0, false
	l.got = 0 // whoever was connected before: it is told what comes from now on
	l.mu.Unlock()
	c.linksMu.Unlock()
	c.introduce(t, i)
	for _, p := range c.parts {
		c.in(t, p, func(p *part) { p.connected(t, i) })
	}
}

// Down tells that a member cannot be reached directly, and that what was sent
// and not answered may be lost. It may be told again at each failed attempt.
func (c *Core) Down(i peer.Instance) {
	t := c.begin()
	defer t.end()
	defer t.catch()
	l := c.links.Load().byID[i]
	if l == nil { // attempts go on to reach who is gone for long, and need no link
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
		c.word()
	}
	c.ops.lost(t, i)
	c.carryOn(t, carried)
	for _, f := range relayed {
		c.sendLost(t, f)
	}
}

// reachable tells whether there is a direct connection that is not silent.
func (c *Core) reachable(i peer.Instance) bool {
	l := c.links.Load().byID[i]
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up
}

// watch looks for members that do not answer, and asks those that seem out of
// reach whether they still are: else nobody would notice that they came back.
func (c *Core) watch(t *turn) (busy bool) {
	for _, l := range c.links.Load().list {
		l.mu.Lock()
		if l.up && l.asks && l.lacks != 0 {
			busy = true
			if t.now-l.lacksAt > max(suspectAfter, 3*l.rtt) {
				l.suspect = true
			}
			if t.now-l.lacksAt > goneAfter {
				l.asks = false // it is silent, and asked again when there is a reason
			}
		}
		probe := l.up && l.suspect && t.now-l.probedAt >= probeEvery
		if probe {
			l.probedAt = t.now
		}
		busy = busy || l.up && l.suspect
		l.mu.Unlock()
		if probe && c.view.Load().has(l.to) {
			c.probe(t, l.to)
		}
	}
	return busy
}

// probe asks a member something that it answers whatever it is.
func (c *Core) probe(t *turn, to peer.Instance) {
	if len(c.parts) == 0 {
		return
	}
	q := peer.Claim{Partition: c.parts[0].id, Kind: peer.Ask}
	c.send(t, to, 40, false, func(_ *link, f *peer.Frame) { f.Claims = append(f.Claims, q) })
}

// measured takes note of how long an answer took.
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

// patience returns a span, or three round trips to a member if that is more.
func (c *Core) patience(to peer.Instance, span limiter.Tick) limiter.Tick {
	l := c.link(to)
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(span, 3*l.rtt)
}

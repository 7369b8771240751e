package mesh

import (
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"slices"
)

// Up records that a member can be reached directly.
func (m *Mesh) Up(i peer.Instance) {
	m.mu.Lock() // so that the link is not removed meanwhile
	defer m.mu.Unlock()
	l := m.linkLocked(i)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up.Store(true)
	l.line.suspect, l.line.lacks, l.line.expects = false, 0, false
	l.line.got = 0 // confirm only frames that arrive from now on
	l.carriesSince = 0
}

// Stranded is what a member that went down was to relay, see [Writer.Redirect].
type Stranded struct{ carried, relayed []*peer.Frame }

// Down records that a member cannot be reached directly. was reports whether it could
// be. It may be called again for each failed attempt to connect.
func (w *Writer) Down(i peer.Instance, now limiter.Tick) (s Stranded, was bool) {
	l := w.mesh.links.Load().byID[i]
	if l == nil { // attempts to reach a member that is long gone need no link
		return Stranded{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	was = l.up.Load()
	l.up.Store(false)
	l.snapshots, l.snapshotKeys = 0, 0
	s = Stranded{carried: l.out.carried, relayed: l.out.relayed}
	l.out.carried, l.out.relayed, l.out.relayedSize = nil, nil, 0
	if was {
		l.downAt = now
		w.wake(l)
	}
	return s, was
}

// Reachable reports whether there is a direct connection to a member. It takes no lock.
func (m *Mesh) Reachable(i peer.Instance) bool {
	l := m.links.Load().byID[i]
	return l != nil && l.up.Load()
}

// silentFrom is how long a connection must have been suspect, or down, before its member is silent: what was late by
// less than 100 ms in all is not.
const silentFrom = 100*limiter.Millisecond - suspectAfter

// Silent reports whether a member was connected to this node and cannot be reached now, directly or by a relay: its
// connection is down, or confirms nothing. One that leaves is not silent: it ends its connections.
func (m *Mesh) Silent(i peer.Instance, now limiter.Tick) bool {
	l := m.links.Load().byID[i]
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leaving || l.relayedAt != 0 && now-l.relayedAt < freshFor {
		return false
	}
	if l.up.Load() {
		return l.line.suspect && now-l.line.suspectAt >= silentFrom
	}
	return l.downAt != 0 && now-l.downAt >= silentFrom
}

// Quiet reports whether a member is connected to this node, and nothing came from it for a while.
func (m *Mesh) Quiet(i peer.Instance, now limiter.Tick) bool {
	l := m.links.Load().byID[i]
	if l == nil || !l.up.Load() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return now-l.heardAt >= freshFor
}

// AnyUp reports whether there is a direct connection to any member.
func (m *Mesh) AnyUp() bool {
	return slices.ContainsFunc(m.links.Load().list, func(l *link) bool { return l.up.Load() })
}

// Received records what an arriving frame says about the connection to its sender.
func (m *Mesh) Received(f *peer.Frame, now limiter.Tick) {
	if by := m.links.Load().byID[f.Via]; f.Relayed && by != nil {
		by.mu.Lock()
		by.heardAt, by.carriesSince = now, 0
		by.mu.Unlock()
	}
	l := m.link(f.From)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line.confirmed(f, now)
	if f.Relayed {
		l.via, l.relayedAt = f.Via, now
	} else {
		l.heardAt, l.carriesSince = now, 0
	}
}

// Watch marks connections whose member does not confirm frames as suspect, and probes
// those that are, so that their recovery is noticed. It reports whether it must run
// again.
func (w *Writer) Watch(now limiter.Tick) (busy bool) {
	for _, l := range w.mesh.links.Load().list {
		if !l.up.Load() {
			continue
		}
		l.mu.Lock()
		more, probe := l.line.watch(now)
		l.mu.Unlock()
		busy = busy || more
		if probe && w.mesh.config.View().Has(l.to) {
			w.ask(l.to, false)
		}
	}
	return busy
}

// Ask asks a member what it answers in every state. If the answer does not come, its connection becomes suspect.
func (w *Writer) Ask(to peer.Instance) { w.ask(to, true) }

func (w *Writer) ask(to peer.Instance, expects bool) {
	if p := w.mesh.config.Probe; p >= 0 {
		w.Claim(to, peer.Claim{Partition: uint16(p), Kind: peer.Ask}, expects)
	}
}

// Restart restarts all waits for confirmations: this node was paused, and they may have
// arrived.
func (m *Mesh) Restart(now limiter.Tick) {
	for _, l := range m.links.Load().list {
		l.mu.Lock()
		l.line.lacksAt, l.line.suspect, l.carriesSince = now, false, 0
		l.mu.Unlock()
	}
}

// Measured records the time of a round trip to a member.
func (m *Mesh) Measured(to peer.Instance, took limiter.Tick) {
	l := m.link(to)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line.measured(took)
}

// Patience returns span, or three round trips to a member if that is longer.
func (m *Mesh) Patience(to peer.Instance, span limiter.Tick) limiter.Tick {
	l := m.link(to)
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(span, 3*l.line.rtt)
}

// The bounds of the snapshots under way to one member. Checks that are sent later wait
// until the member has imported those before: 4,096 counters take it some milliseconds. One
// snapshot may always be under way.
const (
	maxSnapshots    = 16
	maxSnapshotKeys = 1 << 12 // counters
)

// BeginSnapshot counts a snapshot of so many counters to a member. It reports false, and
// counts nothing, if too many snapshots or counters are under way to it.
func (m *Mesh) BeginSnapshot(to peer.Instance, counters int) bool {
	l := m.link(to)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.snapshots >= maxSnapshots || l.snapshots > 0 && l.snapshotKeys+counters > maxSnapshotKeys {
		return false
	}
	l.snapshots++
	l.snapshotKeys += counters
	return true
}

// EndSnapshot makes room for other snapshots to a member.
func (m *Mesh) EndSnapshot(to peer.Instance, counters int) {
	l := m.link(to)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.snapshots, l.snapshotKeys = max(0, l.snapshots-1), max(0, l.snapshotKeys-counters)
}

// Introduced records the name that a member gave on its own connection, and whether it
// said that it leaves.
func (m *Mesh) Introduced(k peer.Known) {
	l := m.link(k.Instance)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.name, l.leaving = k.Name, l.leaving || k.Gone
}

// LinkedAs reports whether the link to an instance is up and the instance gave that name
// on it.
func (m *Mesh) LinkedAs(i peer.Instance, name string) bool {
	l := m.links.Load().byID[i]
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up.Load() && l.name == name
}

// NameOf returns the name that an instance gave on its link; "" if the link is not up, or it gave
// none.
func (m *Mesh) NameOf(i peer.Instance) string {
	l := m.links.Load().byID[i]
	if l == nil {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.up.Load() {
		return ""
	}
	return l.name
}

const (
	// answersWithin is how long a member with a link may take to answer after gossip
	// calls it dead. freshFor is how long after a message from it it is not asked again, and after a relayed one not
	// silent.
	answersWithin = 500 * limiter.Millisecond
	freshFor      = 250 * limiter.Millisecond
	// lookGap is the most that the time between two looks for an answer adds to the
	// wait. Reviews of the membership are 100 ms apart.
	lookGap = 150 * limiter.Millisecond
)

// Answers reports whether a member that gossip calls dead is alive: its link is up and a
// message from it arrived within freshFor. Otherwise Answers sends it a question. If
// patient, the member then counts as alive for answersWithin.
func (w *Writer) Answers(i peer.Instance, patient bool, now limiter.Tick) bool {
	l := w.mesh.links.Load().byID[i]
	if l == nil {
		return false
	}
	alive, ask := l.answers(patient, now)
	if ask {
		w.ask(i, false)
	}
	return alive
}

// answers is the part of [Writer.Answers] under the lock. ask means that the member must
// be asked.
func (l *link) answers(patient bool, now limiter.Tick) (alive, ask bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.up.Load() {
		return false, false
	}
	if l.heardAt != 0 && now-l.heardAt < freshFor {
		return true, false
	}
	q := &l.question
	asked := q.at > l.heardAt
	if asked {
		// In a longer gap this node was paused, and the answer may have arrived
		// meanwhile.
		q.waited += min(now-q.lookedAt, lookGap)
		q.lookedAt = now
	}
	if asked && (patient || q.waited < answersWithin) {
		return patient && q.waited < answersWithin, false
	}
	*q = question{at: now, lookedAt: now}
	return patient, true
}

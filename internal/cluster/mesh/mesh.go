package mesh

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// The times of links, in the time of [Config.Now].
const (
	// ForgetAfter is how long an instance must be out of the view and out of reach
	// before it is forgotten.
	ForgetAfter = limiter.Minute

	suspectAfter = 30 * limiter.Millisecond // a connection silent this long is helped by relays
	probeEvery   = 20 * limiter.Millisecond // interval of probes of a suspect connection
	silentAfter  = limiter.Second           // after this time without a confirmation none is expected any more
)

// Config configures a [Mesh]. All fields are required unless their comment says
// otherwise. The functions may be called from many goroutines and must not block.
type Config struct {
	Self peer.Instance
	// Now returns the present time of the node's clock.
	Now func() limiter.Tick
	// View returns the members as this node sees them.
	View func() *view.View
	// Wake tells the network that frames wait for a member.
	Wake func(to peer.Instance)
	// Waiting reports whether somebody waits for the reply to a request of this node.
	Waiting func(id uint64) bool
	// Relayed is called for each frame that is given to other members to relay.
	Relayed func()
	// Counters has the counters that batches carry.
	Counters Counters
	// Probe is a partition that every member can be asked about; -1 means that silent
	// members are not asked.
	Probe int
	// Fault, unless nil, is called with the partition's number in the middle of a batch.
	// Tests panic in it.
	Fault func(partition uint16)
}

// Counters exports the counters of keys. [table.Table] does.
type Counters interface {
	PrefetchKey(partition int, hi uint64)
	ExportKey(partition int, hi uint64, now limiter.Tick, visit func(table.Entry))
	ExportIDs(partition int, after uint64, now limiter.Tick, visit func(table.ID)) (came uint64)
}

// Mesh is this node's links to all other instances. It is safe for concurrent use. What
// is said to members goes through a [Writer].
type Mesh struct {
	config   Config
	links    atomic.Pointer[linkSet]
	mu       sync.Mutex // held while a link is created, removed or marked up
	numbered uint64     // highest frame number sent on any link that was removed
	frames   sync.Pool  // of peer.Frame
	rotation atomic.Uint32
}

// New returns a mesh without links.
func New(c Config) *Mesh {
	m := &Mesh{config: c}
	m.frames.New = func() any { return new(peer.Frame) }
	m.links.Store(&linkSet{byID: map[peer.Instance]*link{}})
	return m
}

// linkSet is the set of all links. It is immutable.
type linkSet struct {
	byID map[peer.Instance]*link
	list []*link // sorted by instance
}

// link returns the link to an instance and creates it if necessary. The link to an
// instance that is not in the view and was never connected is not kept: what is sent on
// it goes to a relay at the end of the turn. So frames from invented instances use no
// memory here.
func (m *Mesh) link(to peer.Instance) *link {
	if l, ok := m.links.Load().byID[to]; ok {
		return l
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.links.Load().byID[to] == nil && !m.config.View().Has(to) {
		return m.newLink(to)
	}
	return m.linkLocked(to)
}

// newLink returns a link that is not kept. m.mu is held.
func (m *Mesh) newLink(to peer.Instance) *link {
	// The member may have received higher numbers from this node earlier. It would
	// confirm those, and lower ones would count as confirmed by that.
	l := &link{to: to, downAt: m.config.Now()}
	l.line.number = m.numbered
	return l
}

// linkLocked is link for callers that hold m.mu; it always keeps the link.
func (m *Mesh) linkLocked(to peer.Instance) *link {
	have := m.links.Load()
	if l, ok := have.byID[to]; ok {
		return l
	}
	l := m.newLink(to)
	next := &linkSet{byID: maps.Clone(have.byID), list: append(slices.Clone(have.list), l)}
	next.byID[to] = l
	slices.SortFunc(next.list, func(a, b *link) int { return cmp.Compare(a.to, b.to) })
	m.links.Store(next)
	return l
}

// ForgetEnded removes the links to instances that have been out of the view and out of
// reach for [ForgetAfter]. Most of them have ended, and a name that restarts again and
// again would otherwise use ever more memory. An instance that returns later is treated
// as new.
func (m *Mesh) ForgetEnded(now limiter.Tick) {
	v := m.config.View()
	m.mu.Lock()
	defer m.mu.Unlock()
	have := m.links.Load()
	ended := func(l *link) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		over := !l.up.Load() && now-l.downAt >= ForgetAfter && !v.Has(l.to)
		if over {
			m.numbered = max(m.numbered, l.line.number)
		}
		return over
	}
	list := slices.DeleteFunc(slices.Clone(have.list), ended)
	if len(list) == len(have.list) {
		return
	}
	next := &linkSet{byID: make(map[peer.Instance]*link, len(list)), list: list}
	for _, l := range list {
		next.byID[l.to] = l
	}
	m.links.Store(next)
}

// Take returns the next frame to send to a member, nil if there is none. If requests is
// false, frames of checks stay queued. The caller owns the frame until it calls
// [Mesh.Release].
func (m *Mesh) Take(to peer.Instance, requests bool) *peer.Frame {
	l := m.link(to)
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.out.take(requests)
	if f != nil && f.From == m.config.Self && f.To == to {
		l.line.send(f, m.config.Now())
	}
	return f
}

// maxKept is the largest number of entries that a frame has room for and is still
// reused.
const maxKept = 1 << 13

// Release returns a frame that [Mesh.Take] returned. The caller must not use it any
// more.
func (m *Mesh) Release(f *peer.Frame) {
	// A frame that is to be relayed may be queued for several members, so it is not
	// reused.
	if f.From == m.config.Self && f.Number != 0 && cap(f.Entries) <= maxKept {
		m.frames.Put(f)
	}
}

// frame returns an empty frame from this node to a member.
func (m *Mesh) frame(to peer.Instance) *peer.Frame {
	f := m.frames.Get().(*peer.Frame)
	f.Reset()
	f.From, f.To = m.config.Self, to
	return f
}

// Size returns the number of links, and of frames that wait for a member to take them.
func (m *Mesh) Size() (links, queued int) {
	list := m.links.Load().list
	for _, l := range list {
		l.mu.Lock()
		queued += l.out.queued()
		l.mu.Unlock()
	}
	return len(list), queued
}

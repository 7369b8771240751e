package cluster

import (
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Bounds of the notes of one member that wait to be read. Further ones are dropped: its questions have no answer, and
// news it tells again.
const (
	noteQueue = 128     // notes
	noteBytes = 4 << 20 // of their texts
	noteRate  = 100     // a second
	noteBurst = 256
)

// inbox has the notes of other members that wait to be read. Each member has a place of its own, and they are read in
// turn, of each one at a time, so that none delays or crowds out the notes of another, whatever it asks.
type inbox struct {
	mu       sync.Mutex
	of       map[peer.Instance]*sender
	turn     []*sender // that have notes of which none is being read, the next to be read first
	came     chan struct{}
	rate     *limiter.Limit
	decision limiter.Decision
}

type sender struct {
	instance peer.Instance
	notes    []peer.Note
	bytes    int
	reading  bool // one of its notes is being read
	rate     *arith.Counter
}

func newInbox() (*inbox, error) {
	rate, err := limiter.NewLimit(limiter.Spec{Algorithm: limiter.TokenBucket, Limit: noteRate, Burst: noteBurst,
		Window: time.Second})
	return &inbox{of: map[peer.Instance]*sender{}, came: make(chan struct{}, answerers), rate: rate}, err
}

// put puts a note of a member into its place, or drops it. It never waits for a reader.
func (b *inbox) put(from peer.Instance, n peer.Note, now limiter.Tick) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.of[from]
	if s == nil {
		s = &sender{instance: from, rate: arith.NewCounter(b.rate)}
		b.of[from] = s
	}
	if len(s.notes) >= noteQueue || s.bytes+len(n.Text) > noteBytes {
		return false
	}
	if n.Kind != met {
		if s.rate.Check(now, 1, &b.decision); !b.decision.Allowed {
			return false
		}
	}
	if len(s.notes) == 0 && !s.reading {
		b.turn = append(b.turn, s)
	}
	s.notes = append(s.notes, n)
	s.bytes += len(n.Text)
	select {
	case b.came <- struct{}{}:
	default: // enough are awake
	}
	return true
}

// take returns the note whose turn it is, and who sent it, nil if there is none. The caller calls done when it has read
// it.
func (b *inbox) take() (from *sender, n peer.Note) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.turn) == 0 {
		return nil, n
	}
	s := b.turn[0]
	b.turn = slices.Delete(b.turn, 0, 1)
	n = s.notes[0]
	s.notes = slices.Delete(s.notes, 0, 1)
	s.bytes -= len(n.Text)
	s.reading = true
	return s, n
}

// done lets the next note of a sender be read.
func (b *inbox) done(s *sender) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.reading = false; len(s.notes) > 0 && b.of[s.instance] == s {
		b.turn = append(b.turn, s)
	}
}

// keep forgets all whom is does not name.
func (b *inbox) keep(is map[peer.Instance]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.of {
		if !is[i] {
			delete(b.of, i)
		}
	}
	b.turn = slices.DeleteFunc(b.turn, func(s *sender) bool { return !is[s.instance] })
}

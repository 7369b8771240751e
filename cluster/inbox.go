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
// turn, so that none delays or crowds out the notes of another.
type inbox struct {
	mu       sync.Mutex
	of       map[peer.Instance]*sender
	turn     []*sender // that have notes, the next to be read first
	came     chan struct{}
	rate     *limiter.Limit
	decision limiter.Decision
}

type sender struct {
	instance peer.Instance
	notes    []peer.Note
	bytes    int
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
	if len(s.notes) == 0 {
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

// take returns the note whose turn it is, false if there is none.
func (b *inbox) take() (from peer.Instance, n peer.Note, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.turn) == 0 {
		return from, n, false
	}
	s := b.turn[0]
	b.turn = slices.Delete(b.turn, 0, 1)
	n = s.notes[0]
	s.notes = slices.Delete(s.notes, 0, 1)
	if s.bytes -= len(n.Text); len(s.notes) > 0 {
		b.turn = append(b.turn, s)
	}
	return s.instance, n, true
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

package peerlink

import (
	"sync"
	"time"
)

// Attempts to connect to members to which there was no connection yet are bounded, as
// without a gossip key strangers can invent members at any address: 512 at a time, each
// of which would be dialled three times a second. The burst is enough for the largest
// cluster to start at once.
const (
	strangersBurst = 1024
	strangersEvery = 10 * time.Millisecond
)

// strangers gives turns to attempts to connect. It is safe for concurrent use.
type strangers struct {
	mu   sync.Mutex
	next time.Time // when the next turn would be, were there no burst
}

// turn returns when the next attempt may be made. Turns are given in the order in which
// they are asked for. One that is not used is lost.
func (s *strangers) turn(now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if earliest := now.Add(-strangersBurst * strangersEvery); s.next.Before(earliest) {
		s.next = earliest
	}
	s.next = s.next.Add(strangersEvery)
	if s.next.Before(now) {
		return now
	}
	return s.next
}

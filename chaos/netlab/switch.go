package netlab

import (
	"container/heap"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"
)

// mostQueued bounds the frames that wait for one station; more are dropped, and
// counted.
const mostQueued = 8192

// Counts tells what a switch did with the frames of one direction of a link.
type Counts struct {
	// Carried frames arrived, of which Twice a second time, and Overtaken after one
	// that was sent later.
	Carried, Twice, Overtaken uint64
	// Dropped frames were lost, cut off or blocked, or found no bandwidth; Overflowed
	// ones found no room in the switch.
	Dropped, Overflowed uint64
	// Bytes is the size of those that arrived, Held how long they were under way, in
	// all.
	Bytes uint64
	Held  time.Duration
}

// Since returns what was done since there were so many.
func (c Counts) Since(before Counts) Counts {
	return Counts{
		Carried: c.Carried - before.Carried, Twice: c.Twice - before.Twice, Overtaken: c.Overtaken - before.Overtaken,
		Dropped: c.Dropped - before.Dropped, Overflowed: c.Overflowed - before.Overflowed, Bytes: c.Bytes - before.Bytes,
		Held: c.Held - before.Held,
	}
}

// Switch carries frames between stations. It learns nothing: it is told which
// address is whose. It is safe for concurrent use.
type Switch struct {
	mu       sync.Mutex
	seed     uint64
	stations []*station
	links    map[[2]int]*direction
	serving  sync.WaitGroup
}

// station is where frames come from and go to.
type station struct {
	mac    [6]byte
	dev    io.ReadWriteCloser
	queue  queue
	sent   uint64
	wake   chan struct{} // of size 1
	closed chan struct{}
}

// NewSwitch returns a switch without stations.
func NewSwitch(seed uint64) *Switch {
	return &Switch{seed: seed, links: make(map[[2]int]*direction)}
}

// Attach adds a station, whose frames are read from dev, one a read, and
// returns its number, from 0. The switch closes dev when it is closed.
func (s *Switch) Attach(mac [6]byte, dev io.ReadWriteCloser) int {
	st := &station{mac: mac, dev: dev, wake: make(chan struct{}, 1), closed: make(chan struct{})}
	s.mu.Lock()
	id := len(s.stations)
	s.stations = append(s.stations, st)
	s.mu.Unlock()
	s.serving.Go(func() { s.read(id, st) })
	s.serving.Go(func() { s.write(st) })
	return id
}

// Set says what happens from now on to frames from one station to another.
// Frames that are under way arrive as they were going to, unless the link is cut.
func (s *Switch) Set(from, to int, l Link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.direction(from, to).become(l)
}

// Get returns what happens to frames from one station to another.
func (s *Switch) Get(from, to int) Link {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.direction(from, to).link
}

// Heal makes all links whole.
func (s *Switch) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.links {
		d.become(Link{})
	}
}

// Counts returns what was done so far to frames from one station to another.
func (s *Switch) Counts(from, to int) Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.direction(from, to).counts
}

// Close closes the stations' devices and returns when nothing runs any more.
func (s *Switch) Close() error {
	s.mu.Lock()
	var err error
	for _, st := range s.stations {
		select {
		case <-st.closed:
		default:
			close(st.closed)
			if e := st.dev.Close(); e != nil && err == nil {
				err = fmt.Errorf("a device cannot be closed: %w", e)
			}
		}
	}
	s.mu.Unlock()
	s.serving.Wait()
	return err
}

// direction returns one direction of a link; the lock is held.
func (s *Switch) direction(from, to int) *direction {
	d := s.links[[2]int{from, to}]
	if d == nil {
		d = &direction{rng: rand.New(rand.NewPCG(s.seed, uint64(from)<<32|uint64(to)))}
		s.links[[2]int{from, to}] = d
	}
	return d
}

// read takes the frames of a station until its device is closed.
func (s *Switch) read(from int, st *station) {
	buf := make([]byte, largest)
	for {
		n, err := st.dev.Read(buf)
		if err != nil {
			return
		}
		f, ok := parse(buf[:n])
		if !ok {
			continue
		}
		s.carry(from, &f, buf[:n])
	}
}

// carry puts a frame into the queue of its station, as its link says.
func (s *Switch) carry(from int, f *flow, frame []byte) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	to := -1
	for i, st := range s.stations {
		if st.mac == f.to && i != from {
			to = i
		}
	}
	if to < 0 {
		return
	}
	d := s.direction(from, to)
	at, times := d.fate(now, len(frame), f)
	if times == 0 {
		d.counts.Dropped++
		return
	}
	d.sent++
	st := s.stations[to]
	kept := append([]byte(nil), frame...)
	for i := range times {
		if len(st.queue) >= mostQueued {
			d.counts.Overflowed++
			return
		}
		st.sent++
		heap.Push(&st.queue, waiting{at: at[i], order: st.sent, from: from, to: to, frame: kept, came: now, nth: d.sent,
			again: i > 0})
	}
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// write hands a station its frames when they are due.
func (s *Switch) write(st *station) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		frame, wait := s.next(st)
		if frame != nil {
			_, _ = st.dev.Write(frame) // a device that is down loses it, as a cable would
			continue
		}
		timer.Reset(wait)
		select {
		case <-st.wake:
		case <-timer.C:
		case <-st.closed:
			return
		}
	}
}

// next returns the frame that is due, or how long to wait.
func (s *Switch) next(st *station) ([]byte, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(st.queue) > 0 {
		w := st.queue[0]
		if wait := time.Until(w.at); wait > 0 {
			return nil, wait
		}
		heap.Pop(&st.queue)
		d := s.direction(w.from, w.to)
		if d.link.Cut {
			d.counts.Dropped++
			continue
		}
		d.carried(&w)
		return w.frame, 0
	}
	return nil, time.Hour
}

// waiting is a frame under way.
type waiting struct {
	at       time.Time
	order    uint64
	from, to int
	frame    []byte
	came     time.Time
	nth      uint64 // of its direction
	again    bool   // it is the second of its kind
}

// queue is a heap of frames by when they are due, in the order of sending among
// those of one instant.
type queue []waiting

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	if q[i].at.Equal(q[j].at) {
		return q[i].order < q[j].order
	}
	return q[i].at.Before(q[j].at)
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *queue) Push(x any) { *q = append(*q, x.(waiting)) }

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	old := *q
	last := old[len(old)-1]
	old[len(old)-1] = waiting{}
	*q = old[:len(old)-1]
	return last
}

package quota

import "sync"

// Room is the memory that all streams and their buckets may take together. It is safe for concurrent use.
type Room struct {
	mu    sync.Mutex
	taken int
	of    map[string]int // the part of each caller that has one
}

// MaxRoom bounds a [Room], in bytes.
const MaxRoom = 168 << 20

// timesLeft is how many times as much as is left then one caller may have, so that none fills the room for others. It
// is the rule for tenants of a table: one alone has three quarters, two have three sevenths each.
const timesLeft = 3

// Share is what the streams of one caller take of a [Room]. It is safe for concurrent use.
type Share struct {
	room *Room
	who  string
}

// Of returns the share of a caller.
func (r *Room) Of(who string) *Share { return &Share{r, who} }

// Open takes the room of a stream, which [Share.Close] gives back, and reports whether there is some.
func (s *Share) Open() bool { return s.take(costsOpen) }

// Close gives the room of a stream back.
func (s *Share) Close() { s.give(costsOpen) }

// costsOpen is what an open stream takes, beside its buckets: three goroutines, and what gRPC keeps of it. So one
// caller has 4,000 at most.
const costsOpen = 32 << 10

// take reports whether there is room. A nil Share has any.
func (s *Share) take(bytes int) bool {
	if s == nil {
		return true
	}
	r := s.room
	r.mu.Lock()
	defer r.mu.Unlock()
	taken, own := r.taken+bytes, r.of[s.who]+bytes
	if own > timesLeft*(MaxRoom-taken) {
		return false
	}
	if r.of == nil {
		r.of = make(map[string]int)
	}
	r.taken, r.of[s.who] = taken, own
	return true
}

func (s *Share) give(bytes int) {
	if s == nil {
		return
	}
	r := s.room
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken -= bytes
	if r.of[s.who] -= bytes; r.of[s.who] == 0 {
		delete(r.of, s.who)
	}
}

// costs is what a bucket takes of a [Room]: BenchmarkReports has 230 bytes, beside the id. So 50 streams of one caller,
// of 10,000 buckets with ids of 22 bytes, have room.
func costs(id string) int { return 240 + len(id) }

// least is how many tokens a bucket has at least, as requests do not come evenly.
const least = 20

// Size returns the size of a new bucket for a limit with a capacity and units a second: a 160th of whichever is less,
// so that 128 holders of slices leave something. It is a quarter of that for each time that it is made smaller, and
// at least 20 tokens, or a quarter of the capacity of a small limit.
func Size(capacity, rate uint64, smaller uint8) uint32 {
	const parts, small, most = 160, 4, 1 << 20
	part := min(capacity, rate, parts*most) / parts >> (2 * smaller)
	return uint32(max(1, min(max(part, least), capacity/small)))
}

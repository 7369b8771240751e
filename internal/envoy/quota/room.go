package quota

import "sync/atomic"

// Room is the memory that the buckets of several streams may take together. It is safe for concurrent use.
type Room struct{ taken atomic.Int64 }

// MaxRoom bounds a [Room], in bytes.
const MaxRoom = 128 << 20

func (r *Room) take(bytes int) bool {
	if r == nil || r.taken.Add(int64(bytes)) <= MaxRoom {
		return true
	}
	r.taken.Add(-int64(bytes))
	return false
}

func (r *Room) give(bytes int) {
	if r != nil {
		r.taken.Add(-int64(bytes))
	}
}

// costs is what a bucket takes of a [Room]: BenchmarkReports has 230 bytes, beside the id. So 50 streams of 10,000
// buckets with ids of 22 bytes have room.
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

package gubernator

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/bits"
	"time"

	"github.com/weirlimit/weir/limiter"
	pb "github.com/weirlimit/weir/proto/gubernator/v1"
)

// item is one rate limit of a message, what it asks of the node, and its answer.
type item struct {
	in  *pb.RateLimitReq
	out *pb.RateLimitResp

	limit   *limiter.Limit // nil: nothing is counted
	request limiter.Request
	base    time.Time    // the instant from which its reset is told
	ours    bool         // that instant is the node's, and comes after the decision
	end     limiter.Tick // of its unit of the calendar; 0: it has none
}

func (it *item) has(b pb.Behavior) bool { return it.in.GetBehavior()&b != 0 }

func (it *item) leaky() bool { return it.in.GetAlgorithm() == pb.Algorithm_LEAKY_BUCKET }

// capacity returns how many hits fit at once.
func (it *item) capacity() int64 {
	if it.leaky() && it.in.GetBurst() != 0 && it.in.GetLimit() != 0 {
		return it.in.GetBurst()
	}
	return it.in.GetLimit()
}

// itemError is an error that clients know by its text.
type itemError string

func (e itemError) Error() string { return string(e) }

const (
	errKey       itemError = "field 'unique_key' cannot be empty"
	errName      itemError = "field 'namespace' cannot be empty"
	errGregorian itemError = "behavior DURATION_IS_GREGORIAN is set; but `Duration` is not a valid gregorian interval"
)

// newItem reads one rate limit. The error is for the client.
func (s *Service) newItem(in *pb.RateLimitReq, out *pb.RateLimitResp, now time.Time) (it item, err error) {
	it = item{in: in, out: out, base: now, ours: true}
	switch {
	case in.GetUniqueKey() == "":
		return it, errKey
	case in.GetName() == "":
		return it, errName
	}
	if err := s.fill(&it, now); err != nil {
		return it, fmt.Errorf("while applying rate limit '%.100s_%.100s': %w", in.GetName(), in.GetUniqueKey(), err)
	}
	if it.limit != nil {
		it.request = limiter.Request{
			Path: partOf(in.GetName(), maxName), User: partOf(in.GetUniqueKey(), maxKey), Limits: []*limiter.Limit{it.limit},
		}
	}
	return it, nil
}

// fill fills in the limit of an item and the instants by which its reset is told.
func (s *Service) fill(it *item, now time.Time) error {
	in := it.in
	r := rate{limit: in.GetLimit()}
	switch in.GetAlgorithm() {
	case pb.Algorithm_TOKEN_BUCKET:
	case pb.Algorithm_LEAKY_BUCKET:
		r.leaky, r.burst = true, in.GetBurst()
	default:
		return itemError(fmt.Sprintf("Invalid rate limit algorithm '%d'", in.GetAlgorithm()))
	}
	for _, n := range []struct {
		name  string
		value int64
	}{{"limit", r.limit}, {"burst", r.burst}} {
		if n.value < 0 || n.value > limiter.MaxUnits {
			return fmt.Errorf("%s %d is out of range: give 0 to %d", n.name, n.value, int64(limiter.MaxUnits))
		}
	}
	if it.has(pb.Behavior_DURATION_IS_GREGORIAN) {
		unit, ok := unitOf(in.GetDuration())
		if !ok {
			return errGregorian
		}
		begin, end, err := s.limits.bounds(unit, now)
		if err != nil {
			return err
		}
		it.end = end
		if r.leaky {
			r.window = (end - begin).Duration()
		} else {
			r.calendar = unit
		}
	} else {
		const most = int64(limiter.MaxWindow / time.Millisecond)
		if d := in.GetDuration(); d < 0 || d > most {
			return fmt.Errorf("duration %d is out of range: give 0 to %d milliseconds, which are %d days", d, most,
				most/(24*time.Hour).Milliseconds())
		}
		r.window = time.Duration(in.GetDuration()) * time.Millisecond
		it.base, it.ours = clientTime(in.GetCreatedAt(), now)
	}
	if r.limit == 0 || r.window == 0 && r.calendar == limiter.CalendarNone {
		if !it.has(pb.Behavior_RESET_REMAINING) {
			return nil // nothing fits, or everything is forgotten at once
		}
		r = rate{leaky: r.leaky, limit: 1, window: time.Second} // of any limit: what is forgotten is the key's counter
	}
	var err error
	it.limit, err = s.limits.of(r)
	return err
}

func unitOf(duration int64) (limiter.Calendar, bool) {
	units := [...]limiter.Calendar{
		limiter.CalendarMinute, limiter.CalendarHour, limiter.CalendarDay, limiter.CalendarWeek, limiter.CalendarMonth,
		limiter.CalendarYear,
	}
	if duration < 0 || duration >= int64(len(units)) {
		return limiter.CalendarNone, false
	}
	return units[duration], true
}

// maxDrift is how far the clock of a client may be from the node's. A time beyond it is not
// believed. One that is nearer than sameClock is taken for the node's: it would move each reset by the
// time that the message took.
const (
	maxDrift  = 24 * time.Hour
	sameClock = time.Second
)

// clientTime returns the time of a client's clock, in milliseconds since 1970, or now, which is
// ours, if that is not believable. Nothing is counted by it: resets are told by it, for the client.
func clientTime(created int64, now time.Time) (at time.Time, ours bool) {
	least, most := now.Add(-maxDrift).UnixMilli(), now.Add(maxDrift).UnixMilli()
	if created < least || created > most || near(time.UnixMilli(created), now, sameClock) {
		return now, true
	}
	return time.UnixMilli(created), false
}

// near reports whether two instants are less than a duration apart.
func near(a, b time.Time, within time.Duration) bool { return a.Sub(b).Abs() < within }

// Bounds of the parts of a key, in bytes: a key of the node has at most 256. Of a longer
// part the key has the begin and a hash.
const (
	maxName = 96
	maxKey  = 144
)

// partOf returns a text of at most so many bytes that stands for a longer one.
func partOf(text string, most int) string {
	if len(text) <= most {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return text[:most-2*len(sum)] + hex.EncodeToString(sum[:])
}

// uncounted answers an item for which nothing is counted: its limit is 0, which hits are
// over, or its duration is 0, so that all of it is there again.
func (it *item) uncounted() {
	capacity, hits := it.capacity(), it.in.GetHits()
	it.out.Limit, it.out.Remaining = it.in.GetLimit(), capacity
	switch {
	case hits > capacity:
		it.out.Status = pb.Status_OVER_LIMIT
	case hits > 0:
		it.out.Remaining -= hits
	}
	if it.end != 0 {
		it.out.ResetTime = limiter.Millis(it.end.Duration())
		return
	}
	it.out.ResetTime = it.resetAfter(time.Duration(it.in.GetDuration()) * time.Millisecond)
}

// resetAfter returns the time of a reset in milliseconds since 1970, rounded up.
func (it *item) resetAfter(d time.Duration) int64 {
	if it.end != 0 && !it.leaky() {
		return limiter.Millis(it.end.Duration())
	}
	return limiter.Millis(time.Duration(it.base.UnixMicro())*time.Microsecond + d)
}

// answer fills in the answer from a decision of hits, at the time after it: what a decision says is
// left until a reset may have been said by another member, some time after the hits came here. The end of
// one window is told as it was told before, since that time varies.
func (it *item) answer(d *limiter.Decision, over bool, now time.Time, ends *ends) {
	out := it.out
	if it.ours {
		it.base = now
	}
	out.Limit, out.Remaining = it.in.GetLimit(), it.capacity()
	left := time.Duration(0)
	if d.Len() > 0 { // else a policy has decided without a counter
		l := d.Limit(0)
		out.Remaining, left = int64(l.Remaining), l.ResetAfter
	}
	if over {
		out.Status = pb.Status_OVER_LIMIT
	}
	switch it.reset(left); {
	case it.end != 0 || it.leaky():
	case left == 0:
		ends.forget(it) // if all hits were taken back, the next one begins another window
	case it.ours:
		out.ResetTime = ends.of(it, out.GetResetTime())
	}
}

// reset fills in the reset of a counter that has so much time left until it is as new; 0: it is. That of a leaky
// bucket is when as many hits have leaked as do not remain, or later if it holds more than its burst, as after a
// larger one.
func (it *item) reset(left time.Duration) {
	switch {
	case it.leaky():
		hi, lo := bits.Mul64(uint64(it.capacity()-it.out.GetRemaining()), uint64(it.limit.Window()/time.Microsecond))
		lo, carry := bits.Add64(lo, uint64(it.in.GetLimit())-1, 0)
		quo, _ := bits.Div64(hi+carry, lo, uint64(it.in.GetLimit())) // at most 100 years, see [limiter.Spec]
		left = max(left, time.Duration(quo)*time.Microsecond)
	case left == 0:
		left = it.limit.Window()
	}
	it.out.ResetTime = it.resetAfter(left)
}

// forgotten answers RESET_REMAINING.
func (it *item) forgotten() {
	it.out.Limit, it.out.Remaining = it.in.GetLimit(), it.capacity()
	if it.leaky() {
		it.out.ResetTime = it.resetAfter(0) // all of it is there
	}
}

package envoy

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
)

// maxSeries bounds the limits with statistics of their own. Those beyond it are counted
// together, under keys named other.
const maxSeries = 2000

// Buckets are the upper bounds of the response times that are counted, in seconds.
func Buckets() []float64 {
	return []float64{0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1}
}

// Hits are the statistics of one limit, in hits since the service began.
type Hits struct {
	// Domain is that of the file, and Key1 and Key2 are its first two levels: the key, with
	// the value where the file names one.
	Domain, Key1, Key2 string
	// Total are all hits. Over are those beyond the limit, Near those within it but beyond
	// Options.NearLimit of it, Within all within it. Shadow are the denials that shadow_mode
	// hid. Negative are those that were taken back.
	Total, Over, Near, Within, Shadow, Negative uint64
}

// Stats are the statistics of a service.
type Stats struct {
	// Limits are those of limits that were hit.
	Limits []Hits
	// Calls are the calls that were answered or failed, Failed by what: "invalid", "backend"
	// or "other".
	Calls  uint64
	Failed map[string]uint64
	// Times has how many calls took at most each of Buckets, and Seconds what all took.
	Times   []uint64
	Seconds float64
	// Loaded are the configurations that came into force, NotLoaded those that were not valid.
	Loaded, NotLoaded uint64
	// Shadowed are the denials that Options.Shadow hid, NoDomain the requests for a domain
	// that is not known.
	Shadowed, NoDomain uint64
}

// failures are the kinds of failed calls.
func failures() [3]string { return [...]string{"invalid", "backend", "other"} }

// stats counts. Its zero value, with near, has counted nothing.
type stats struct {
	near float64

	series sync.Map // of seriesKey to *counters
	count  atomic.Int64
	rest   atomic.Pointer[counters] // those of other, once there are too many series

	calls, nanoseconds atomic.Uint64
	times              [10]atomic.Uint64 // by Buckets, each without those before it
	failed             [3]atomic.Uint64
	good, bad          atomic.Uint64
	shadowed, noDomain atomic.Uint64
}

type seriesKey struct{ domain, key1, key2 string }

type counters struct{ total, over, near, within, shadow, negative atomic.Uint64 }

// other stands for the keys beyond maxSeries.
const other = "other"

func (s *stats) of(labels []string) *counters {
	k := seriesKey{domain: labels[0]}
	if len(labels) > 1 {
		k.key1 = labels[1]
	}
	if len(labels) > 2 {
		k.key2 = labels[2]
	}
	if c, ok := s.series.Load(k); ok {
		return c.(*counters)
	}
	if shown := (seriesKey{clean(k.domain), clean(k.key1), clean(k.key2)}); shown != k {
		if c, ok := s.series.Load(shown); ok {
			return c.(*counters)
		}
		k = shown
	}
	if s.count.Load() >= maxSeries { // from here on most calls come here, if values are labels
		if c := s.rest.Load(); c != nil {
			return c
		}
		k = seriesKey{other, other, other}
	}
	c, had := s.series.LoadOrStore(seriesKey{strings.Clone(k.domain), strings.Clone(k.key1), strings.Clone(k.key2)},
		new(counters))
	if !had {
		s.count.Add(1)
	}
	if k.domain == other && k.key1 == other && k.key2 == other {
		s.rest.Store(c.(*counters))
	}
	return c.(*counters)
}

// clean returns a label as it is shown: valid text of bounded length, and the label itself if
// it is that.
func clean(label string) string {
	const most = 128
	label = strings.ToValidUTF8(label, "_")
	if len(label) > most {
		label = strings.ToValidUTF8(label[:most], "")
	}
	if !strings.ContainsAny(label, ":|") {
		return label
	}
	return strings.Map(func(r rune) rune {
		if r == ':' || r == '|' {
			return '_'
		}
		return r
	}, label)
}

// decided counts an item, as envoyproxy/ratelimit does. Of the hits of one that is over its limit those count
// as over it that what was left did not cover, and those near it that were left in the part of the limit that
// counts as near. All hits of one that is not over its limit count as within it, and those in that part as near it.
func (s *stats) decided(it *item) {
	if it.limit == nil || len(it.labels) == 0 {
		return
	}
	c, hits := s.of(it.labels), it.hits
	if it.back {
		c.negative.Add(hits)
		return
	}
	c.total.Add(hits)
	limit := uint64(it.limit.Requests)
	near := min(limit, uint64(math.Floor(float64(float32(limit)*float32(s.near)))))
	if it.over {
		left := min(hits, limit, uint64(it.left))
		c.over.Add(hits - left)
		c.near.Add(min(left, limit-near))
		if it.limit.Shadow {
			c.shadow.Add(hits - left)
		}
		return
	}
	c.within.Add(hits)
	if it.limit.Unlimited {
		return
	}
	if used := limit - min(limit, uint64(it.remaining)); used > near {
		c.near.Add(min(hits, used-near))
	}
}

func (s *stats) called(d time.Duration, err error) {
	s.calls.Add(1)
	s.nanoseconds.Add(uint64(max(0, d)))
	for i, upTo := range Buckets() {
		if d.Seconds() <= upTo {
			s.times[i].Add(1)
			break
		}
	}
	switch {
	case err == nil:
	case errors.Is(err, limiter.ErrInvalid), frontend.Refused(err):
		s.failed[0].Add(1)
	case errors.Is(err, limiter.ErrUnanswered), errors.Is(err, context.DeadlineExceeded):
		s.failed[1].Add(1)
	default:
		s.failed[2].Add(1)
	}
}

func (s *stats) loaded(ok bool) {
	if ok {
		s.good.Add(1)
	} else {
		s.bad.Add(1)
	}
}

// Stats returns the statistics so far.
func (s *Service) Stats() Stats {
	t := &s.stats
	out := Stats{
		Calls: t.calls.Load(), Failed: make(map[string]uint64), Seconds: time.Duration(t.nanoseconds.Load()).Seconds(),
		Loaded: t.good.Load(), NotLoaded: t.bad.Load(), Shadowed: t.shadowed.Load(), NoDomain: t.noDomain.Load(),
	}
	for i, name := range failures() {
		out.Failed[name] = t.failed[i].Load()
	}
	sum := uint64(0)
	for i := range t.times {
		sum += t.times[i].Load()
		out.Times = append(out.Times, sum)
	}
	t.series.Range(func(k, v any) bool {
		key, c := k.(seriesKey), v.(*counters)
		out.Limits = append(out.Limits, Hits{
			Domain: key.domain, Key1: key.key1, Key2: key.key2, Total: c.total.Load(), Over: c.over.Load(), Near: c.near.Load(),
			Within: c.within.Load(), Shadow: c.shadow.Load(), Negative: c.negative.Load(),
		})
		return true
	})
	return out
}

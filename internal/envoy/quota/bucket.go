package quota

import "github.com/weirlimit/weir/limiter"

type bucket struct {
	id         string
	place      int
	size, rate uint32 // of the tokens that are assigned
	slice      slice
	kind       Kind
	again      bool // it was reported more than once
	hungry     bool // it would use more than it is assigned

	demand           float64      // units a second
	count            uint64       // units since measured
	beyond           uint64       // that were allowed beyond what was assigned, and nobody was told
	measured         limiter.Tick // when demand was
	reported, wanted limiter.Tick // when it was reported last, and with requests
	asked            limiter.Tick
	ends             limiter.Tick    // when the slice is over at its owner
	lowered          [2]limiter.Tick // when higher rates of it are over there; 0: none is
	until            limiter.Tick    // when what is assigned may be over at Envoy
	earlier          limiter.Tick    // until when Envoy may obey what another stream assigned, or a rule for all

	may allowance
}

// slice is what is lent to a bucket, or asked for.
type slice struct {
	name    uint32
	lent    bool // it is, or was
	smaller uint8
}

// allowance is what Envoy may have admitted at most until an instant and has not reported. Until a short time ago it
// may have had the rate before.
type allowance struct {
	credit      float64
	at          limiter.Tick
	before      uint32
	beforeUntil limiter.Tick
}

// measure measures demand. A report that comes at once after another one says nothing by itself.
func (b *bucket) measure(now limiter.Tick, u *Usage) {
	b.count = add(b.count, add(u.Allowed, u.Denied))
	passed := now - b.measured
	if passed < smooth/20 {
		return
	}
	seconds := passed.Duration().Seconds()
	seen, part := float64(b.count)/seconds, min(1, float64(passed)/float64(smooth))
	if d := (seen - b.demand) * seconds; d*d < 4*(b.demand*seconds+1) { // less than two deviations of a count
		part /= steady
	}
	b.demand += (seen - b.demand) * part
	b.count, b.measured = 0, now
}

// accrue adds to the credit what the time since has brought.
func (b *bucket) accrue(now limiter.Tick) {
	span := func(until limiter.Tick) float64 {
		return float64(max(0, min(now, until)-b.may.at)) / float64(limiter.Second)
	}
	b.may.credit += float64(b.rate)*span(b.until+Slack) +
		float64(b.may.before-min(b.may.before, b.rate))*span(b.may.beforeUntil)
	b.may.at = now
}

// lives reports whether Envoy surely still uses a bucket of tokens after a time from now.
func (b *bucket) lives(now, after limiter.Tick) bool { return b.kind == Tokens && now+after < b.until }

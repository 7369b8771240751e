package loadgen

import (
	"context"
	"math"
	"time"
)

// step is the interval at which checks are sent at a given rate: those that are due are
// sent together. Their intended time is that of the step. So the rate is constant to a
// millisecond, and nothing sleeps for less.
const step = time.Millisecond

// backlog bounds the calls that are due and wait for a client.
const backlog = 1 << 16

// due returns how many calls are due up to and including a time after the start. The
// first is due at the start.
func (p *Plan) due(at time.Duration) int64 {
	if at < 0 {
		return 0
	}
	return int64(math.Floor(at.Seconds()*p.Rate)) + 1
}

func (p *Plan) steps() int64 { return int64((p.Long + step - 1) / step) }

// pace sends the intended times of calls to a channel, as offsets from the start, until
// all are sent, the time is over or the context ends. It returns how many it has sent.
// next waits for the next step, and returns after it has begun.
func (p *Plan) pace(ctx context.Context, start time.Time, next func() error, to chan<- time.Duration) (sent int64,
	_ error) {
	defer close(to)
	over := time.NewTimer(time.Until(start.Add(p.Long)))
	defer over.Stop()
	for k := range p.steps() {
		at := time.Duration(k) * step
		for time.Since(start) < at {
			if err := next(); err != nil {
				return sent, err
			}
		}
		for due := p.due(at); sent < due; sent++ {
			select {
			case to <- at:
			case <-over.C:
				return sent, nil // the remaining calls are too late, see unsent
			case <-ctx.Done():
				return sent, ctx.Err()
			}
		}
	}
	return sent, nil
}

// unsent calls f for each step with calls that were not sent, with their number and
// intended time.
func (p *Plan) unsent(sent int64, f func(at time.Duration, n int64)) {
	for k := range p.steps() {
		at := time.Duration(k) * step
		if due := p.due(at); due > sent {
			f(at, due-sent)
			sent = due
		}
	}
}

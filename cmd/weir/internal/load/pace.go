package load

import (
	"context"
	"math"
	"time"
)

// step is how often checks are sent where a rate is to be kept: those that are
// due, together. Their intended time is that of the step, so the rate is constant
// in steps of a millisecond, and nothing sleeps for less.
const step = time.Millisecond

// backlog bounds the calls that are due and wait for a client.
const backlog = 1 << 16

// schedule is when calls are due.
type schedule struct {
	rate float64 // calls a second; 0: none is kept
	long time.Duration
}

// due returns how many calls are due at a time after the start, that time
// included: the first is due at the start.
func (s schedule) due(at time.Duration) int64 {
	if at < 0 {
		return 0
	}
	return int64(math.Floor(at.Seconds()*s.rate)) + 1
}

// steps returns how many steps there are.
func (s schedule) steps() int64 { return int64((s.long + step - 1) / step) }

// pace hands out the intended times of calls, as offsets from the start, until all
// are handed out, the time is over or the context ends, and returns how many that
// are. It waits for the steps by next, which returns after the next step has begun.
func (s schedule) pace(ctx context.Context, start time.Time, next func() error, to chan<- time.Duration) (sent int64, _ error) {
	defer close(to)
	over := time.NewTimer(time.Until(start.Add(s.long)))
	defer over.Stop()
	for k := range s.steps() {
		at := time.Duration(k) * step
		for time.Since(start) < at {
			if err := next(); err != nil {
				return sent, err
			}
		}
		for due := s.due(at); sent < due; sent++ {
			select {
			case to <- at:
			case <-over.C:
				return sent, nil // the rest is late for ever, see unsent
			case <-ctx.Done():
				return sent, ctx.Err()
			}
		}
	}
	return sent, nil
}

// unsent calls f for each step of which calls were not handed out, with how many
// and their intended time.
func (s schedule) unsent(sent int64, f func(at time.Duration, n int64)) {
	for k := range s.steps() {
		at := time.Duration(k) * step
		if due := s.due(at); due > sent {
			f(at, due-sent)
			sent = due
		}
	}
}

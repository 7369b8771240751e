package redisstore

import (
	"context"
	"errors"
	"slices"
	"time"
)

// maxTries bounds how often a call is submitted. It is submitted again only if its server's
// lane ended before the call was made: the lane was idle, or its client was replaced.
const maxTries = 3

// ask makes calls, all of one kind, and waits for their answers, until the given instant
// at most. Calls to one server keep their order. It returns the calls in their order.
// Calls without an answer are replaced by others with an error, since a worker may still
// write to the original; they may have been executed, or still will be, within
// [Config.Timeout] of ask.
func (s *Store) ask(ctx context.Context, until time.Time, calls []*call) ([]*call, error) {
	for i, c := range calls {
		c.at = i
	}
	var inline [4]*job
	jobs := inline[:0]
	if s.single != nil {
		jobs = append(jobs, s.single.submit(calls))
	} else {
		jobs = s.split(ctx, until, jobs, calls, 1)
	}
	timeout := time.NewTimer(time.Until(until))
	defer timeout.Stop()
	for i := 0; i < len(jobs); i++ {
		j := jobs[i]
		select {
		case <-j.done:
		default:
			select {
			case <-j.done:
			case <-timeout.C:
				return abandon(calls, jobs[i:]), nil
			case <-ctx.Done():
				leave(jobs[i:])
				return nil, ctx.Err()
			}
		}
		if !errors.Is(j.calls[0].err, errStopped) || s.closed.Load() {
			continue
		}
		if j.tries == maxTries {
			s.failures.call(j.calls[0], errStopped)
			continue
		}
		jobs = s.split(ctx, until, jobs, j.calls, j.tries+1)
	}
	return calls, nil
}

// split submits calls to the servers of their keys, for the given time.
func (s *Store) split(ctx context.Context, until time.Time, jobs []*job, calls []*call, tries int) []*job {
	ctx, cancel := context.WithDeadlineCause(ctx, until, errLate)
	defer cancel()
	var lanes []*lane
	byLane := map[*lane][]*call{}
	for _, c := range calls {
		l, err := s.lane(ctx, c.route)
		if err != nil {
			if c.err = err; c.kind == kindCancel && !s.closed.Load() {
				s.failures.call(c, err)
			}
			continue
		}
		if byLane[l] == nil {
			lanes = append(lanes, l)
		}
		c.lane = l
		byLane[l] = append(byLane[l], c)
	}
	for _, l := range lanes {
		j := l.submit(byLane[l])
		j.tries = tries
		jobs = append(jobs, j)
	}
	return jobs
}

// leave notes that nobody waits for jobs any more.
func leave(jobs []*job) {
	for _, j := range jobs {
		j.left.Store(true)
	}
}

// abandon returns calls, with those in unfinished jobs replaced.
func abandon(calls []*call, jobs []*job) []*call {
	leave(jobs)
	out := slices.Clone(calls) // a job may use the slice itself
	for _, j := range jobs {
		select {
		case <-j.done:
			continue
		default:
		}
		for _, c := range j.calls {
			out[c.at] = &call{kind: c.kind, err: errLate, route: c.route, part: c.part, lane: c.lane}
		}
	}
	return out
}

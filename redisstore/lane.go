package redisstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/internal/waiting"
	"github.com/weirlimit/weir/limiter"
)

// errBusy is the error of a call while the queue is full.
var errBusy = errors.New("too many checks are waiting for Redis")

// errDown is the error of a call during an outage.
var errDown = errors.New("redis does not answer")

// errLate is the error of a call that was not made, or not answered, in time.
var errLate = errors.New("redis did not answer in time")

// once is a command that a client of a Cluster sends again only to follow a redirection.
// Otherwise it would also do so after a lost connection or a timeout, when the command may
// have run.
type once struct{ redis.Cmder }

func (once) NoRetry() bool { return true }

// job is a list of calls that are made in order, in one pipeline.
type job struct {
	calls    []*call
	deadline time.Time
	done     chan struct{} // closed when all calls have an answer or an error
	tries    int           // how often its calls have been submitted
	left     atomic.Bool   // nobody waits for it any more
}

// lane sends calls to one Redis server. Calls of many callers share round trips: a
// worker sends at once what is waiting, and what arrives while all workers wait for
// answers goes with the next round trip.
type lane struct {
	store  *Store
	client *redis.Client
	addr   string // of a Cluster
	queue  chan *job
	health health

	loaded sync.Map // the scripts that its server has, as far as is known

	used    atomic.Int64 // when it last made calls, since the store opened
	ended   sync.Once
	stopped chan struct{} // closed when it takes no calls any more
}

const (
	// laneWorkers is the number of concurrent round trips: one can be written while
	// another is being answered.
	laneWorkers = 2
	// maxBatch bounds the calls of a round trip, unless one job has more.
	maxBatch = 128
	// laneIdle is how long the lane of a Cluster's master stays without calls. Masters
	// come and go, so a lane is made with the first call to its master.
	laneIdle = time.Minute
)

// errStopped is the error of a call that waits for a server which has been replaced, or
// for a store that closes.
var errStopped = errors.New("the Redis server that was to be asked is no longer used")

func (s *Store) newLane(client *redis.Client, addr string) *lane {
	l := &lane{store: s, client: client, addr: addr, health: health{store: s},
		queue: make(chan *job, s.config.Queue), stopped: make(chan struct{})}
	l.used.Store(int64(time.Since(s.clock.opened)))
	for range laneWorkers {
		s.running.Go(l.work)
	}
	return l
}

// submit queues calls. The job is done when each has its answer or an error, which may
// be at once.
func (l *lane) submit(calls []*call) *job {
	j := &job{calls: calls, deadline: l.store.config.deadline(), done: make(chan struct{})}
	switch {
	case l.health.down():
		l.refuse(j, errDown)
	default:
		select {
		case l.queue <- j:
			select {
			case <-l.stopped:
				l.drain() // stop may have been before
			default:
			}
		default:
			j.fail(errBusy)
			l.store.failures.call(calls[0], errBusy)
		}
	}
	return j
}

func (j *job) fail(err error) {
	for _, c := range j.calls {
		c.err = err
	}
	close(j.done)
}

// refuse fails a job whose calls are not made, as their server does not answer. An outage
// has a record of its own in the log, which says what policies do, but not that
// reservations stay.
func (l *lane) refuse(j *job, err error) {
	if c := j.calls[0]; c.kind == kindCancel {
		l.store.failures.call(c, err)
	}
	j.fail(err)
}

// stop ends the lane. Calls under way are answered; those that wait fail.
func (l *lane) stop() {
	l.ended.Do(func() { close(l.stopped) })
	l.drain()
}

// drain fails the jobs that wait in a lane that has stopped. Whoever waits for a job
// submits its calls again.
func (l *lane) drain() {
	for {
		select {
		case j := <-l.queue:
			if j.left.Load() && !l.store.closed.Load() {
				l.refuse(j, errStopped)
			} else {
				j.fail(errStopped)
			}
		default:
			return
		}
	}
}

// retire stops the lane if it is idle, and reports whether it did. During an outage it
// stays: a new one would not know of it.
func (l *lane) retire() bool {
	if idle := int64(time.Since(l.store.clock.opened)) - l.used.Load(); idle < int64(laneIdle) || l.health.down() {
		return false
	}
	l.store.lanes.CompareAndDelete(l.addr, l)
	l.stop()
	return true
}

func (l *lane) work() {
	var tick <-chan time.Time
	if l.store.cluster != nil {
		t := time.NewTicker(laneIdle)
		defer t.Stop()
		tick = t.C
	}
	jobs := make([]*job, 0, maxBatch)
	for {
		select {
		case <-l.stopped:
			return
		case <-tick:
			if l.retire() {
				return
			}
			continue
		case j := <-l.queue:
			jobs = l.collect(append(jobs[:0], j))
		}
		l.run(jobs)
		clear(jobs)
	}
}

func (l *lane) collect(jobs []*job) []*job {
	n := len(jobs[0].calls)
	for n < maxBatch {
		select {
		case j := <-l.queue:
			jobs, n = append(jobs, j), n+len(j.calls)
		default:
			return jobs
		}
	}
	return jobs
}

// run makes the calls of jobs in one pipeline. It skips jobs that have waited too long,
// since nobody waits for their answers any more. After a panic all calls have an error,
// even if Redis has executed them.
func (l *lane) run(jobs []*job) {
	defer l.store.guard.Recover(guard.Redis, func(err error) {
		for _, j := range jobs {
			if j != nil {
				j.fail(err)
			}
		}
	})
	var calls []*call
	var last time.Time
	now := time.Now()
	l.used.Store(int64(now.Sub(l.store.clock.opened)))
	for i, j := range jobs {
		if !j.deadline.After(now) {
			jobs[i] = nil
			l.refuse(j, errLate)
			continue
		}
		if l.health.down() {
			jobs[i] = nil
			l.refuse(j, errDown)
			continue
		}
		calls = append(calls, j.calls...)
		last = j.deadline
	}
	if len(calls) == 0 {
		return
	}
	ctx, cancel := context.WithDeadline(context.Background(), last)
	defer cancel()
	l.make(ctx, calls)
	for i, j := range jobs {
		if j != nil {
			jobs[i] = nil
			close(j.done)
		}
	}
}

// make makes calls, and repeats those that were certainly not executed, in at most
// four round trips. A call that may have been executed is never repeated.
func (l *lane) make(ctx context.Context, calls []*call) {
	took := time.Now()
	l.pipeline(ctx, calls)
	if again := l.again(calls); len(again) > 0 {
		l.pipeline(ctx, again)
		for _, c := range again {
			for n := 0; n < 2 && undecided(c.err); n++ {
				l.whole(ctx, c)
			}
		}
	}
	var err error
	for _, c := range calls {
		if l.store.cluster != nil && isElsewhere(c.err) {
			l.follow(ctx, c)
		}
		if c.err != nil && err == nil {
			err = c.err
			if isDown(err) {
				l.health.suspect(c, err)
			} else {
				l.store.failures.call(c, err)
			}
		}
	}
	if err == nil {
		l.health.worked()
	}
	if o := l.store.config.Observe; o != nil {
		o(len(calls), time.Since(took), err)
	}
}

func (l *lane) pipeline(ctx context.Context, calls []*call) {
	pipe := l.client.Pipeline()
	absent := l.absent(calls)
	loads := make([]*redis.StringCmd, len(absent))
	for i, s := range absent {
		loads[i] = pipe.ScriptLoad(ctx, s.text)
	}
	for _, c := range calls {
		_ = pipe.Process(ctx, c.command(ctx, false)) // adds it to the pipeline
	}
	var clock *redis.TimeCmd
	if l.store.clock.due() {
		clock = pipe.Time(ctx)
	}
	var wait *redis.IntCmd
	if l.store.config.Replicas > 0 {
		wait = l.store.config.waitFor(ctx)
		_ = pipe.Process(ctx, wait)
	}
	_, _ = pipe.Exec(ctx) // each call has its own error
	if clock != nil && clock.Err() == nil {
		l.store.clock.learn(limiter.TickOf(clock.Val()))
	}
	for i, s := range absent {
		if loads[i].Err() == nil {
			l.loaded.Store(s, nil)
		}
	}
	for _, c := range calls {
		if c.take(); len(absent) > 0 && c.cmd.Err() == nil { // whoever has loaded it
			l.loaded.Store(c.script, nil)
		}
		if wait != nil && c.err == nil && (wait.Err() != nil || int(wait.Val()) < l.store.config.Replicas) {
			c.err = cmp.Or(wait.Err(), errNotCopied)
		}
	}
}

// absent returns the scripts that are to be loaded before calls: all in use that the server may not
// have, if one of the calls needs one of them. A call whose script is missing would be made only
// after those that were sent behind it.
func (l *lane) absent(calls []*call) (absent []*script) {
	var last *script
	for _, c := range calls {
		if c.script == last {
			continue
		}
		last = c.script
		if _, has := l.loaded.Load(last); !has {
			absent = append(absent, last)
		}
	}
	if len(absent) == 0 {
		return nil
	}
	return slices.DeleteFunc(l.store.calls.scripts.note(absent...), func(s *script) bool {
		_, has := l.loaded.Load(s)
		return has
	})
}

// again returns the calls that are to be made once more, in their order: those whose script the
// server did not have; those that met a counter of another limit, with the script that adopts it;
// and those that were given calendar windows around a wrong instant, with those around the right one.
func (l *lane) again(calls []*call) (again []*call) {
	for _, c := range calls {
		switch now, strayed := c.rebound(); {
		case isMissing(c.err):
			l.loaded.Clear() // Redis forgets all at once
		case errors.Is(c.err, errChanged):
			c.adopting(l.store.calls)
		case isDamage(c.err):
			l.store.failures.damage(c)
			c.adopting(l.store.calls)
		case strayed:
			l.store.clock.learn(now)
		default:
			continue
		}
		again = append(again, c)
	}
	return again
}

// undecided reports whether a script did not run, or decided nothing and asks for other
// arguments.
func undecided(err error) bool {
	var stray *strayError
	return isMissing(err) || errors.Is(err, errChanged) || errors.As(err, &stray)
}

// whole makes a call with the full text of the script.
func (l *lane) whole(ctx context.Context, c *call) {
	if errors.Is(c.err, errChanged) {
		c.adopting(l.store.calls)
	}
	c.rebound()
	_ = l.client.Process(ctx, c.command(ctx, true)) // the call holds the error
	if c.take(); c.err == nil {
		c.err = l.store.config.copied(ctx, l.client, c.tag())
	}
}

// tryAgainWait is the first wait for the rest of a slot that is being moved.
const tryAgainWait = 10 * time.Millisecond

// follow repeats a call, that was refused because its slot has moved or is being moved,
// at the slot's present server, until the context ends. It goes on only while the script has surely
// decided nothing.
func (l *lane) follow(ctx context.Context, c *call) {
	l.store.cluster.ReloadState(ctx)
	for wait := tryAgainWait; ; wait = min(2*wait, 8*tryAgainWait) {
		_ = l.store.cluster.Process(ctx, once{c.command(ctx, true)}) // the call holds the error
		c.take()
		_, strayed := c.rebound()
		switch {
		case errors.Is(c.err, errChanged):
			c.adopting(l.store.calls)
		case strayed:
		case isElsewhere(c.err): // some of its keys have moved
			if waiting.Sleep(ctx, wait) != nil {
				return
			}
		case c.err == nil:
			c.err = l.store.config.copied(ctx, l.store.cluster, c.tag())
			return
		default:
			return
		}
	}
}

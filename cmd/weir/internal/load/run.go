package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/weirlimit/weir/cmd/weir/internal/procstat"
)

const (
	// warmWithin bounds how long connecting to all servers may take.
	warmWithin = 10 * time.Second
	// grace is how long answers are awaited after the time is over.
	grace = 10 * time.Second
	// pause is how long a client waits after a failed call.
	pause = 10 * time.Millisecond
	// slowest is the longest possible wait.
	slowest = int64(MaxDuration + grace)
)

// ErrUnreachable is wrapped by the error of [Run] if a node could not be reached at the
// start of a point.
var ErrUnreachable = errors.New("a node cannot be asked")

// Run measures each mode at each rate, one after the other. It returns an error if a
// node cannot be reached at all or has other rules, or the context ends. The report
// then has the points that were completed, and is nil if there are none. Wrong
// decisions and failed checks are in the report, see [Report.Wrong].
func Run(ctx context.Context, c Config) (*Report, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	if c.warm == 0 {
		c.warm = warmWithin
	}
	r := newReport(&c)
	for _, m := range c.Modes {
		for _, rate := range c.Rates {
			how := "as fast as it answers"
			if rate > 0 {
				how = fmt.Sprintf("%g checks/s", rate)
			}
			c.Progress(fmt.Sprintf("%s, %s", m, how))
			p, err := measure(ctx, &c, m, rate)
			if p.Mode != "" {
				r.Points = append(r.Points, p)
			}
			if err != nil {
				return r, fmt.Errorf("%s, %s: %w", m, how, err)
			}
		}
	}
	return r, nil
}

// trial is the measurement of one mode at one rate.
type trial struct {
	schedule
	batch   int64 // checks in a call
	least   int   // calls that each worker makes without a given rate, however long they take
	keys    *keys
	ledger  *ledger
	clients int
	lanes   []lane
	workers []*worker
}

// worker is one goroutine that sends checks.
type worker struct {
	lane     lane
	draw     drawer
	call     call
	self     string                  // the name of the node it asks, if known
	took     *hdrhistogram.Histogram // nanoseconds from the intended time to the answer
	own      *hdrhistogram.Histogram // the same, for keys that the asked node owns; nil if not known
	away     *hdrhistogram.Histogram // the same, for other keys
	late     *hdrhistogram.Histogram // nanoseconds from the intended time to the sending
	why      string                  // why something failed
	finished time.Duration           // the time of the last answer, from the start
	_        [64]byte                // keeps other workers' counts out of this cache line
}

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, slowest, 2) }

// record adds a wait to a histogram, n times.
func record(h *hdrhistogram.Histogram, d time.Duration, n int64) {
	// The value is in range, so this cannot fail.
	_ = h.RecordValues(min(max(1, int64(d)), slowest), n)
}

// measure measures one point. If it returns an error before anything was measured, the
// point has no mode.
func measure(ctx context.Context, c *Config, m Mode, rate float64) (_ Point, err error) {
	t := &trial{schedule: schedule{rate: rate / float64(c.batch(m)), long: c.Duration}, batch: int64(c.batch(m)),
		least: max(1, c.least)}
	if t.keys, err = newKeys(c); err != nil {
		return Point{}, err
	}
	t.ledger = newLedger(t.keys)
	defer func() {
		for _, l := range t.lanes {
			err = errors.Join(err, l.close())
		}
	}()
	if err := t.open(ctx, c, m); err != nil {
		if ctx.Err() != nil || errors.Is(err, errRules) {
			return Point{}, err
		}
		return Point{}, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	before, err := c.usage(ctx)
	if err != nil {
		return Point{}, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	cpu, _ := procstat.Self()
	unsent, err := t.run(ctx, grace)
	if err != nil {
		return Point{}, err
	}
	used, told := procstat.Self()
	after, unknown := c.usage(ctx)
	p := t.conclude(unsent)
	p.Mode, p.Clients, p.Batch = m, t.clients, c.batch(m)
	if rate > 0 {
		p.Rate = &rate
	}
	if s, ok := t.lanes[0].(*shared); ok {
		p.Ring = s.client.Stats().View != 0
	}
	p.Limits = t.ledger.look(ctx, c)
	if told {
		p.ClientCPU = perCheck(used-cpu, p.Checks)
	}
	if unknown != nil {
		p.CostUnknown = unknown.Error()
	} else {
		p.cost(before, after)
	}
	return p, ctx.Err()
}

// open connects all clients.
func (t *trial) open(ctx context.Context, c *Config, m Mode) error {
	clients := c.Clients
	if clients == 0 {
		clients = m.clients(len(c.Servers))
	}
	depth := 1
	switch {
	case m == Stream && t.rate > 0:
		depth = openDepth
	case m == Stream:
		depth = streamDepth
	}
	warming, cancel := context.WithTimeout(ctx, c.warm)
	defer cancel()
	var names []string
	if m == Unary {
		names = c.names(warming)
	}
	for i := range clients {
		if !m.shares() || i == 0 {
			l, err := openLane(ctx, c, m, i)
			if err != nil {
				return err
			}
			t.lanes = append(t.lanes, l)
			if err := l.warm(warming); err != nil {
				return err
			}
		}
		for range depth {
			n := t.batch
			w := &worker{
				lane: t.lanes[len(t.lanes)-1], draw: newDrawer(c, uint64(len(t.workers))), took: newHistogram(),
				late: newHistogram(),
				call: call{keys: t.keys, n: make([]uint32, n), answers: make([]answer, n)},
			}
			if names != nil {
				w.self, w.own, w.away = names[i%len(names)], newHistogram(), newHistogram()
			}
			t.workers = append(t.workers, w)
		}
	}
	t.clients = clients
	return nil
}

// errSilent ends calls that a node has not answered long after the time is over.
var errSilent = errors.New("no answer came within " + grace.String() + " after the end")

// run makes all workers send checks, and returns the waits of calls that were due and
// never sent. Calls not answered within grace after the end have failed.
func (t *trial) run(ctx context.Context, grace time.Duration) (*hdrhistogram.Histogram, error) {
	ctx, end := context.WithCancelCause(ctx)
	cancel := func() { end(nil) }
	defer cancel()
	// No deadline: it would be sent to the node, which would end the call slightly
	// before this process does, and that would count as an answer at the very end.
	defer time.AfterFunc(t.long+grace, func() { end(errSilent) }).Stop()
	errs := make([]error, len(t.workers)+1)
	unsent := newHistogram()
	var asking sync.WaitGroup
	start := time.Now()
	var due chan time.Duration
	if t.rate > 0 {
		next, stop, err := openSteps()
		if err != nil {
			return nil, err
		}
		defer func() { _ = stop() }() // nothing was written
		due = make(chan time.Duration, backlog)
		asking.Go(func() {
			sent, err := t.pace(ctx, start, next, due)
			t.unsent(sent, func(at time.Duration, n int64) { record(unsent, t.long-at, n*t.batch) })
			errs[len(t.workers)] = err
		})
	}
	dropped := make([]*hdrhistogram.Histogram, len(t.workers))
	for i, w := range t.workers {
		asking.Go(func() {
			if due == nil {
				errs[i] = w.ask(ctx, t, start)
			} else {
				dropped[i], errs[i] = w.follow(ctx, t, start, due)
			}
			if errs[i] != nil {
				cancel() // the others need not continue
			}
		})
	}
	asking.Wait()
	for _, h := range dropped {
		if h != nil {
			unsent.Merge(h)
		}
	}
	return unsent, first(errs)
}

// first returns the first error other than that of a stopped worker.
func first(errs []error) error {
	var stopped error
	for _, err := range errs {
		switch {
		case err == nil:
		case errors.Is(err, context.Canceled):
			stopped = err
		default:
			return err
		}
	}
	return stopped
}

// ask sends a check as soon as the previous one is answered, at least once.
func (w *worker) ask(ctx context.Context, t *trial, start time.Time) error {
	begin := time.Since(start)
	for calls := 0; calls < t.least || begin < t.long; calls++ {
		if err := w.once(ctx, t, start, begin); err != nil {
			return err
		}
		begin = time.Since(start)
	}
	return nil
}

// follow sends calls when they are due. It returns the waits of calls that were due but
// not begun when the time was over.
func (w *worker) follow(ctx context.Context, t *trial, start time.Time,
	due <-chan time.Duration) (dropped *hdrhistogram.Histogram, _ error) {
	for at := range due {
		now := time.Since(start)
		if now >= t.long {
			if dropped == nil {
				dropped = newHistogram()
			}
			record(dropped, t.long-at, t.batch)
			continue
		}
		record(w.late, now-at, t.batch)
		if err := w.once(ctx, t, start, at); err != nil {
			return dropped, err
		}
	}
	return dropped, nil
}

// once sends one call, whose intended time is at. A failed call is recorded; an error
// ends the run.
func (w *worker) once(ctx context.Context, t *trial, start time.Time, at time.Duration) error {
	c := &w.call
	c.why, c.owner = "", ""
	for i := range c.n {
		c.n[i], c.answers[i] = w.draw(), failed
		t.ledger.ask(c.n[i])
	}
	err := w.lane.do(ctx, c)
	silent := errors.Is(context.Cause(ctx), errSilent)
	if errors.Is(err, errRules) || ctx.Err() != nil && !silent {
		return errors.Join(err, ctx.Err())
	}
	now := time.Since(start)
	if !silent {
		w.finished = now
	}
	for i, n := range c.n {
		t.ledger.answer(n, c.answers[i])
	}
	if err == nil {
		record(w.took, now-at, t.batch)
		switch {
		case w.self == "" || c.owner == "":
		case c.owner == w.self:
			record(w.own, now-at, t.batch)
		default:
			record(w.away, now-at, t.batch)
		}
		if c.why != "" {
			w.why = c.why
		}
		return nil
	}
	if w.why = err.Error(); silent {
		w.why = errSilent.Error()
		return nil
	}
	wait := time.NewTimer(pause)
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		if errors.Is(context.Cause(ctx), errSilent) {
			return nil
		}
		return ctx.Err()
	}
}

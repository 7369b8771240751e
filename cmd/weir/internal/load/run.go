package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimit/weir/internal/loadgen"
	"github.com/weirlimit/weir/internal/procstat"
	"github.com/weirlimit/weir/internal/waiting"
)

const (
	// warmWithin bounds how long connecting to all servers may take.
	warmWithin = 10 * time.Second
	// grace is how long answers are awaited after the time is over.
	grace = 10 * time.Second
	// pause is how long a client waits after a failed call.
	pause = 10 * time.Millisecond
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
	c.warm = cmp.Or(c.warm, warmWithin)
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

// errSilent is why calls failed that a node has not answered long after the time was over.
var errSilent = errors.New("no answer came within " + grace.String() + " after the end")

// trial is the measurement of one mode at one rate.
type trial struct {
	loadgen.Plan // calls of Weight checks
	keys         *keys
	ledger       *ledger
	clients      int
	lanes        []lane
	workers      []*worker
}

// worker is one goroutine that sends checks.
type worker struct {
	lane     lane
	draw     drawer
	call     call
	self     string        // the name of the node it asks, if known
	took     loadgen.Waits // from the intended time to the answer
	own      loadgen.Waits // the same, for keys that the asked node owns, if known
	away     loadgen.Waits // the same, for other keys
	why      string        // why something failed
	finished time.Duration // the time of the last answer, from the start
	_        [64]byte      // keeps other workers' counts out of this cache line
}

// measure measures one point. If it returns an error before anything was measured, the
// point has no mode.
func measure(ctx context.Context, c *Config, m Mode, rate float64) (_ Point, err error) {
	t := &trial{Plan: loadgen.Plan{Rate: rate / float64(c.batch(m)), Long: c.Duration, Weight: uint64(c.batch(m)),
		Least: max(1, c.least)}}
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
	sent, err := t.run(ctx, grace)
	if err != nil {
		return Point{}, err
	}
	used, told := procstat.Self()
	after, unknown := c.usage(ctx)
	p := t.conclude(sent)
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

func (t *trial) open(ctx context.Context, c *Config, m Mode) error {
	clients := cmp.Or(c.Clients, m.clients(len(c.Servers)))
	depth := 1
	switch {
	case m == Stream && t.Rate > 0:
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
			n := t.Weight
			w := &worker{
				lane: t.lanes[len(t.lanes)-1], draw: newDrawer(c, uint64(len(t.workers))),
				call: call{keys: t.keys, n: make([]uint32, n), answers: make([]answer, n)},
			}
			if names != nil {
				w.self = names[i%len(names)]
			}
			t.workers = append(t.workers, w)
		}
	}
	t.clients = clients
	return nil
}

// run makes all workers send checks. Calls not answered within grace after the end have failed.
func (t *trial) run(ctx context.Context, grace time.Duration) (loadgen.Result, error) {
	t.Grace = grace
	calls := make([]loadgen.Call, len(t.workers))
	for i, w := range t.workers {
		calls[i] = func(ctx context.Context, c loadgen.Clock, due time.Duration) (time.Duration, error) {
			return w.once(ctx, t, c, due)
		}
	}
	return t.Plan.Run(ctx, calls)
}

// once sends one call, which was due at a time. A failed call is recorded; an error ends the run.
func (w *worker) once(ctx context.Context, t *trial, clock loadgen.Clock, due time.Duration) (time.Duration, error) {
	c := &w.call
	c.why, c.owner = "", ""
	for i := range c.n {
		c.n[i], c.answers[i] = w.draw(), failed
		t.ledger.ask(c.n[i])
	}
	err := w.lane.do(ctx, c)
	silent := errors.Is(context.Cause(ctx), loadgen.ErrSilent)
	if errors.Is(err, errRules) || ctx.Err() != nil && !silent {
		return 0, errors.Join(err, ctx.Err())
	}
	now := clock.Now()
	if !silent {
		w.finished = now
	}
	for i, n := range c.n {
		t.ledger.answer(n, c.answers[i])
	}
	if err == nil {
		w.took.Add(now-due, t.Weight)
		switch {
		case w.self == "" || c.owner == "":
		case c.owner == w.self:
			w.own.Add(now-due, t.Weight)
		default:
			w.away.Add(now-due, t.Weight)
		}
		if c.why != "" {
			w.why = c.why
		}
		return now, nil
	}
	if w.why = err.Error(); silent {
		w.why = errSilent.Error()
		return now, nil
	}
	if err := waiting.Sleep(ctx, pause); err != nil && !errors.Is(context.Cause(ctx), loadgen.ErrSilent) {
		return 0, err
	}
	return clock.Now(), nil
}

package sim

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/rules"
)

// subject is a cluster of three in virtual time, asked at one node after the
// other. The clock that counters see is the test's; that of the protocol runs on.
type subject struct {
	w     *World
	tb    testing.TB
	set   *rules.Set
	clock limiter.Tick
	next  int
	only  bool // always the same is asked
}

func newSubject(tb testing.TB, yaml string) limitertest.Subject {
	return newSubjectOf(tb, yaml, func(*World) {})
}

// newSubjectOf is one of a world that has been prepared.
func newSubjectOf(tb testing.TB, yaml string, prepare func(*World)) limitertest.Subject {
	s := &subject{w: newWorld(1), tb: tb, clock: limitertest.Start()}
	prepare(s.w)
	s.w.clock = func(limiter.Tick) limiter.Tick { return s.clock }
	if err := s.SetRules(yaml); err != nil {
		tb.Fatal(err)
	}
	s.w.ruleNamed = func(name string) *limiter.Rule { return s.set.Rule(name) }
	for i, name := range []string{"a", "b", "c"} {
		s.w.start(name, i == 0, nil, 3)
	}
	quiet := func() error { return nil }
	for range 100 {
		if err := s.w.run(100*ms, quiet); err != nil {
			tb.Fatal(err)
		}
		if s.w.settled() == nil {
			return s
		}
	}
	tb.Fatal(s.w.settled())
	return nil
}

// node returns whom to ask next.
func (s *subject) node() *Node {
	live := s.w.live()
	if s.only {
		return live[0]
	}
	s.next++
	return live[s.next%len(live)]
}

// errDone ends a run at the event that brought the answer.
var errDone = errors.New("done")

// wait lets time pass until done, and no event longer: what the answer should have
// waited for is still under way when the next request begins.
func (s *subject) wait(done *bool) error {
	if *done {
		return nil
	}
	err := s.w.run(2*limiter.Second, func() error {
		if *done {
			return errDone
		}
		return nil
	})
	switch {
	case errors.Is(err, errDone):
		return nil
	case err != nil:
		return err
	}
	return errors.New("no answer came")
}

func (s *subject) ask(r *limiter.Request, d *limiter.Decision, peek bool) error {
	var c arith.Charge
	m, err := s.set.Resolve(r, &c)
	if err != nil {
		return err
	}
	c.Peek = peek
	if err := engine.Unheld(m, &c); err != nil {
		return err
	}
	done := false
	s.node().core.Begin(&c, d, 0, func() { done = true })
	if err := s.wait(&done); err != nil {
		return err
	}
	if d.Source.ByPolicy() {
		return fmt.Errorf("a policy answered: %v", d.Source)
	}
	if err := engine.Spent(d); err != nil {
		return err
	}
	if d.Rule == "" {
		d.Rule = m.Rule
	}
	if r.Hold != 0 {
		d.Receipt = limiter.Receipt{}
	}
	return nil
}

func (s *subject) CheckInto(_ context.Context, r *limiter.Request, d *limiter.Decision) error {
	return s.ask(r, d, false)
}

func (s *subject) PeekInto(_ context.Context, r *limiter.Request, d *limiter.Decision) error {
	return s.ask(r, d, true)
}

func (s *subject) Refund(_ context.Context, r limiter.Request, receipt limiter.Receipt) error {
	var c arith.Charge
	if _, err := s.set.Resolve(&r, &c); err != nil {
		return err
	}
	done, out := false, route.Outcome{}
	s.node().core.Refund(&c, receipt, func(o route.Outcome) { done, out = true, o })
	return s.done(&done, &out)
}

func (s *subject) Amend(_ context.Context, r limiter.Request, a limiter.Settling) (limiter.Amended, error) {
	var c arith.Charge
	if err := limitertest.Settled(&r, &a, func() error { _, err := s.set.Resolve(&r, &c); return err },
		s.set.Lacking); err != nil {
		return limiter.Amended{}, err
	}
	done, out := false, route.Outcome{}
	s.node().core.Amend(&c, a.Amend, func(o route.Outcome) { done, out = true, o })
	if err := s.done(&done, &out); err != nil {
		return limiter.Amended{}, err
	}
	return *out.Amended, nil
}

func (s *subject) Reset(_ context.Context, r limiter.Request) error {
	var c arith.Charge
	if _, err := s.set.Resolve(&r, &c); err != nil {
		return err
	}
	done, out := false, route.Outcome{}
	s.node().core.Reset(&c, func(o route.Outcome) { done, out = true, o })
	return s.done(&done, &out)
}

// done waits for a refund or reset.
func (s *subject) done(done *bool, out *route.Outcome) error {
	if err := s.wait(done); err != nil {
		return err
	}
	if out.Unanswered != 0 {
		return fmt.Errorf("nobody answered: %+v", *out)
	}
	return nil
}

func (s *subject) SetTime(t limiter.Tick) { s.clock = t }

func (s *subject) SetRules(yaml string) error {
	set, err := rules.Parse("rules", []byte(yaml), rules.Options{})
	if err == nil {
		s.set = set
	}
	return err
}

func (s *subject) KeyName(r *limiter.Request, l *limiter.LimitDecision) string {
	return string(s.set.AppendKeyName(nil, r, &arith.Key{Rule: l.Rule, Index: l.KeyIndex}, l.Limit))
}

// TestConformance: a cluster decides as one table does, whoever is asked.
//
// C3.
func TestConformance(t *testing.T) {
	if raceEnabled || testing.Short() {
		t.Skip("long, and longer under the race detector; make wire runs it")
	}
	t.Parallel()
	made := func(tb testing.TB, yaml string) limitertest.Subject {
		return &afterResets{subject: newSubject(tb, yaml).(*subject)}
	}
	limitertest.Run(t, made)
}

// afterResets is a subject whose owners let what follows a reset be of a later instant. After a
// reset, waits that end a microsecond before a millisecond are told as if it were of the same one.
type afterResets struct {
	*subject
	was bool
}

func (s *afterResets) Reset(ctx context.Context, r limiter.Request) error {
	s.was = true
	return s.subject.Reset(ctx, r)
}

func (s *afterResets) CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	return s.sameInstant(d, s.subject.CheckInto(ctx, r, d))
}

func (s *afterResets) PeekInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	return s.sameInstant(d, s.subject.PeekInto(ctx, r, d))
}

func (s *afterResets) sameInstant(d *limiter.Decision, err error) error {
	if err != nil || !s.was {
		return err
	}
	later := func(wait *time.Duration) {
		if *wait%time.Millisecond == time.Millisecond-limiter.TickDuration {
			*wait += limiter.TickDuration
		}
	}
	for i := range d.Len() {
		later(&d.Limit(i).RetryAfter)
		later(&d.Limit(i).ResetAfter)
	}
	arith.Conclude(d)
	return nil
}

// LimitsConcurrency implements [limitertest.Concurrent].
func (*subject) LimitsConcurrency() {}

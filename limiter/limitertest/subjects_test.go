package limitertest

import (
	"context"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/rules"
)

// ruled is what the subjects of this package's own tests share: the rules.
type ruled struct {
	set    *rules.Set
	now    limiter.Tick
	charge arith.Charge
	name   []byte
}

func newRuled(tb testing.TB, yaml string) ruled {
	tb.Helper()
	set, err := rules.Parse("rules", []byte(yaml), rules.Options{})
	if err != nil {
		tb.Fatalf("%v in\n%s", err, yaml)
	}
	return ruled{set: set, now: Start()}
}

func (s *ruled) SetTime(t limiter.Tick) { s.now = t }

func (s *ruled) SetRules(yaml string) error {
	set, err := rules.Parse("rules", []byte(yaml), rules.Options{})
	if err == nil {
		s.set = set
	}
	return err
}

func (s *ruled) KeyName(r *limiter.Request, l *limiter.LimitDecision) string {
	if _, err := s.set.Resolve(r, &s.charge); err != nil {
		return err.Error()
	}
	s.name = s.set.AppendKeyName(s.name[:0], r, s.charge.Key(l.Key), l.Limit)
	return string(s.name)
}

// tableSubject is rules and a table: what decides in a node.
type tableSubject struct {
	ruled
	table *table.Table
}

func newTableSubject(tb testing.TB, yaml string) Subject {
	return &tableSubject{newRuled(tb, yaml), table.New(table.Config{})}
}

func (s *tableSubject) decide(r *limiter.Request, d *limiter.Decision, peek bool) error {
	m, err := s.set.Resolve(r, &s.charge)
	if err != nil {
		return err
	}
	s.charge.Peek = peek
	if m.Unheld && !peek && s.charge.Key(0).Cost > 0 {
		return limiter.ErrInvalid
	}
	err = s.table.Decide(s.now, &s.charge, d)
	if d.Allowed {
		d.Rule = m.Rule
	}
	return err
}

// LimitsConcurrency implements [Concurrent].
func (*tableSubject) LimitsConcurrency() {}

func (s *tableSubject) CheckInto(_ context.Context, r *limiter.Request, d *limiter.Decision) error {
	return s.decide(r, d, false)
}

func (s *tableSubject) PeekInto(_ context.Context, r *limiter.Request, d *limiter.Decision) error {
	return s.decide(r, d, true)
}

func (s *tableSubject) Reset(_ context.Context, r limiter.Request) error {
	if _, err := s.set.Resolve(&r, &s.charge); err != nil {
		return err
	}
	s.table.Reset(s.now, &s.charge)
	return nil
}

func (s *tableSubject) Refund(_ context.Context, r limiter.Request, rc limiter.Receipt) error {
	if _, err := s.set.Resolve(&r, &s.charge); err != nil {
		return err
	}
	s.table.Refund(s.now, &s.charge, rc)
	return nil
}

func (s *tableSubject) Amend(_ context.Context, r limiter.Request, a limiter.Settling) (limiter.Amended, error) {
	if err := Settled(&r, &a, func() error { _, err := s.set.Resolve(&r, &s.charge); return err },
		s.set.Lacking); err != nil {
		return limiter.Amended{}, err
	}
	out, _ := s.table.Amend(s.now, &s.charge, a.Amend)
	return out, nil
}

// oracleSubject is rules and oracles: slow, and correct by construction. It does not
// define the consumption of a changed limit: a limit that differs from before starts
// afresh.
type oracleSubject struct {
	ruled
	limits map[oracleKey]*oracleLimit
}

type oracleKey struct {
	hash  arith.Hash
	limit any
}

func newOracleSubject(tb testing.TB, yaml string) *oracleSubject {
	return &oracleSubject{ruled: newRuled(tb, yaml), limits: map[oracleKey]*oracleLimit{}}
}

// turns finds the oracles of a request, and the keys they belong to.
func (s *oracleSubject) turns(r *limiter.Request) (ts []turn, ds []limiter.LimitDecision, m rules.Match, err error) {
	if m, err = s.set.Resolve(r, &s.charge); err != nil {
		return nil, nil, m, err
	}
	for i := range s.charge.Len() {
		k := s.charge.Key(i)
		for _, l := range k.Rule.Limits {
			id := oracleKey{k.Hash, l.C.P}
			if s.limits[id] == nil {
				s.limits[id] = newOracleLimit(l.Spec())
			}
			ts = append(ts, turn{limit: s.limits[id], cost: k.Cost, shadow: k.Rule.Shadow})
			ds = append(ds, limiter.LimitDecision{Rule: k.Rule, Limit: l, Key: i, Cost: k.Cost})
		}
	}
	return ts, ds, m, nil
}

// ask returns the oracle's answer, and the limits that it is about.
func (s *oracleSubject) ask(r *limiter.Request, peek bool) (OracleDecision, []limiter.LimitDecision, rules.Match,
	error) {
	ts, ds, m, err := s.turns(r)
	if err != nil {
		return OracleDecision{}, nil, m, err
	}
	return decide(s.now, peek, ts), ds, m, nil
}

func (s *oracleSubject) Reset(_ context.Context, r limiter.Request) error {
	ts, _, _, err := s.turns(&r)
	for _, t := range ts {
		*t.limit = *newOracleLimit(t.limit.spec)
	}
	return err
}

func (s *oracleSubject) Refund(_ context.Context, r limiter.Request, rc limiter.Receipt) error {
	ts, _, _, err := s.turns(&r)
	for _, t := range ts {
		t.limit.refund(s.now, arith.Fields(&rc).Time, t.cost)
	}
	return err
}

// judged is a subject that the oracle looks at: every answer of the subject is
// compared.
type judged struct {
	*tableSubject
	oracle *oracleSubject
	holds  *holdOracle // judges from the first request with an id on
	ids    bool
	tb     testing.TB
}

func newJudged(tb testing.TB, yaml string) Subject {
	return &judged{newTableSubject(tb, yaml).(*tableSubject), newOracleSubject(tb, yaml), newHoldOracle(), false, tb}
}

func (s *judged) SetTime(t limiter.Tick) {
	s.tableSubject.SetTime(t)
	s.oracle.SetTime(t)
}

// SetRules fails the test: the oracle does not know how consumption is carried
// over, so a transcript in which rules change cannot be judged.
func (s *judged) SetRules(yaml string) error {
	s.tb.Skip("the oracle does not follow a change of rules")
	return nil
}

func (s *judged) judge(r *limiter.Request, d *limiter.Decision, peek bool) error {
	if err := s.decide(r, d, peek); err != nil {
		return err
	}
	want, _, _, err := s.oracle.ask(r, peek)
	if err != nil {
		return err
	}
	held, repeated := s.holds.check(s.now, &s.charge)
	if s.ids = s.ids || r.ID != ""; s.ids {
		want = held
	}
	if d.Repeated != repeated {
		s.tb.Errorf("at %v, %+v: repeated %t", s.now.Time(), *r, d.Repeated)
	}
	if repeated {
		return nil
	}
	if want.Allowed && d.Allowed && len(want.Limits) < d.Len() && r.ID != "" {
		return nil // the oracle answers for the keys alone that were charged; what follows judges the others
	}
	if diff := Diff(d, want); diff != "" {
		s.tb.Errorf("at %v, %+v: %s", s.now.Time(), *r, diff)
	}
	return nil
}

func (s *judged) CheckInto(_ context.Context, r *limiter.Request, d *limiter.Decision) error {
	return s.judge(r, d, false)
}

func (s *judged) PeekInto(_ context.Context, r *limiter.Request, d *limiter.Decision) error {
	return s.judge(r, d, true)
}

func (s *judged) Reset(ctx context.Context, r limiter.Request) error {
	if err := s.oracle.Reset(ctx, r); err != nil {
		return err
	}
	err := s.tableSubject.Reset(ctx, r)
	s.holds.reset(s.now, &s.charge)
	return err
}

func (s *judged) Refund(ctx context.Context, r limiter.Request, rc limiter.Receipt) error {
	if err := s.oracle.Refund(ctx, r, rc); err != nil {
		return err
	}
	err := s.tableSubject.Refund(ctx, r, rc)
	s.holds.refund(s.now, arith.Fields(&rc).Time, &s.charge, rc)
	return err
}

func (s *judged) Amend(ctx context.Context, r limiter.Request, a limiter.Settling) (limiter.Amended, error) {
	got, err := s.tableSubject.Amend(ctx, r, a)
	if err != nil {
		return got, err
	}
	a.Lacks = len(s.set.Lacking(&r)) > 0
	s.ids = true
	var want limiter.Amended
	if a.Extend {
		want = s.holds.extend(s.now, &s.charge, a.Lacks)
	} else {
		want = s.holds.settle(s.now, &s.charge, a.Amend)
	}
	if got.Known = 0; got != want { // an oracle sweeps nothing
		s.tb.Errorf("at %v, %+v: amended %+v, want %+v", s.now.Time(), r, got, want)
	}
	return got, nil
}

// TestTranscriptsAreRight holds the answers that are written in the transcripts
// against the oracle, by way of a table whose every answer it judges.
func TestTranscriptsAreRight(t *testing.T) { Transcripts(t, newJudged) }

// TestTableConforms runs the suite over rules and a table, without a node.
func TestTableConforms(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make wire runs it")
	}
	Run(t, newTableSubject)
}

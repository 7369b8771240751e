package limitertest

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// A suite that nothing fails shows nothing. The tests in this file run it over
// deciders with one planted fault each, in processes of their own, since there
// it is to fail.

const faultVariable = "LIMITERTEST_FAULT"

// faulty is the table with one fault.
type faulty struct {
	*tableSubject
	fault  string
	denied int
}

func (s *faulty) CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	q := *r
	switch s.fault {
	case "peeks are charged":
		if n, _ := q.Cost.Value(1); n == 0 {
			q.Cost = limiter.Units(1)
		}
	case "users are folded":
		q.User = strings.ToLower(q.User)
	case "costs are clamped":
		if _, err := q.Cost.Value(1); err != nil {
			q.Cost = limiter.Units(1)
		}
	}
	if err := s.tableSubject.CheckInto(ctx, &q, d); err != nil {
		return err
	}
	switch s.fault {
	case "instants are a tick late":
		if d.RetryAfter > 0 {
			d.RetryAfter += limiter.TickDuration
		}
	case "instants are a tick early":
		if limiter.Span(d.RetryAfter) > 1 {
			d.RetryAfter -= limiter.TickDuration
		}
	case "resets are a tick early":
		for i := range d.Len() {
			if l := d.Limit(i); l.ResetAfter > 0 {
				l.ResetAfter -= limiter.TickDuration
			}
		}
	case "some denials pass":
		if !d.Allowed && !d.Never {
			if s.denied++; s.denied%8 == 0 {
				d.Allowed = true
			}
		}
	}
	return nil
}

func (s *faulty) Reset(ctx context.Context, r limiter.Request) error {
	if s.fault == "resets do nothing" {
		return nil
	}
	return s.tableSubject.Reset(ctx, r)
}

func (s *faulty) Refund(ctx context.Context, r limiter.Request, rc limiter.Receipt) error {
	switch s.fault {
	case "refunds take twice":
		if err := s.tableSubject.Refund(ctx, r, rc); err != nil {
			return err
		}
	case "refunds do nothing":
		return nil
	}
	return s.tableSubject.Refund(ctx, r, rc)
}

func (s *faulty) SetRules(yaml string) error {
	if s.fault == "new rules begin afresh" {
		s.table = table.New(table.Config{})
	}
	return s.tableSubject.SetRules(yaml)
}

// TestFaulty runs the suite over a decider with the fault that the environment names.
// It is no test by itself.
func TestFaulty(t *testing.T) {
	fault := os.Getenv(faultVariable)
	if fault == "" {
		t.Skip("there is no fault to plant")
	}
	Run(t, func(tb testing.TB, yaml string) Subject {
		return &faulty{tableSubject: newTableSubject(tb, yaml).(*tableSubject), fault: fault}
	})
}

// Each part of the suite finds the fault that it is there for.
func TestSuiteFindsPlantedFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make wire runs it")
	}
	for _, row := range []struct{ part, fault string }{
		{"Transcripts", "peeks are charged"},
		{"Transcripts", "resets do nothing"},
		{"Transcripts", "new rules begin afresh"},
		{"Oracle", "resets are a tick early"},
		{"Oracle", "refunds do nothing"},
		{"OracleSeveralLimits", "instants are a tick late"},
		{"RetryAfter", "instants are a tick late"},
		{"RetryAfter", "instants are a tick early"},
		{"RetryAfter", "resets are a tick early"},
		{"RetryAfterSeveralLimits", "instants are a tick early"},
		{"Bounds", "some denials pass"},
		{"Refunds", "refunds take twice"},
		{"Refunds", "refunds do nothing"},
		{"RefundsBounds", "some denials pass"},
		{"ChangedLimits", "new rules begin afresh"},
		{"ChangedLimitsBounds", "some denials pass"},
		{"UnchangedRules", "new rules begin afresh"},
		{"Peeks", "peeks are charged"},
		{"CostZeroOnlyPeeks", "peeks are charged"},
		{"Resets", "resets do nothing"},
		{"KeysApart", "users are folded"},
		{"InvalidRequests", "costs are clamped"},
	} {
		t.Run(row.part+"/"+strings.ReplaceAll(row.fault, " ", "_"), func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestFaulty$/^"+row.part+"$")
			cmd.Env = append(os.Environ(), faultVariable+"="+row.fault)
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("nothing failed:\n%s", out)
			}
			if !strings.Contains(string(out), "--- FAIL: TestFaulty/"+row.part) {
				t.Fatalf("it is not this part that failed: %v\n%s", err, out)
			}
		})
	}
}

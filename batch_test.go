package weir_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
)

// A batch is decided like its requests one by one, in spite of the lookahead, whether they
// are checks, peeks or both. The error names the indexes of requests that cannot be decided.
func TestBatchIsOneByOne(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	open := func(watch checked) *weir.Node {
		n, err := weir.Open(context.Background(), weir.Config{
			Rules: []byte("version: 1\nrules: [{name: towns, match: {path: ^/towns}, key: [user], limits: [3/minute, " +
				"5/hour]}]\n"),
			Now: func() time.Time { return now }, Observer: watch.observer(),
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	rng := rand.New(rand.NewPCG(4, 2))
	inBatches, alone := checked{}, checked{}
	batched, single := open(inBatches), open(alone)
	for round := range 300 {
		n := rng.IntN(40)
		peeks := make([]bool, n)
		rs, ds := make([]weir.Request, n), make([]weir.Decision, n)
		for i := range rs {
			rs[i] = weir.Request{Path: "/towns", User: fmt.Sprint(rng.IntN(30))}
			if rng.IntN(9) == 0 {
				rs[i].Rule = "none"
			}
			peeks[i] = round%3 == 1 || round%3 == 2 && rng.IntN(2) == 0
		}
		var err error
		switch round % 3 {
		case 0:
			err = batched.CheckBatchInto(context.Background(), rs, ds)
		case 1:
			err = batched.PeekBatchInto(context.Background(), rs, ds, nil)
		default:
			err = batched.PeekBatchInto(context.Background(), rs, ds, peeks)
		}
		var bad *weir.BatchError
		if err != nil && !errors.As(err, &bad) {
			t.Fatal(err)
		}
		failed := map[int]bool{}
		if bad != nil {
			for _, i := range bad.Index {
				failed[i] = true
			}
		}
		for i := range rs {
			var d weir.Decision
			ask := single.CheckInto
			if peeks[i] {
				ask = single.PeekInto
			}
			err := ask(context.Background(), &rs[i], &d)
			if (err != nil) != failed[i] {
				t.Fatalf("request %d of %d: %v, in the batch %v", i, n, err, failed[i])
			}
			if err == nil && (d.Allowed != ds[i].Allowed || d.RetryAfter != ds[i].RetryAfter || d.Len() != ds[i].Len()) {
				t.Fatalf("request %d of %d: %+v, in the batch %+v", i, n, d, ds[i])
			}
		}
		now = now.Add(time.Duration(rng.IntN(5000)) * time.Millisecond)
	}
	if err := batched.PeekBatchInto(context.Background(), make([]weir.Request, 2), make([]weir.Decision, 2),
		make([]bool, 1)); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("of two requests one is said to be a peek or not: %v", err)
	}
	if len(alone) < 4 || !maps.Equal(inBatches, alone) {
		t.Errorf("an observer saw %v of batches, %v one by one", inBatches, alone)
	}
}

// checked counts the calls of an observer.
type checked map[string]int

func (c checked) observer() *weir.Observer {
	return &weir.Observer{
		Checked: func(n int, rule string, source limiter.Source, allowed, shadow bool) {
			c[fmt.Sprint(rule, source, allowed, shadow)] += n
		},
		Refused:  func(error) { c["refused"]++ },
		RulesSet: func(uint64, error) { c["rules"]++ },
	}
}

// An observer may lack any function: none of them is called then.
func TestAnObserverWithoutFunctions(t *testing.T) {
	file := []byte("version: 1\nrules:\n  - {name: dry, key: [user], limits: [1/hour], shadow: true, continue: true}\n" +
		"  - {name: zoned, key: [user], limits: [{limit: 9, calendar: day, zone: {from: \"attr:tz\", default: UTC}}]}\n")
	n := open(t, weir.Config{Rules: file, Observer: new(weir.Observer)})
	ctx, r := t.Context(), weir.Request{User: "ada", ID: "1", Hold: time.Minute}
	for range 2 { // the second one is a repetition
		if _, err := n.CheckBatch(ctx, []weir.Request{r, r}); err != nil {
			t.Error(err)
		}
		if d, err := n.Check(ctx, r); err != nil || !d.Repeated {
			t.Errorf("%+v, %v", d, err)
		}
	}
	if _, err := n.Check(ctx, weir.Request{Rule: "none"}); err == nil {
		t.Error("an unknown rule decided")
	}
	if a, err := n.Settle(ctx, r, 1); err != nil || a.State != weir.AmendDone {
		t.Error(a, err)
	}
	if err := n.SetRules([]byte("version: 2")); err == nil {
		t.Error("a bad file came into force")
	}
	if err := n.SetRules(file); err != nil {
		t.Error(err)
	}
}

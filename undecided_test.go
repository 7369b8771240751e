package weir_test

import (
	"context"
	"errors"
	"testing"

	"github.com/weirlimit/weir"
)

// A decision that is used again never allows what an error left undecided.
func TestAnErrorLeavesNoEarlierAnswer(t *testing.T) {
	node, err := weir.Open(context.Background(), weir.Config{Rules: benchRules("{limit: 100, window: 1h}")})
	if err != nil {
		t.Fatal(err)
	}
	paths, users := benchParts()
	good := weir.Request{Path: paths[0], User: users[0]}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	ds := make([]weir.Decision, 2)
	check := func(what string, want error, ask func() error) {
		t.Helper()
		for i := range ds {
			if err := node.CheckInto(context.Background(), &good, &ds[i]); err != nil || !ds[i].Allowed {
				t.Fatal(err, ds[i])
			}
		}
		if err := ask(); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	denied := func(what string, ds ...weir.Decision) {
		t.Helper()
		for i := range ds {
			if d := &ds[i]; d.Allowed || d.Len() > 0 || d.Rule != "" || d.Source != (weir.Decision{}).Source {
				t.Errorf("%s: decision %d is still %+v", what, i, d)
			}
		}
	}
	bad := good
	bad.Cost = weir.Units(-1)
	check("bad cost", weir.ErrInvalid, func() error { return node.CheckInto(context.Background(), &bad, &ds[0]) })
	denied("bad cost", ds[0])
	check("peek of bad cost", weir.ErrInvalid, func() error { return node.PeekInto(context.Background(), &bad, &ds[0]) })
	denied("peek of bad cost", ds[0])
	check("ended", context.Canceled, func() error { return node.CheckInto(ended, &good, &ds[0]) })
	denied("ended", ds[0])
	check("batch, ended", context.Canceled, func() error {
		return node.CheckBatchInto(ended, []weir.Request{good, good}, ds)
	})
	denied("batch, ended", ds...)
	check("batch of another length", weir.ErrInvalid, func() error {
		return node.CheckBatchInto(context.Background(), []weir.Request{good}, ds)
	})
	denied("batch of another length", ds...)
	check("peeks of another length", weir.ErrInvalid, func() error {
		return node.PeekBatchInto(context.Background(), []weir.Request{good, good}, ds, []bool{true})
	})
	denied("peeks of another length", ds...)
	check("closed", weir.ErrClosed, func() error {
		if err := node.Close(); err != nil {
			return err
		}
		return node.CheckBatchInto(context.Background(), []weir.Request{good, good}, ds)
	})
	denied("batch, closed", ds...)
	ds[0].Allowed = true
	if err := node.CheckInto(context.Background(), &good, &ds[0]); !errors.Is(err, weir.ErrClosed) {
		t.Error(err)
	}
	denied("closed", ds[0])
}

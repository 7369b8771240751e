package weir_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/weirtest"
)

// repeats counts what an observer is told of repetitions.
type repeats struct{ rules []string }

func (r *repeats) observer() *weir.Observer {
	return &weir.Observer{Repeated: func(rule string) { r.rules = append(r.rules, rule) }}
}

// A check with an id counts once while it is remembered, and each repetition says so, on a node
// by itself and on one with a backend.
func TestIDs(t *testing.T) {
	t.Run("alone", func(t *testing.T) { testIDs(t, weir.Config{}) })
	t.Run("backend", func(t *testing.T) {
		testIDs(t, weir.Config{Backend: &tableBackend{table: table.New(table.Config{})}})
	})
}

func testIDs(t *testing.T, c weir.Config) {
	now, seen := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC), &repeats{}
	c.Rules, c.Now, c.Observer = []byte(refundable), func() time.Time { return now }, seen.observer()
	n := open(t, c)
	ctx, pay := t.Context(), weir.Request{Path: "/a", User: "ada", Cost: weir.Units(2), ID: "order-7"}
	for i := range 3 {
		d, err := n.Check(ctx, pay)
		if err != nil || !d.Allowed || d.Repeated != (i > 0) || d.Limit(0).Remaining != 8 {
			t.Fatalf("check %d: %+v, %v", i, d, err)
		}
	}
	ds, err := n.CheckBatch(ctx, []weir.Request{pay, {Path: "/a", User: "ada", Cost: weir.Units(2), ID: "order-8"}, pay})
	if err != nil || !ds[0].Repeated || ds[1].Repeated || !ds[2].Repeated ||
		left(t, n, weir.Request{Path: "/a", User: "ada"}) != 6 {
		t.Fatalf("%+v, %v", ds, err)
	}
	bob := pay
	bob.User = "bob"
	if d, err := n.Check(ctx, bob); err != nil || d.Repeated || d.Limit(0).Remaining != 8 {
		t.Errorf("of another user: %+v, %v", d, err)
	}
	if len(seen.rules) != 4 || seen.rules[0] != "a" {
		t.Errorf("the observer was told %v", seen.rules)
	}
	now = now.Add(time.Minute)
	if d, err := n.Check(ctx, pay); err != nil || d.Repeated || d.Limit(0).Remaining != 4 {
		t.Errorf("after a minute: %+v, %v", d, err)
	}
	// A refund with the id forgets it, so the request can be made again.
	d, err := n.Check(ctx, weir.Request{Path: "/a", User: "eve", Cost: weir.Units(3), ID: "7"})
	if err != nil {
		t.Fatal(err)
	}
	eve := weir.Request{Path: "/a", User: "eve", Cost: weir.Units(3), ID: "7"}
	if err := n.Refund(ctx, eve, n.SealReceipt(&eve, &d)); err != nil {
		t.Fatal(err)
	}
	if d, err := n.Check(ctx, eve); err != nil || d.Repeated || d.Limit(0).Remaining != 7 {
		t.Errorf("after a refund: %+v, %v", d, err)
	}
}

// A check with an id allocates nothing, be the id new or known, the check allowed or denied, alone or in a batch.
func TestIDsAllocateNothing(t *testing.T) {
	n := open(t, weir.Config{Rules: []byte(`{version: 1, rules: [{name: a, limits: [300/hour]}]}`)})
	ids := make([]string, 500)
	for i := range ids {
		ids[i] = strconv.Itoa(i)
	}
	i, ctx := 0, t.Context()
	var d weir.Decision
	r := weir.Request{Path: "/"}
	each := func() {
		r.ID = ids[i]
		i++
		for range 2 {
			if err := n.CheckInto(ctx, &r, &d); err != nil || d.Allowed != (i <= 300) {
				t.Errorf("check %d: %+v, %v", i, d, err)
			}
		}
	}
	each()
	if a := testing.AllocsPerRun(len(ids)-2, each); a != 0 {
		t.Errorf("%v allocations", a)
	}
	rs, ds := make([]weir.Request, 20), make([]weir.Decision, 20)
	for i := range rs {
		rs[i] = weir.Request{Path: "/", ID: ids[i]}
	}
	if a := testing.AllocsPerRun(20, func() {
		if err := n.CheckBatchInto(ctx, rs, ds); err != nil || !ds[19].Repeated {
			t.Errorf("%+v, %v", ds[19], err)
		}
	}); a != 0 {
		t.Errorf("%v allocations in a batch", a)
	}
}

// An explanation of a check whose id is remembered names the rule that the answer names, not one that would deny it.
func TestAnExplanationOfARepetitionNamesTheRule(t *testing.T) {
	n := weirtest.New(t, `
version: 1
quotas: [{name: units, key: [user], limits: [1/hour]}]
rules: [{name: api, quotas: [units]}]
`)
	r := weir.Request{Path: "/a", User: "ada", ID: "x"}
	if d, err := n.Check(t.Context(), r); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	d, err := n.Peek(t.Context(), r)
	e, failed := n.Explain(t.Context(), r)
	if err != nil || failed != nil || !e.Decision.Repeated || e.Decision.Rule != "api" || d.Rule != "api" {
		t.Errorf("answered by %q, explained as %+v: %v, %v", d.Rule, e.Decision, err, failed)
	}
}

// A check whose id is remembered for some of its keys is charged to the others alone. So a peek and an explanation ask
// only these: before, both were denied by a limit that the check itself does not ask.
func TestPeekOfAnIDThatSomeKeysKnow(t *testing.T) {
	n, ctx := weirtest.New(t, `
rules:
  - {name: first, keys: [[ip], [user]], limits: [1/hour], continue: true}
  - {name: second, key: [user], limits: [1/hour]}
`), t.Context()
	first := weir.Request{User: "ada", IP: "192.0.2.1", ID: "1"}
	if d, err := n.Check(ctx, first); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	for ip, allowed := range map[string]bool{"192.0.2.2": true, "192.0.2.3": false} {
		r := first
		if r.IP = ip; !allowed { // its address is used up, too
			if d, err := n.Check(ctx, weir.Request{IP: ip}); err != nil || !d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
		}
		peek, err := n.Peek(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		e, err := n.Explain(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		state := e.Limits[2].State
		if len(e.Answer.Limits) != 3 || len(state) == 0 || state[len(state)-1].Name != "id remembered until" {
			t.Errorf("%s: the explanation is %+v", ip, e)
		}
		d, err := n.Check(ctx, r)
		if err != nil || d.Allowed != allowed || peek.Allowed != allowed || e.Answer.Allowed != allowed ||
			e.Decision.RetryAfter != d.RetryAfter || peek.RetryAfter != d.RetryAfter || d.Repeated || peek.Repeated ||
			e.Answer.Rule != "first" || d.Rule != "first" {
			t.Errorf("%s: check %+v, %v\npeek %+v\nexplanation %+v", ip, d, err, peek, e.Answer)
		}
	}
}

package engine

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/limiter/table"
)

// lender is a table that lends units of a key with so many a day.
type lender struct {
	*testing.T
	Slices
	table *table.Table
	rule  *limiter.Rule
	last  uint64
}

func newLender(t *testing.T, most int64) *lender {
	t.Helper()
	l := limitertest.Limit(t, limiter.Spec{Algorithm: limiter.FixedWindow, Limit: most, Window: 24 * time.Hour})
	return &lender{T: t, table: table.New(table.Config{}),
		rule: &limiter.Rule{Name: "r", Limits: []*limiter.Limit{l}, Leases: true}}
}

// lend lends n units to a caller, by the next id of it, and reports whether it did.
func (x *lender) lend(caller, n uint64) bool {
	x.last++
	return x.again(arith.LeaseID(caller<<60, x.last), n).Allowed
}

func (x *lender) again(id, n uint64) *limiter.Decision {
	x.Helper()
	c, d := new(arith.Charge), new(limiter.Decision)
	c.Add(arith.Key{Hash: arith.Hash{Hi: 1, Lo: 2}, Rule: x.rule, Cost: n})
	c.ID = &arith.Idempotency{ID: id, Life: time.Second, Hold: 300 * time.Millisecond, Keep: true, Lent: true}
	if err := Decide(x.table, &x.Slices, 1e15, c, d); err != nil {
		x.Fatal(err)
	}
	return d
}

// A client is lent neither what is not worth it nor more than a quarter of what is left, and its caller not more than
// half of it, however many leases it has. Of however many callers, others find a quarter.
func TestAClientBorrowsAPart(t *testing.T) {
	x := newLender(t, 1000)
	for _, test := range []struct {
		caller, units uint64
		lent          bool
		why           string
	}{
		{1, 15, false, "too little"},
		{1, 251, false, "more than a quarter of 1000"},
		{1, 250, true, "a quarter"},
		{1, 188, false, "more than a quarter of 750"},
		{1, 187, true, "a quarter again"},
		{1, 64, false, "more than 500 of one caller"},
		{1, 63, true, "500 of one caller"},
		{2, 126, false, "more than a quarter of 500"},
		{2, 125, true, "a quarter of 500 to another caller"},
		{3, 93, true, "a quarter of 375 to a third one"},
		{4, 33, false, "more than 750 of all"},
		{4, 32, true, "750 of all"},
	} {
		if x.lend(test.caller, test.units) != test.lent {
			t.Errorf("%s: lent is %v", test.why, !test.lent)
		}
	}
	d := x.again(arith.LeaseID(4<<60, x.last), 32)
	if !d.Allowed || !d.Repeated {
		t.Errorf("asked again: %+v", d)
	}
	if d = x.again(arith.LeaseID(3<<60, 99), 200); d.Allowed || d.Limit(0).Remaining != 250 {
		t.Errorf("a denial says what is left: %+v", d)
	}
	x.Member = func(id uint64) bool { return id == 7 }
	if !x.again(7, 5).Allowed || !x.again(7, 5).Repeated {
		t.Error("a member decides by itself what it borrows")
	}
}

// Callers have a bounded number of leases each and all together, so that one leaves some for others, and all of them
// for members.
func TestCallersLeaveLeases(t *testing.T) {
	x := newLender(t, 1e9)
	x.Member = func(id uint64) bool { return id < 1000 }
	for caller, want := range []int{32, 32, 0} {
		n := 0
		for range 100 {
			if x.lend(uint64(caller)+1, 16) {
				n++
			}
		}
		if n != want {
			t.Errorf("caller %d has %d leases, want %d", caller, n, want)
		}
	}
	n := 0
	for id := range uint64(100) {
		if x.again(id+1, 1).Allowed {
			n++
		}
	}
	if n != table.MaxLoans-64 {
		t.Errorf("members have %d leases", n)
	}
}

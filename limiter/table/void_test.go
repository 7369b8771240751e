package table

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// TestAResetVoidsTheReceiptsOfItsKey: the receipts of a reset key are void, and those of
// other keys of its partition are not, until more than maxResets keys were reset.
func TestAResetVoidsTheReceiptsOfItsKey(t *testing.T) {
	rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit(t, limiter.Spec{Limit: 5, Window: time.Hour})}}
	key := func(i uint64) arith.Key {
		h := hash(i)
		h.Lo = 0 // one partition
		return arith.Key{Hash: h, Rule: rule}
	}
	table, now := New(Config{}), limiter.Tick(1e15)
	spend := func(i uint64) limiter.Receipt {
		var d limiter.Decision
		if err := table.Decide(now, charge(2, key(i)), &d); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		return d.Receipt
	}
	left := func(i uint64) uint64 {
		var d limiter.Decision
		if err := table.Decide(now, charge(0, key(i)), &d); err != nil {
			t.Fatal(err)
		}
		return d.Limit(0).Remaining
	}
	mine, other, old := spend(1), spend(2), spend(3)
	now++
	table.Reset(now, charge(1, key(1)))
	spend(1)
	for _, c := range []struct {
		key  uint64
		of   limiter.Receipt
		left uint64
	}{{1, mine, 3}, {2, other, 5}} {
		if table.Refund(now, charge(2, key(c.key)), c.of); left(c.key) != c.left {
			t.Errorf("key %d has %d left after the refund, want %d", c.key, left(c.key), c.left)
		}
	}
	for i := range uint64(maxResets) {
		spend(100 + i)
		table.Reset(now, charge(1, key(100+i)))
	}
	if table.Refund(now, charge(2, key(3)), old); left(3) != 3 {
		t.Errorf("%d left: a receipt is good beyond what is remembered", left(3))
	}
	if n := len(table.parts[PartitionOf(&arith.Key{Hash: key(1).Hash, Rule: rule})].void.keys); n != maxResets {
		t.Errorf("%d resets are remembered, at most %d", n, maxResets)
	}
}

// TestAResetIsMadeOnce: a reset whose id is remembered deletes nothing. Where there is no room for
// the id, each deletes.
func TestAResetIsMadeOnce(t *testing.T) {
	rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit(t, limiter.Spec{Limit: 5, Window: time.Hour})}}
	now, life := limiter.Tick(1e15), time.Second
	for _, most := range []int{2, 1} { // ids take half of the room at most
		table := New(Config{MaxKeys: most})
		reset := func() (int, bool) {
			c := charge(1, arith.Key{Hash: hash(1), Rule: rule})
			c.ID = &arith.Idempotency{ID: 7, Life: life}
			n, made := table.ResetOnce(now, c)
			return n, made.Len() == 0
		}
		spend := func() {
			var d limiter.Decision
			if err := table.Decide(now, charge(2, arith.Key{Hash: hash(1), Rule: rule}), &d); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
		}
		spend()
		if n, again := reset(); n != 1 || again {
			t.Errorf("%d counters: it deletes %d, again %t", most, n, again)
		}
		spend()
		if n, again := reset(); again != (most > 1) || n != 2-most {
			t.Errorf("%d counters: repeated it deletes %d, again %t", most, n, again)
		}
		now += limiter.Span(life)
		if n, again := reset(); again || n != most-1 {
			t.Errorf("%d counters: when its id is forgotten it deletes %d, again %t", most, n, again)
		}
	}
}

// TestAResetOfKeysThatAreKnownInPart: a reset whose id is remembered for one of its keys deletes the
// counters of the others, and remembers it for them.
func TestAResetOfKeysThatAreKnownInPart(t *testing.T) {
	rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit(t, limiter.Spec{Limit: 5, Window: time.Hour})}}
	now, table := limiter.Tick(1e15), New(Config{MaxKeys: 100})
	keys := []arith.Key{{Hash: hash(1), Rule: rule}, {Hash: hash(2), Rule: rule}, {Hash: hash(3), Rule: rule}}
	for _, k := range keys {
		var d limiter.Decision
		if err := table.Decide(now, charge(2, k), &d); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
	}
	for i, test := range []struct {
		keys, made []arith.Key
	}{{keys[1:2], keys[1:2]}, {keys, []arith.Key{keys[0], keys[2]}}, {keys[1:], nil}} {
		c := charge(1, test.keys...)
		c.ID = &arith.Idempotency{ID: 7, Life: time.Minute}
		n, made := table.ResetOnce(now, c)
		if n != len(test.made) || made.Len() != len(test.made) {
			t.Fatalf("reset %d deletes %d counters of %d keys, want of %d", i+1, n, made.Len(), len(test.made))
		}
		for j, k := range test.made {
			if made.Key(j).Hash != k.Hash {
				t.Errorf("reset %d: key %d is %v, want %v", i+1, j, made.Key(j).Hash, k.Hash)
			}
		}
	}
}

// changing is a rule whose limits change, with a table that counts by it.
type changing struct {
	t     *testing.T
	table *Table
	now   limiter.Tick
}

// spend charges a key under a limit of the rule named so.
func (x *changing) spend(rule string, key uint64, cost uint64, l *limiter.Limit) limiter.Receipt {
	x.t.Helper()
	d := x.decide(rule, key, cost, l)
	if !d.Allowed {
		x.t.Fatalf("%+v", d.Limit(0))
	}
	return d.Receipt
}

func (x *changing) decide(rule string, key uint64, cost uint64, l *limiter.Limit) (d limiter.Decision) {
	x.t.Helper()
	if err := x.table.Decide(x.now, x.charge(rule, key, cost, l), &d); err != nil {
		x.t.Fatal(err)
	}
	return d
}

func (x *changing) charge(rule string, key uint64, cost uint64, l *limiter.Limit) *arith.Charge {
	return charge(cost, arith.Key{Hash: hash(key), Rule: &limiter.Rule{Name: rule, Limits: []*limiter.Limit{l}}})
}

// left returns what remains of a key.
func (x *changing) left(rule string, key uint64, l *limiter.Limit) uint64 {
	x.t.Helper()
	d := x.decide(rule, key, 0, l)
	return d.Limit(0).Remaining
}

// TestReceiptsOfLimitsThatChangeBack: a limit is replaced and comes back between a charge and
// its refund. Meanwhile the charge may have been forgotten and others charged, so its receipt
// takes nothing back, whatever kinds of limits these are. If the other limit counts alike, it
// takes back its own.
func TestReceiptsOfLimitsThatChangeBack(t *testing.T) {
	hour := limiter.Spec{Name: "x", Limit: 10, Window: time.Hour}
	specs := []limiter.Spec{}
	for _, a := range []limiter.Algorithm{
		limiter.SlidingCounter, limiter.FixedWindow, limiter.SlidingLog, limiter.SlidingWindow, limiter.TokenBucket,
		limiter.LeakyBucket, limiter.GCRA,
	} {
		s := hour
		s.Algorithm = a
		specs = append(specs, s)
	}
	drip, all := hour, hour
	drip.Algorithm, drip.Drip = limiter.LeakyBucket, limiter.DripInterval
	all.Algorithm, all.CountRejected = limiter.FixedWindow, limiter.CountAll
	calendar := limiter.Spec{Name: "x", Algorithm: limiter.FixedWindow, Limit: 10, Calendar: limiter.CalendarMonth,
		Zone: "Europe/Berlin"}
	for i, s := range append(specs, drip, all, calendar) {
		short := limiter.Spec{Name: "x", Limit: 10, Window: time.Second, Algorithm: s.Algorithm, Drip: s.Drip}
		more := s
		more.Limit = 20
		for _, mode := range []struct{ swept, asked bool }{{false, true}, {true, true}, {true, false}} {
			swept, asked := mode.swept, mode.asked // under the other limit, when nothing is left of the charge
			x := &changing{t, New(Config{}), 1e15}
			back, other := limit(t, s), limit(t, short)
			mine := x.spend("r", 1, 6, back)
			x.now += limiter.Second
			x.decide("r", 1, 0, other) // it is converted
			x.now += limiter.Minute    // and recovers
			if swept {
				for p := range x.table.parts {
					x.table.parts[p].sweepOne(x.now)
				}
			}
			if asked {
				x.spend("r", 1, 4, other) // by others
			}
			x.spend("r", 1, 4, back)
			before := x.left("r", 1, back)
			if x.table.Refund(x.now, x.charge("r", 1, 6, back), mine); x.left("r", 1, back) != before {
				t.Errorf("limit %d, swept %t, asked %t: %d left before the refund, and %d after it", i, swept, asked, before,
					x.left("r", 1, back))
			}
			// Another one is as good as ever.
			x.now++
			if yours := x.spend("r", 1, 1, back); x.table.Refund(x.now, x.charge("r", 1, 1, back), yours) != 1 ||
				x.left("r", 1, back) != before {
				t.Errorf("limit %d: %d left after another refund, want %d", i, x.left("r", 1, back), before)
			}
		}
		if s.Algorithm >= limiter.TokenBucket || s.CountRejected == limiter.CountAll {
			continue // how fast it leaks, or how much it forgets, depends on the limit
		}
		x := &changing{t, New(Config{}), 1e15}
		mine := x.spend("r", 1, 6, limit(t, s))
		x.now++
		x.spend("r", 1, 4, limit(t, more))
		if x.table.Refund(x.now, x.charge("r", 1, 6, limit(t, s)), mine); x.left("r", 1, limit(t, s)) != 6 {
			t.Errorf("limit %d: %d left after a limit of 20 and a refund, want 6", i, x.left("r", 1, limit(t, s)))
		}
	}
}

// TestReceiptsOfOtherLimitsStay: a reload that converts thousands of counters, at any time
// after, voids no receipt under a limit that did not change back: not one of the new limit,
// nor of most other rules. A charge that the decider itself takes back is taken back.
func TestReceiptsOfOtherLimitsStay(t *testing.T) {
	of := func(name string, window time.Duration) *limiter.Limit {
		return limit(t, limiter.Spec{Name: name, Limit: 10, Window: window, Algorithm: limiter.FixedWindow})
	}
	x := &changing{t, New(Config{}), 1e15}
	const keys = 3000
	before, after := of("x", time.Hour), of("x", 2*time.Hour)
	for k := range uint64(keys) {
		x.spend("r", k, 1, before)
	}
	x.now += limiter.Second
	others := []*limiter.Limit{}
	receipts := []limiter.Receipt{}
	for i := range 100 {
		others = append(others, of("other", time.Duration(i+1)*time.Hour))
		receipts = append(receipts, x.spend("s", keys+uint64(i), 2, others[i]))
	}
	renewed := x.spend("r", 0, 2, after)
	for k := range uint64(keys) {
		x.now++
		x.spend("r", k, 1, after)
	}
	if x.table.Refund(x.now, x.charge("r", 0, 2, after), renewed); x.left("r", 0, after) != 8 {
		t.Errorf("%d left of a key that was converted early, want 8", x.left("r", 0, after))
	}
	void := 0
	for i, l := range others {
		if x.table.Refund(x.now, x.charge("s", keys+uint64(i), 2, l), receipts[i]); x.left("s", keys+uint64(i), l) != 10 {
			void++
		}
	}
	if void > 0 {
		t.Errorf("%d of 100 receipts of other limits are void", void)
	}
	own := x.spend("r", 1, 2, after)
	x.now++
	x.spend("r", 1, 1, before)
	x.spend("r", 1, 1, after)
	was := x.left("r", 1, after)
	if x.table.Refund(x.now, x.charge("r", 1, 2, after), own); x.left("r", 1, after) != was {
		t.Errorf("%d left, and %d before a refund that is void", x.left("r", 1, after), was)
	}
	if x.table.UndoIn(EveryPartition, x.now, x.charge("r", 1, 2, after), own); x.left("r", 1, after) != was+2 {
		t.Errorf("%d left, and %d before the decider took 2 back", x.left("r", 1, after), was)
	}
}

// TestLimitsOfOneKeyThatChange: whoever changes the limits of requests, or time zones, all the
// time voids the receipts of these keys, hardly any of others, and none of rules.
func TestLimitsOfOneKeyThatChange(t *testing.T) {
	of := func(window time.Duration) *limiter.Limit {
		return limit(t, limiter.Spec{Name: "x", Limit: 100_000, Window: window, Algorithm: limiter.FixedWindow})
	}
	long, short := of(time.Hour), of(time.Minute)
	x := &changing{t, New(Config{}), 1e15}
	ruled := x.spend("r", 900, 2, long)
	yours := []limiter.Receipt{}
	for k := range uint64(100) {
		yours = append(yours, x.spend(limiter.RequestRule, k, 2, long))
	}
	mine := x.spend(limiter.RequestRule, 999, 2, long)
	for range 1000 {
		x.now += 10
		x.spend(limiter.RequestRule, 999, 1, short)
		x.spend(limiter.RequestRule, 999, 1, long)
	}
	left := x.left(limiter.RequestRule, 999, long)
	if x.table.Refund(x.now, x.charge(limiter.RequestRule, 999, 2, long), mine); x.left(limiter.RequestRule, 999,
		long) != left {
		t.Errorf("%d left, and %d before a refund that is void", x.left(limiter.RequestRule, 999, long), left)
	}
	if x.table.Refund(x.now, x.charge("r", 900, 2, long), ruled); x.left("r", 900, long) != 100_000 {
		t.Errorf("%d left of the rule", x.left("r", 900, long))
	}
	void := 0
	for k, r := range yours {
		if x.table.Refund(x.now, x.charge(limiter.RequestRule, uint64(k), 2, long), r); x.left(limiter.RequestRule, uint64(k),
			long) != 100_000 {
			void++
		}
	}
	if void > 0 {
		t.Errorf("%d of 100 receipts of others are void", void)
	}
}

// A receipt of the former limit is void, too, if a check of an earlier instant was the first one that the new limit
// decided: the clock went back, or of two checks the one that read it first came last. So are those of the time by
// which it went back in another partition, which is converted when it has caught up.
func TestAReceiptOfTheFormerLimitFromLaterIsVoid(t *testing.T) {
	rules := make([]*limiter.Rule, 2)
	for i, window := range []time.Duration{10 * time.Second, 1000 * time.Second} {
		rules[i] = &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit(t, limiter.Spec{Name: "l", Limit: 10,
			Window: window, Algorithm: limiter.TokenBucket})}}
	}
	const one, other = 1, 2
	key := func(n uint64, rule *limiter.Rule) arith.Key { return arith.Key{Hash: hash(n), Rule: rule} }
	if a, b := key(one, rules[0]), key(other, rules[0]); PartitionOf(&a) == PartitionOf(&b) {
		t.Fatal("premise: the keys are of two partitions")
	}
	for _, later := range []limiter.Tick{1, limiter.Second} {
		table, now := New(Config{}), limiter.Tick(1e15)
		decide := func(at limiter.Tick, n uint64, rule *limiter.Rule, cost uint64) *limiter.Decision {
			d := new(limiter.Decision)
			if err := table.Decide(at, charge(cost, key(n, rule)), d); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			return d
		}
		voids := func(at limiter.Tick, n uint64, of limiter.Receipt) {
			t.Helper()
			before := decide(at, n, rules[1], 0).Limit(0).Remaining
			table.Refund(at, charge(6, key(n, rules[1])), of)
			if left := decide(at, n, rules[1], 0).Limit(0).Remaining; left != before {
				t.Errorf("%v later, key %d: %d are left, %d before a refund of what the former limit was charged",
					later.Duration(), n, left, before)
			}
		}
		of := decide(now+later, one, rules[0], 6).Receipt
		ofOther := decide(now+later/2, other, rules[0], 6).Receipt
		decide(now, one, rules[1], 1)
		voids(now+later, one, of)
		decide(now+2*later, other, rules[1], 1)
		voids(now+2*later, other, ofOther)
	}
}

// The former limit of a key was charged after another partition began with the new one, and its key is converted at an
// earlier instant: what the former was charged does not come back from the new one. What the new limit was charged in
// the other partition does.
func TestAReceiptOfTheFormerLimitOfALaterPartitionIsVoid(t *testing.T) {
	x := &changing{t, New(Config{}), 1e15}
	of := func(window time.Duration) *limiter.Limit {
		return limit(t, limiter.Spec{Name: "x", Limit: 10, Window: window, Algorithm: limiter.TokenBucket})
	}
	before, after := of(1000*time.Second), of(10_000*time.Second)
	early, late := uint64(1), uint64(2)
	part := func(key uint64) int { return PartitionOf(x.charge("r", key, 1, before).Key(0)) }
	for part(late) == part(early) {
		late++
	}
	began := x.now
	x.spend("r", early, 1, before)
	x.spend("r", early, 1, after)
	x.now += limiter.Millisecond
	fine := x.spend("r", early, 3, after)
	x.now = began + limiter.Second
	void := x.spend("r", late, 6, before)
	x.now = began + 2*limiter.Millisecond
	x.spend("r", late, 1, after)
	for _, receipt := range []struct {
		key, cost uint64
		of        limiter.Receipt
		back      uint64
	}{{late, 6, void, 0}, {early, 3, fine, 3}} {
		was := x.left("r", receipt.key, after)
		x.table.Refund(x.now, x.charge("r", receipt.key, receipt.cost, after), receipt.of)
		if back := x.left("r", receipt.key, after) - was; back != receipt.back {
			t.Errorf("key %d: %d units come back, want %d", receipt.key, back, receipt.back)
		}
	}
}

// A reset counts the counters that a check would have found used, and not those that have recovered and are not
// swept yet.
func TestAResetCountsWhatHasNotRecovered(t *testing.T) {
	table, now := New(Config{}), limiter.Tick(1e15)
	k := arith.Key{Hash: hash(1), Rule: &limiter.Rule{Name: "r", Limits: []*limiter.Limit{
		limit(t, limiter.Spec{Limit: 5, Window: 20 * time.Second, Algorithm: limiter.TokenBucket})}}}
	for after, want := range map[limiter.Tick]int{limiter.Second: 1, limiter.Minute: 0} {
		var d limiter.Decision
		if err := table.Decide(now, charge(1, k), &d); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		now += after
		if got := table.Reset(now, charge(1, k)); got != want || table.Stats().Keys != 0 {
			t.Errorf("%v after the check %d are reset, want %d, and %d are left", after.Duration(), got, want,
				table.Stats().Keys)
		}
	}
}

package table

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// TestBefore: a counter becomes what it was before a charge that was taken back, unless something else has happened to
// it, it was reset, or others hold some of it under the number that it has now.
func TestBefore(t *testing.T) {
	bucket := func(n int64) *limiter.Rule {
		return &limiter.Rule{Name: limiter.RequestRule, Limits: []*limiter.Limit{limit(t, limiter.Spec{
			Name: "b", Limit: n, Window: time.Minute, Algorithm: limiter.GCRA, Burst: 60})}}
	}
	rule, chosen := bucket(60), bucket(30)
	const first, then = idStart, idStart + 10*limiter.Second
	none := func(*Table) {}
	one := func(tab *Table) { mustDecide(t, tab, then, charge1(rule, 1, 0, 1)) }
	hold := func(tab *Table) { mustDecide(t, tab, first, held1(rule, 1, 7, 1, time.Hour)) }
	for name, test := range map[string]struct {
		by        *limiter.Rule // that the charge chose
		before    func(*Table)
		meanwhile func(*Table)
		bits      uint64
		restored  bool
	}{
		"nothing else":              {rule, none, none, 1, true},
		"the charge stays":          {rule, none, none, 0, false},
		"another number":            {chosen, none, none, 1, true},
		"another charge":            {rule, none, one, 1, false},
		"another number, and holds": {chosen, hold, none, 1, false},
		"holds":                     {rule, hold, none, 1, true},
		"reset, and charged as before": {rule, none, func(tab *Table) {
			c := charge1(rule, 1, 0, 20)
			tab.Reset(then, c)
			mustDecide(t, tab, first, c)
			mustDecide(t, tab, then, charge1(rule, 1, 0, 5))
		}, 1, false},
	} {
		tab := New(Config{})
		k := charge1(rule, 1, 0, 20).Key(0)
		test.before(tab)
		mustDecide(t, tab, first, charge1(rule, 1, 0, 20))
		slot := func() (s slot) {
			p := &tab.parts[PartitionOf(k)]
			i, _ := p.slots.find(tab.order.of(k.Hash.Hi), identity(k, rule.Limits[0]))
			return *p.slots.at(i)
		}
		was := slot()
		c := charge1(test.by, 1, 0, 5)
		k = c.Key(0)
		b := NewBefore(tab, then, c, 0)
		var d limiter.Decision
		if err := tab.Decide(then, c, &d); err != nil || !d.Allowed {
			t.Fatalf("%s: %+v, %v", name, d, err)
		}
		b.Charged(k)
		if slot() == was {
			t.Fatalf("%s: nothing was charged", name)
		}
		test.meanwhile(tab)
		b.Compare(k)
		if test.bits != 0 {
			tab.UndoIn(EveryPartition, then, c, d.Receipt)
		}
		b.Restore(k, test.bits)
		is := slot()
		if same := is.state == was.state && tab.registry.limit(is.limit).Equal(rule.Limits[0]); same != test.restored {
			t.Errorf("%s: restored %v, want %v: it was %+v, and is %+v", name, same, test.restored, was, is)
		}
		if test.restored && tab.registry.left.has(rule.Limits[0], rule, is.place, 0, first) {
			t.Errorf("%s: receipts of the first charge are void", name)
		}
	}
}

package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/limiter/table"
)

// TestAPolicyIsJudgedByKey: of a check over two owners, of which one is out of reach, the
// policy decides one key only. The other does not count against the policy's share.
func TestAPolicyIsJudgedByKey(t *testing.T) {
	l := limitertest.Limit(t, limiter.Spec{Limit: 60, Window: 24 * 3600 * 1e9})
	r := &limiter.Rule{Name: "pair", Limits: []*limiter.Limit{l}, OnUnreachable: limiter.UnreachableLocal}
	d := &limiter.Decision{Allowed: true, Source: limiter.SourceFallbackLocal}
	d.Grow(2)
	*d.Limit(0) = limiter.LimitDecision{Rule: r, Limit: l, Key: 0, Allowed: true}
	*d.Limit(1) = limiter.LimitDecision{Rule: r, Limit: l, Key: 1, Allowed: true, Owner: "b"}
	n := &Node{name: "c", inst: 7, w: newWorld(1)}
	type units struct{ byPolicy, lost, admitted int }
	for allowed, want := range map[bool][]units{true: {{2, 2, 0}, {0, 0, 2}}, false: {{0, 2, 0}, {0, 0, 0}}} {
		d.Allowed = allowed
		for i := range want {
			k := &key{rule: r, byPolicy: make(map[string]int)}
			k.answered(n, d, i, 2, false)
			got := units{0, k.lost, k.admitted}
			for _, of := range k.byPolicy {
				got.byPolicy += of
			}
			if got != want[i] {
				t.Errorf("allowed %t, key %d: %+v, want %+v", allowed, i, got, want[i])
			}
		}
	}
}

// TestAPolicyIsJudgedOncePerID has policies answer several tries of a check with an id. A try that names
// another key too is not marked as a repetition. It charges the other key only.
func TestAPolicyIsJudgedOncePerID(t *testing.T) {
	l := limitertest.Limit(t, limiter.Spec{Limit: 60, Window: 24 * 3600 * 1e9})
	r := &limiter.Rule{Name: "pair", Limits: []*limiter.Limit{l}}
	const x, y, owns = 1, 2, 4 // the keys that are asked about; an owner decides y
	type try struct {
		keys     int
		at       peer.Instance
		repeated bool
	}
	for name, test := range map[string]struct {
		tries []try
		want  [2]int
	}{
		"another key is charged too":   {[]try{{x, 7, false}, {x | y, 7, false}}, [2]int{2, 2}},
		"then all is known":            {[]try{{x, 7, false}, {x | y, 7, false}, {x | y, 7, true}}, [2]int{2, 2}},
		"an owner has the other one":   {[]try{{x, 7, false}, {x | y | owns, 7, false}}, [2]int{2, 0}},
		"at two nodes":                 {[]try{{x, 7, false}, {x | y, 8, false}}, [2]int{4, 2}},
		"an id that is not remembered": {[]try{{x, 7, false}, {x, 7, false}}, [2]int{4, 0}},
		"of two keys":                  {[]try{{x | y, 7, false}, {x | y, 7, false}}, [2]int{4, 4}},
	} {
		w := newWorld(1)
		w.stronger = new(stronger)
		o, keys := &once{tried: make(map[*key]*tried)}, [2]*key{{rule: r, byPolicy: make(map[string]int)},
			{rule: r, byPolicy: make(map[string]int)}}
		for _, q := range test.tries {
			n := &Node{name: "c", inst: q.at, w: w, alive: true}
			a := &asking{n: n, once: o, charge: new(arith.Charge),
				answer: &limiter.Decision{Allowed: true, Repeated: q.repeated, Source: limiter.SourceFallbackLocal}, call: w.now}
			for i, k := range keys {
				if q.keys>>i&1 == 0 {
					continue
				}
				a.keys, a.before, a.owners = append(a.keys, k), append(a.before, 0), append(a.owners, 0)
				a.charge.Add(arith.Key{Rule: r, Cost: 2})
				a.answer.Grow(len(a.keys))
				*a.answer.Limit(len(a.keys) - 1) = limiter.LimitDecision{Rule: r, Limit: l, Key: len(a.keys) - 1, Allowed: true}
				if i == 1 && q.keys&owns != 0 {
					a.answer.Limit(len(a.keys) - 1).Owner = "b"
				}
			}
			a.done()
		}
		got := [2]int{}
		for i, k := range keys {
			for _, of := range k.byPolicy {
				got[i] += of
			}
		}
		if got != test.want {
			t.Errorf("%s: policies charged %v units, want %v", name, got, test.want)
		}
	}
}

// TestWhatIsChargedAgain: the answers to three attempts of one check with an id about two keys, in
// each order. The first key has two limits. One attempt may find the id at one key only, as where
// rules differ and name another key beside it. Its receipt says when it charged the other one.
func TestWhatIsChargedAgain(t *testing.T) {
	l := limitertest.Limit(t, limiter.Spec{Limit: 60, Window: 24 * 3600 * 1e9})
	r := &limiter.Rule{Name: "pair", Limits: []*limiter.Limit{l}}
	answer := func(repeated bool, at limiter.Tick, charged uint64) *limiter.Decision {
		d := &limiter.Decision{Allowed: true, Repeated: repeated,
			Receipt: arith.NewReceipt(arith.ReceiptFields{Time: at, Charged: charged})}
		d.Grow(3)
		for i, key := range []int{0, 0, 1} {
			*d.Limit(i) = limiter.LimitDecision{Rule: r, Limit: l, Key: key, Allowed: true, Owner: "b"}
		}
		return d
	}
	const both, firstOnly = 0b111, 0b011
	charged, repeated, partly := answer(false, 5, both), answer(true, 5, both), answer(false, 9, firstOnly)
	for name, test := range map[string]struct {
		answers []*limiter.Decision
		again   [2]int
	}{
		"repeated":                       {[]*limiter.Decision{charged, repeated, repeated}, [2]int{0, 0}},
		"the repetition is told first":   {[]*limiter.Decision{repeated, charged}, [2]int{0, 0}},
		"charged twice":                  {[]*limiter.Decision{charged, repeated, answer(false, 9, both)}, [2]int{2, 2}},
		"charged before and after":       {[]*limiter.Decision{repeated, answer(false, 9, both)}, [2]int{2, 2}},
		"the first key is charged twice": {[]*limiter.Decision{charged, partly}, [2]int{2, 0}},
		"that is told first":             {[]*limiter.Decision{partly, charged}, [2]int{2, 0}},
		"the first is told last": {[]*limiter.Decision{repeated, answer(false, 9, both), answer(true, 9, both),
			charged}, [2]int{2, 2}},
		"and repeated in between": {[]*limiter.Decision{partly, answer(true, 0, 0), charged}, [2]int{2, 0}},
	} {
		o, keys := &once{tried: make(map[*key]*tried)}, [2]*key{{rule: r}, {rule: r}}
		for _, d := range test.answers {
			for i, k := range keys {
				o.repeats(k, d, i, 2)
			}
		}
		if got := [2]int{keys[0].again, keys[1].again}; got != test.again {
			t.Errorf("%s: %v units were charged again, want %v", name, got, test.again)
		}
	}
}

// TestWhatACancelMayLeaveBehind: a check over several owners may leave its units behind once for
// each disturbance before its answer. After an answer at its deadline or later, a disturbance
// counts for as long as a cancel may be under way.
func TestWhatACancelMayLeaveBehind(t *testing.T) {
	const part = 7
	handoff := func(w *World) { w.outcome.happened(cluster.EventHandoff, part) }
	nothing := func(*World) {}
	for name, test := range map[string]struct {
		alone        bool
		took, after  limiter.Tick
		during, then func(w *World)
		want         int
	}{
		"nothing happens":   {false, 100 * ms, limiter.Second, nothing, nothing, 0},
		"its owner changes": {false, 100 * ms, limiter.Second, handoff, nothing, 2},
		"another changes": {false, 100 * ms, limiter.Second, func(w *World) {
			w.outcome.happened(cluster.EventHandoff, part+1)
		}, nothing, 0},
		"its owner renews": {false, 100 * ms, limiter.Second, func(w *World) {
			w.outcome.happened(cluster.EventRenewal, part)
		}, nothing, 0},
		"a node reads other rules": {false, 100 * ms, limiter.Second, func(w *World) {
			(&Node{w: w}).reads(nil)
		}, nothing, 2},
		"a connection breaks too":  {false, 100 * ms, limiter.Second, func(w *World) { handoff(w); w.broken++ }, nothing, 4},
		"after its answer":         {false, 100 * ms, limiter.Second, nothing, handoff, 0},
		"after a late answer":      {false, askedFor, limiter.Second, nothing, handoff, 2},
		"long after a late answer": {false, askedFor, straysFor + 1, nothing, handoff, 0},
		"of one key":               {true, 100 * ms, limiter.Second, handoff, nothing, 0},
	} {
		w := newWorld(1)
		keys := []*key{{part: part}, {part: part + 2}}
		if test.alone {
			keys = keys[:1]
		}
		a := &asking{n: &Node{w: w}, keys: keys, charge: new(arith.Charge), call: w.now}
		for _, k := range keys {
			a.charge.Add(arith.Key{Cost: 2})
			a.before = append(a.before, w.disturbances(k.part))
		}
		test.during(w)
		w.now += test.took
		a.mayStray()
		w.after(test.after, func() { test.then(w) })
		if err := w.run(10*limiter.Second, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		if keys[0].astray != test.want {
			t.Errorf("%s: %d units may have stayed, want %d", name, keys[0].astray, test.want)
		}
	}
}

// TestATableWithoutRoomForCopiesIsNoProblem where tables are small. It is one elsewhere, and so is any
// other error.
func TestATableWithoutRoomForCopiesIsNoProblem(t *testing.T) {
	for _, test := range []struct {
		maxKeys int
		err     error
		fails   bool
	}{{0, table.ErrFull, true}, {crowdMaxKeys, table.ErrFull, false}, {crowdMaxKeys, errInjected, true}} {
		w := newWorld(1)
		w.crowd.maxKeys = test.maxKeys
		fails := func() (failed bool) {
			defer func() { failed = recover() != nil }()
			(&Node{w: w, name: "a"}).Problem("a copy cannot be kept", test.err)
			return false
		}()
		if unkept := w.crowd.unkept > 0; unkept == test.fails {
			t.Errorf("tables of %d: %v is counted as a copy without room: %t", test.maxKeys, test.err, unkept)
		}
		if fails != test.fails {
			t.Errorf("tables of %d: %v fails the run: %t", test.maxKeys, test.err, fails)
		}
	}
}

// TestWhatALateCancelLeavesToARepetition: a check with an id is denied at its deadline, and another
// try is answered after that. The other one may have been told what the first has charged, so the late
// cancel leaves it.
func TestWhatALateCancelLeavesToARepetition(t *testing.T) {
	for name, test := range map[string]struct {
		took    limiter.Tick // until the answer
		other   limiter.Tick // when another try is answered
		allowed bool
		want    int
	}{
		"no other try":              {askedFor, 0, false, 0},
		"answered before":           {askedFor, askedFor - 1, false, 0},
		"answered at the deadline":  {askedFor, askedFor, false, 2},
		"answered after":            {askedFor + 9, 2 * askedFor, false, 2},
		"the first in time":         {askedFor - 1, 2 * askedFor, false, 0},
		"the first may be admitted": {askedFor, 2 * askedFor, true, 0},
	} {
		w := newWorld(1)
		k, other := &key{part: 7}, &key{part: 9}
		o := &once{}
		a := &asking{n: &Node{w: w}, keys: []*key{k, other}, charge: new(arith.Charge),
			answer: &limiter.Decision{Allowed: test.allowed}, call: w.now, once: o}
		for range a.keys {
			a.charge.Add(arith.Key{Cost: 2})
			a.before = append(a.before, 0)
		}
		if test.other > 0 {
			o.answers = append(o.answers, answeredTry{new(asking), w.now + test.other})
		}
		o.answers = append(o.answers, answeredTry{a, w.now + test.took})
		w.now += test.took
		a.mayStray()
		if err := w.run(10*limiter.Second, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		if k.astray != test.want {
			t.Errorf("%s: %d units may have stayed, want %d", name, k.astray, test.want)
		}
	}
}

// TestWhatMayBeChargedSinceAReset: what was admitted or lost since, what cancels left behind since,
// and, if the partition was taken over since, what waited.
func TestWhatMayBeChargedSinceAReset(t *testing.T) {
	const part = 7
	w := newWorld(1)
	takeover := func() { w.outcome.happened(cluster.EventTakeover, part) }
	takeover()
	k := &key{rule: new(limiter.Rule), part: part, astray: 100, late: 1000, lost: 1}
	k.reset = reset{since: 10, strays: 98, doubled: 700, takeovers: 1}
	if most := k.sinceReset(w); most != 13 {
		t.Errorf("while no owner changes, %d units may be charged, want 13", most)
	}
	takeover()
	if most := k.sinceReset(w); most != 313 {
		t.Errorf("after a takeover %d units may be charged, want 313", most)
	}
}

// TestWhatMustBeAdmitted: the limit but a unit, less what is lost, D for each takeover, and what
// waited while the partition was taken over. That is nothing where nothing may be lost.
func TestWhatMustBeAdmitted(t *testing.T) {
	w := newWorld(1)
	w.size = 3
	k := &key{rule: new(limiter.Rule), least: 60, lost: 2, d: 3}
	if least := k.mustAdmit(w, bounds{}, 2); least != 51 {
		t.Errorf("at least %d, want 51", least)
	}
	k.passed = 7
	if least := k.mustAdmit(w, bounds{}, 2); least != 44 {
		t.Errorf("with checks that waited for a takeover at least %d, want 44", least)
	}
	if least := k.mustAdmit(w, bounds{exact: true}, 0); least != 57 {
		t.Errorf("where nothing may be lost at least %d, want 57", least)
	}
}

// TestWhatMustBeAdmittedOfWhatWasAskedFor: where a minority denied so much beyond its share that owners were not asked
// for the whole limit, only a share must be admitted.
func TestWhatMustBeAdmittedOfWhatWasAskedFor(t *testing.T) {
	for beyond, want := range map[int]int{0: 59, 10: 59, 11: 19} {
		w := newWorld(1)
		w.size, w.near.lending.on = 3, true
		k := &key{rule: new(limiter.Rule), least: 60, begun: 70, policy: limiter.UnreachableLocal}
		w.near.lending.deniedByShare(k, beyond)
		if least := k.mustAdmit(w, bounds{}, 0); least != want {
			t.Errorf("%d units denied by a share: at least %d, want %d", beyond, least, want)
		}
	}
}

// TestHandoffsAreChangesWhereConnectionsBreak: not where every change is graceful.
func TestHandoffsAreChangesWhereConnectionsBreak(t *testing.T) {
	for exact, want := range map[bool]int{false: 2, true: 1} {
		w := newWorld(1)
		w.stronger = &stronger{exact: exact}
		w.outcome.happened(cluster.EventTakeover, 7)
		w.outcome.happened(cluster.EventHandoff, 7)
		w.outcome.happened(cluster.EventHandoff, 8)
		if n := w.changes(7); n != want {
			t.Errorf("exact %t: %d changes of the owner, want %d", exact, n, want)
		}
	}
}

// TestResetsThatTwoOwnersMayExecute: a reset forgets what was admitted before it once, or, in an
// available partition, twice if an owner took over from another before it was answered.
func TestResetsThatTwoOwnersMayExecute(t *testing.T) {
	worlds(t)
	for policy, twice := range map[limiter.Unreachable]int{limiter.UnreachableLocal: 1, limiter.UnreachableClosed: 0} {
		d := direct(t, 1, 3, policy, limiter.ReplicationLag)
		d.key.policy = policy
		owner, heir := d.holder(peer.Owned), d.holder(peer.Heir)
		third := d.others(owner, heir)[0]
		d.reset(d.key, third)
		d.pass(500 * ms)
		if d.key.tried != 1 || d.key.twice != 0 || !d.key.stands {
			t.Errorf("%v: while no owner changes: %+v", policy, d.key.reset)
		}
		owner.pause()
		d.reset(d.key, third)
		d.pass(500 * ms)
		if d.key.tried != 2 || d.key.twice != twice || d.key.resetsDone() != 2 {
			t.Errorf("%v: after a takeover: %+v, %d answered", policy, d.key.reset, d.key.resetsDone())
		}
	}
}

// TestChecksThatPassATakeover: a check may be charged by two owners only if one took over from
// the other before it was answered.
func TestChecksThatPassATakeover(t *testing.T) {
	worlds(t)
	d := direct(t, 1, 3, limiter.UnreachableLocal, limiter.ReplicationLag)
	owner, heir := d.holder(peer.Owned), d.holder(peer.Heir)
	third := d.others(owner, heir)[0]
	d.ask(d.key, third, 2, true)
	d.pass(500 * ms)
	if d.key.admitted != 2 || d.key.passed != 0 {
		t.Errorf("while no owner changes: %d admitted, %d perhaps charged twice", d.key.admitted, d.key.passed)
	}
	owner.pause()
	d.ask(d.key, third, 2, true)
	d.pass(500 * ms)
	if d.key.admitted != 4 || d.key.passed != 2 {
		t.Errorf("after a takeover: %d admitted, %d perhaps charged twice", d.key.admitted, d.key.passed)
	}
}

// TestChecksThatAreAnsweredBeforeATakeover: an owner answers late, so that the heir has the check too,
// and is taken over all the same. Both charge the check, which is answered once.
func TestChecksThatAreAnsweredBeforeATakeover(t *testing.T) {
	worlds(t)
	d := direct(t, 1, 3, limiter.UnreachableClosed, limiter.ReplicationStrict)
	owner, heir := d.holder(peer.Owned), d.holder(peer.Heir)
	third := d.others(owner, heir)[0]
	late := func(to *Node, by limiter.Tick) { d.slow[pair{owner.inst, to.inst}] = by }
	late(third, 150*ms)
	d.ask(d.key, third, 2, true)
	d.pass(20 * ms) // the heir has the charge
	late(heir, 300*ms)
	d.pass(150 * ms)
	if n := d.outcome.takeovers(d.key.part); n != 0 || d.key.admitted != 2 || d.key.passed != 0 {
		t.Fatalf("%d admitted and %d perhaps charged twice after %d takeovers; it must be answered before the first",
			d.key.admitted, d.key.passed, n)
	}
	d.pass(2 * limiter.Second)
	if n := d.outcome.takeovers(d.key.part); n != 1 || d.key.admitted != 2 || d.key.passed != 2 || d.counted() != 4 {
		t.Errorf("after %d takeovers %d are admitted, %d perhaps charged twice, and %d are counted, want 1, 2, 2, 4", n,
			d.key.admitted, d.key.passed, d.counted())
	}
}

// TestHowLongAnAnsweredCheckMayBeCharged by a second owner: if it was not answered at once, until its
// deadline has passed wherever it was sent. While a link is cut or a member is paused it may be under way.
func TestHowLongAnAnsweredCheckMayBeCharged(t *testing.T) {
	const part, over = 7, askedFor + underWay
	for name, test := range map[string]struct {
		took, after limiter.Tick // until the answer, and from the call to the takeover
		at          int          // the partition that is taken over
		holdUp      limiter.Tick // until when from the call a link is cut
		exact       bool
		want        int
	}{
		"nothing happens":            {took: 50 * ms, after: limiter.Minute, at: part},
		"before its answer":          {took: 50 * ms, after: 40 * ms, at: part, want: 2},
		"after its answer":           {took: 50 * ms, after: over - 1, at: part, want: 2},
		"it is answered at once":     {took: lateAfter, after: 30 * ms, at: part},
		"another is taken over":      {took: 50 * ms, after: 60 * ms, at: part + 1},
		"long after its answer":      {took: 50 * ms, after: over + 1, at: part},
		"and a link is cut":          {took: 50 * ms, after: over + 1, at: part, holdUp: over + 2, want: 2},
		"a link was cut before that": {took: 50 * ms, after: over + 1, at: part, holdUp: over - 1},
		"nothing may be lost":        {took: 50 * ms, after: 60 * ms, at: part, exact: true},
	} {
		w := newWorld(1)
		w.stronger = &stronger{exact: test.exact}
		k, n := &key{part: part, rule: &limiter.Rule{Name: "closed"}, d: 1}, &Node{w: w, alive: true}
		a := &asking{n: n, keys: []*key{k}, charge: new(arith.Charge), answer: &limiter.Decision{Allowed: true},
			call: w.now, before: []int{0}, owners: []int{0}}
		a.charge.Add(arith.Key{Cost: 2})
		if test.holdUp > 0 {
			w.cut[pair{1, 2}] = true
			w.after(test.holdUp, func() { delete(w.cut, pair{1, 2}) })
		}
		w.after(test.took, a.done)
		w.after(test.after, func() { w.outcome.happened(cluster.EventTakeover, test.at) })
		if err := w.run(10*limiter.Second, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		if k.passed != test.want {
			t.Errorf("%s: %d units may be charged twice, want %d", name, k.passed, test.want)
		}
	}
}

// TestChecksThatTwoSidesMayCharge: while a split has an owner on each side, a check that waits may have been
// sent to both, and one may charge it after the other has answered.
func TestChecksThatTwoSidesMayCharge(t *testing.T) {
	worlds(t)
	for _, apart := range []bool{false, true} {
		d := direct(t, 1, 3, limiter.UnreachableLocal, limiter.ReplicationLag)
		if owner := d.holder(peer.Owned); apart {
			d.part([]*Node{owner}, d.others(owner))
			d.pass(2 * limiter.Second)
		}
		if d.shared(d.key.part) != apart {
			t.Fatalf("split %t: it has two owners: %t", apart, !apart)
		}
		asked := d.others(d.holder(peer.Owned))[0]
		d.ask(d.key, asked, 2, true)
		d.pass(lateAfter)
		if d.key.passed != 0 {
			t.Errorf("split %t: %d perhaps charged twice, and answered at once", apart, d.key.passed)
		}
		for _, n := range d.live() {
			n.pause()
		}
		d.ask(d.key, asked, 2, true)
		d.pass(2 * lateAfter)
		for _, n := range d.live() {
			n.resume()
		}
		d.pass(500 * ms)
		if want := map[bool]int{true: 2}[apart]; d.key.passed != want || d.key.admitted != 4 {
			t.Errorf("split %t: %d perhaps charged twice, want %d; %d admitted", apart, d.key.passed, want, d.key.admitted)
		}
	}
}

// TestWhatASideMustHaveCounted when a split has ended: what its owner had counted, without what checks
// that were not answered may have withheld; nothing where a table had no room for it.
func TestWhatASideMustHaveCounted(t *testing.T) {
	for name, test := range map[string]struct {
		used, open, unkept int
		least              int // that must count
		fails              bool
	}{
		"all is answered":     {used: 50, least: 50, fails: true},
		"beyond the limit":    {used: 70, least: 60, fails: true},
		"some is not":         {used: 50, open: 7, least: 36, fails: true},
		"a table has no room": {used: 50, unkept: 1, least: 50},
	} {
		w := newWorld(1)
		k := &key{rule: &limiter.Rule{Name: "local"}, limit: 60, least: 60, openOps: test.open}
		w.keys, w.crowd.unkept = []*key{k}, test.unkept
		k.noteSide(test.used)
		if k.side != test.least {
			t.Errorf("%s: the side must have counted %d, want %d", name, k.side, test.least)
		}
		if err := w.merged(); err != nil != test.fails {
			t.Errorf("%s: nobody has counted it, and the judge says %v", name, err)
		}
	}
}

// TestCountedInAFullTable: a rules file adds a limit to a rule, and the table has no room for its counter.
// What the first limit has counted is known all the same; what a key without any counter has is not.
func TestCountedInAFullTable(t *testing.T) {
	w := newWorld(1)
	w.crowd.maxKeys, w.size = 1, 1
	spec := limiter.Spec{Limit: 60, Window: 400 * 24 * time.Hour, Algorithm: limiter.FixedWindow}
	rule := limiter.Rule{Name: "r", OnUnreachable: limiter.UnreachableLocal, Limits: limits(spec)}
	k, other := &key{rule: &rule, limit: 60}, &key{rule: &rule, limit: 60, hash: arith.Hash{Hi: 1}}
	w.keys = []*key{k, other}
	w.start("a", true, map[string]*limiter.Rule{"r": &rule}, 1)
	if err := w.run(6*limiter.Second, w.invariants); err != nil {
		t.Fatal(err)
	}
	owner := w.live()[0]
	w.ask(k, owner, 7, true)
	more := rule
	spec.Window, spec.Limit = 300*24*time.Hour, 900
	more.Limits = append(slices.Clone(rule.Limits), limits(spec)...)
	owner.reads(map[string]*limiter.Rule{"r": &more})
	if used, unknown := owner.used(k), owner.used(other); used != 7 || unknown != -1 {
		t.Errorf("%d counted, want 7, and %d of a key that has no room, want -1", used, unknown)
	}
}

// TestTheStartWaitsForGossip: a run begins once all have heard of each other, and does not wait if they have.
func TestTheStartWaitsForGossip(t *testing.T) {
	d := direct(t, 1, 3, limiter.UnreachableLocal, limiter.ReplicationLag)
	began := d.now
	if err := d.meetAll(limiter.Second); err != nil || d.now != began {
		t.Errorf("all have met, and it waits for %v: %v", (d.now - began).Duration(), err)
	}
	n := d.live()[0]
	delete(n.rumours, d.live()[1].name)
	if err := d.meetAll(limiter.Second); err != nil || d.strangers() || d.now <= began+limiter.Second {
		t.Errorf("after %v some have not met: %t, %v", (d.now - began).Duration(), d.strangers(), err)
	}
}

// TestARollingRestartWaitsForGossip: of two nodes the second leaves once gossip has told one of them of the other,
// whichever, and then it hands over what it counted. If it leaves before, that is lost.
func TestARollingRestartWaitsForGossip(t *testing.T) {
	for _, c := range []struct {
		inTurn bool
		hears  int // gossip tells this node 4 s before the other: 0 is the one that started anew, 1 the one that leaves
	}{{true, 0}, {true, 1}, {false, 0}} {
		d := direct(t, 1, 2, limiter.UnreachableClosed, limiter.ReplicationStrict)
		first, second := d.live()[0], d.live()[1]
		d.demandAt(second, 5, 5*ms)
		d.pass(limiter.Second)
		first.leave(func() { d.start(first.name, false, second.rules, 2) })
		for first.alive {
			d.pass(10 * ms)
		}
		again, left := d.nodes[2], false
		unknown := []pair{{again.inst, second.inst}, {second.inst, again.inst}}
		for _, p := range unknown {
			d.suspects[p] = true
		}
		leave := second.leave
		if c.inTurn {
			leave = func(then func()) { d.leaveInTurn(second, then) }
		}
		leave(func() { left = true })
		d.pass(limiter.Second)
		if left == c.inTurn {
			t.Fatalf("%+v: left %t, and they have not heard of each other", c, left)
		}
		for _, i := range []int{c.hears, 1 - c.hears} {
			delete(d.suspects, unknown[i])
			d.pass(4 * limiter.Second)
		}
		if lost := d.losses[d.key.part] > 0; !left || lost == c.inTurn {
			t.Errorf("%+v: left %t, owner and heir lost together %t", c, left, lost)
		}
	}
}

// TestWhatIsLostWithoutFaults is judged, unless a table had no room for copies: then policies answer.
func TestWhatIsLostWithoutFaults(t *testing.T) {
	l := limitertest.Limit(t, limiter.Spec{Limit: 60, Window: 24 * 3600 * 1e9})
	for unkept, fails := range map[int]bool{0: true, 1: false} {
		w := newWorld(1)
		w.keys = []*key{{rule: &limiter.Rule{Name: "local", Limits: []*limiter.Limit{l}}, limit: 60, lost: 3, denied: 1}}
		w.crowd.unkept = unkept
		if err := w.check(bounds{local: 1, closed: 1, open: 1, exact: true}); err != nil != fails {
			t.Errorf("with %d copies without room: %v", unkept, err)
		}
	}
}

// TestPoliciesAnswerWhereATableHasNoRoom: after crashes few checks are answered by their policy, unless a table
// has no room for copies: owners wait for an heir then.
func TestPoliciesAnswerWhereATableHasNoRoom(t *testing.T) {
	l := limitertest.Limit(t, limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 60, Window: time.Hour})
	for unkept, fails := range map[int]bool{0: true, 1: false} {
		w := newWorld(1)
		w.size = 3
		w.keys = []*key{{rule: &limiter.Rule{Name: "closed", Limits: []*limiter.Limit{l}}, limit: 60, fallbacks: 25,
			denied: 1}}
		w.crowd.unkept = unkept
		if err := w.check(bounds{local: 1, closed: 1, open: 1, fallbacks: 24}); err != nil != fails {
			t.Errorf("with %d copies without room: %v", unkept, err)
		}
	}
}

// TestALateSettlementIsChargedBeyondTheLimit: a settlement that comes after its reservation has ended, since
// the node that was asked stood still, may be charged beyond the limit by what its answer says, or the lost one of
// another attempt. One that is in time may not, nor may it hide units that its answer does not name.
func TestALateSettlementIsChargedBeyondTheLimit(t *testing.T) {
	for _, test := range []struct {
		name  string
		after limiter.Tick // when it is answered
		over  uint64
		state limiter.AmendState
		ok    bool
	}{
		{"late", 3400 * ms, 2, limiter.AmendCharged, true},
		{"late, and too few units named", 3400 * ms, 1, limiter.AmendCharged, false},
		{"late, and nothing beyond", 3400 * ms, 0, limiter.AmendCharged, false},
		{"late, and the answer that named them is lost", 3400 * ms, 0, limiter.AmendRepeated, true},
		{"in time", 2900 * ms, 2, limiter.AmendCharged, false},
		{"again, in time", 2900 * ms, 0, limiter.AmendRepeated, false},
	} {
		w := newWorld(1)
		k := &heldKey{key: &key{rule: &limiter.Rule{Name: "heldstrict"}, limit: 20}}
		of := &heldBy{estimate: 6, actual: 5, held: true, settles: true}
		w.now = test.after
		k.holds = []*heldBy{of, {estimate: 17, asked: w.now, held: true}}
		of.settled(&limiter.Amended{State: test.state, Over: test.over}, w.now)
		if err := k.within(w); (err == nil) != test.ok {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// TestAPartitionWaitsForRoomElsewhere: a partition need not be where it belongs while the member that should have
// it has no room for a copy.
func TestAPartitionWaitsForRoomElsewhere(t *testing.T) {
	d := direct(t, 1, 3, limiter.UnreachableClosed, limiter.ReplicationLag)
	id := d.key.part
	owner, heir := d.holder(peer.Owned), d.holder(peer.Heir)
	waits := func(why string, want bool) {
		t.Helper()
		if got := d.waitsForRoom(id); got != want {
			t.Errorf("%s: the partition may wait: %t", why, got)
		}
	}
	waits("the heir has room", false)
	heir.fullAt = d.now
	waits("the heir has none", true)
	d.now += 4 * limiter.Second
	waits("the heir had none 4 s ago", false)
	heir.fullAt = d.now
	owner.crash(true)
	waits("the owner is dead", false)
}

// TestAnOwnershipIsLostOnce: owner and heir crash, and then a third member that had nothing of the partition. What the
// two had is lost once, also if the owner has just given way to a claim of the third.
func TestAnOwnershipIsLostOnce(t *testing.T) {
	for _, givesWay := range []bool{false, true} {
		d := direct(t, 1, 5, limiter.UnreachableClosed, limiter.ReplicationLag)
		owner, heir := d.holder(peer.Owned), d.holder(peer.Heir)
		third := d.others(owner, heir)[0]
		if info, _ := owner.core.Partition(d.key.part); givesWay {
			claim := peer.Announce{Partition: uint16(d.key.part),
				Epoch: peer.Epoch{Counter: info.Epoch.Counter + 1, Instance: third.inst}}
			owner.core.Deliver(&peer.Frame{From: third.inst, To: owner.inst, Announces: []peer.Announce{claim}})
		}
		for _, n := range []*Node{owner, heir, third} {
			n.crash(false)
			d.pass(10 * ms)
		}
		if n := d.losses[d.key.part]; n != 1 {
			t.Errorf("it gives way %v: the partition is lost %d times, want 1", givesWay, n)
		}
	}
}

// TestAnOwnershipThatBeginsAnewIsLostAgain: an owner is lost in a high epoch. One that starts then begins with the
// first again, and is lost, too.
func TestAnOwnershipThatBeginsAnewIsLostAgain(t *testing.T) {
	d := direct(t, 1, 2, limiter.UnreachableLocal, limiter.ReplicationLag)
	first, second := d.holder(peer.Owned), d.holder(peer.Heir)
	first.crash(true)
	d.pass(3 * limiter.Second)
	before, _ := second.core.Partition(d.key.part)
	second.crash(true)
	d.start("again", false, first.rules, 1)
	d.pass(3 * limiter.Second)
	third := d.holder(peer.Owned)
	if info, _ := third.core.Partition(d.key.part); before.Role != peer.Owned || !info.Epoch.Before(before.Epoch) {
		t.Fatalf("%+v is followed by %+v, want a lower epoch", before, info)
	}
	third.crash(true)
	if n := d.losses[d.key.part]; n != 2 {
		t.Errorf("the partition is lost %d times, want 2", n)
	}
}

package history

import (
	"slices"
	"strings"
	"testing"
)

// asks adds checks of a rule for so long, 10 ms apart, of which one in every so many
// that one counter would admit is denied all the same; 0: none is.
func (p *plant) asks(rule string, span Micros, denied int, keys ...string) *plant {
	i := 0
	for p.Rules[i].Name != rule {
		i++
	}
	given := 0
	if p.counters == nil {
		p.counters = make(map[string]*tally)
	}
	var counters []*tally
	for _, key := range keys {
		if p.counters[rule+key] == nil {
			p.counters[rule+key] = new(tally)
		}
		counters = append(counters, p.counters[rule+key])
	}
	for end := p.now + span; p.now < end; p.now += 10 * ms {
		o := Op{Call: p.now, Return: p.now + ms, Rule: rule, Outcome: Denied, Source: SourceOwner, Keys: keys,
			Owners: make([]string, len(keys))}
		room := true
		for j := range counters {
			o.Owners[j] = "a"
			room = counters[j].room(&p.Rules[i], o.Return) && room
		}
		if room {
			given++
			if denied == 0 || given%denied != 0 {
				o.Outcome = Allowed
			}
			for j := range counters {
				counters[j].charge(&p.Rules[i], o.Return, 1)
			}
		}
		p.Ops = append(p.Ops, o)
	}
	p.End = p.now
	return p
}

// TestALimitIsUsedUp: where more is asked for than a limit admits, and nothing is broken,
// nearly all of it is admitted.
func TestALimitIsUsedUp(t *testing.T) {
	for _, rule := range []string{"window", "bucket", "closed"} {
		for denied, want := range map[int]int{0: 0, 20: 0, 8: 1} {
			p := planted(once()).asks(rule, 6*second, denied, "k")
			if got := p.judges().Used(); len(got) != want || want > 0 && !strings.Contains(got[0].Error(), rule+": ") {
				t.Errorf("%s, one in %d denied: found %v", rule, denied, got)
			}
		}
	}
	// Several keys are denied a little more often, by the reservations of others.
	for denied, want := range map[int]int{10: 0, 5: 1} {
		p := planted(once())
		p.Rules = append(p.Rules, Rule{Name: "several", Limit: 20, Window: 2 * second, Policy: "closed", Several: true})
		if got := p.asks("several", 6*second, denied, "k", "l").judges().Used(); len(got) != want {
			t.Errorf("several, one in %d denied: found %v", denied, got)
		}
	}
}

// TestOnlyCalmTimesAreUsedUp: what is denied while something is broken or stands still says
// nothing, and what was charged before counts.
func TestOnlyCalmTimesAreUsedUp(t *testing.T) {
	for _, row := range []struct {
		name string
		make func(p *plant)
		want int
	}{
		{"nothing is broken", func(*plant) {}, 1},
		{"something is, from the beginning", func(p *plant) {
			p.Faults[0] = Fault{At: 0, Until: second, Nodes: []int{1}}
		}, 0},
		{"something was", func(p *plant) { p.Faults[0] = Fault{At: 0, Until: ms, Settled: 2 * ms, Nodes: []int{1}} }, 1},
		{"the machine stood still", func(p *plant) { p.Stalls = []Span{{second, second + 60*ms}} }, 1},
		{"the machine stood still again and again", func(p *plant) {
			for at := second; at < 6*second; at += second {
				p.Stalls = append(p.Stalls, Span{at, at + 60*ms})
			}
		}, 0},
		{"a node stood still", func(p *plant) { p.Late = []Late{{Node: 1, Span: Span{second, second + 60*ms}}} }, 1},
		{"a node stood still for long", func(p *plant) { p.Late = []Late{{Node: 1, Span: Span{second, 2 * second}}} }, 0},
	} {
		p := planted(once()).asks("window", 6*second, 5, "k")
		row.make(p)
		if got := p.judges().Used(); len(got) != row.want {
			t.Errorf("%s: found %v", row.name, got)
		}
	}
	// What nobody knows may have been counted, and twice.
	q := planted(once()).answers(10, "window", Unknown, "", "")
	q.answers(100, "window", Denied, SourceOwner, "a")
	q.End = q.now
	if u := q.judges().Uses()[0]; u.One != 0 {
		t.Errorf("%d would be admitted of a window that may be full", u.One)
	}
	// A window that was used up before all had settled has no room after it.
	p := planted(once()).allowed(20, "window", "a")
	p.Faults[0] = Fault{At: 0, Until: ms, Settled: p.now, Nodes: []int{1}}
	p.answers(100, "window", Denied, SourceOwner, "a")
	p.End = p.now
	if u := p.judges().Uses()[0]; u.One != 0 {
		t.Errorf("%d would be admitted of a window that is full", u.One)
	}
}

// TestPartsOfACalmTimeAreUsedUp: what is denied near a stall says nothing, and what is
// denied before it and later does. What was charged before it counts after it.
func TestPartsOfACalmTimeAreUsedUp(t *testing.T) {
	stood := Span{4 * second, 4*second + 60*ms}
	for _, rule := range []string{"window", "bucket", "once"} {
		for _, row := range []struct {
			name                string
			before, near, after int // one in so many is denied though there is room
			want                int
		}{
			{"nothing denied", 0, 0, 0, 0},
			{"denied near it", 0, 2, 0, 0},
			{"denied before it", 3, 0, 0, 1},
			{"denied later", 0, 0, 2, 1},
		} {
			p := planted(once())
			p.Rules[1].Limit = 700
			p.asks(rule, 3900*ms, row.before, "k").asks(rule, 1250*ms, row.near, "k").asks(rule, 6*second, row.after, "k")
			p.Stalls = []Span{stood}
			if got := p.judges().Used(); len(got) != row.want {
				t.Errorf("%s, %s: found %v, of %+v", rule, row.name, got, p.judges().Uses())
			}
		}
	}
	// Three parts, of which one is too short.
	p := planted(once())
	p.End = 8 * second
	p.Stalls = []Span{stood, {5500 * ms, 5550 * ms}}
	if got, want := p.analysis().unstalled(Span{0, p.End}),
		[]Span{{0, 3900 * ms}, {6550 * ms, 8 * second}}; !slices.Equal(got, want) {
		t.Errorf("parts are %v, want %v", got, want)
	}
	// What nodes told each other as the machine stood still counts for as much longer: it
	// was charged at 2.6 s, and may count until 5.05 s and not 4.6 s.
	for from, want := range map[Micros]int{5040 * ms: 0, 5060 * ms: 1} {
		p := planted(once()).wait(2600*ms).allowed(20, "window", "a")
		for i := range p.Ops {
			p.Ops[i].Call, p.Ops[i].Return = 2599*ms, 2600*ms
		}
		p.now = from
		p.answers(1, "window", Denied, SourceOwner, "a")
		p.End = 6 * second
		p.Stalls = []Span{{2700 * ms, 2700*ms + 50*ms}}
		_, one := p.analysis().replay(&p.Rules[0], p.answered(&p.Rules[0]), Span{4 * second, p.End})
		if one != want {
			t.Errorf("at %v %d are admitted, want %d", from.Duration(), one, want)
		}
	}
}

// TestASlowCheckFillsAWindowTwice: one that took so long that its heir was asked too.
func TestASlowCheckFillsAWindowTwice(t *testing.T) {
	for took, want := range map[Micros]int{askedTwice - ms: 10, askedTwice: 0} {
		p := planted(once())
		for range 10 {
			p.allowed(1, "window", "a")
			p.Ops[len(p.Ops)-1].Return = p.now - 10*ms + took
		}
		p.now = second
		p.answers(20, "window", Denied, SourceOwner, "a")
		p.End = p.now
		if _, one := p.analysis().replay(&p.Rules[0], p.answered(&p.Rules[0]), Span{900 * ms, p.End}); one != want {
			t.Errorf("after checks that took %v %d are admitted, want %d", took.Duration(), one, want)
		}
	}
}

// TestABucketIsExact: not one unit more than its burst and its rate, and no denial
// of one that cannot be full.
func TestABucketIsExact(t *testing.T) {
	for n, want := range map[int]string{1: "", 2: "22 admitted"} {
		// The first and the last are 100 to 102 ms apart: one unit comes back.
		p := planted(once()).allowed(20, "bucket", "a")
		p.now = 100 * ms
		for i := range p.Ops {
			p.Ops[i].Call, p.Ops[i].Return = 0, ms
		}
		p.allowed(n, "bucket", "a")
		p.Ops[len(p.Ops)-1].Call, p.Ops[len(p.Ops)-1].Return = 100*ms, 101*ms
		if got := told(p); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%d more: found %q, want %q", n, got, want)
		}
	}
	for wait, want := range map[Micros]string{0: "", 95 * ms: "", 105 * ms: "at most 19 of the bucket's 20"} {
		p := planted(once()).allowed(20, "bucket", "a")
		for i := range p.Ops {
			p.Ops[i].Call, p.Ops[i].Return = 0, ms
		}
		p.now = ms + wait
		if got := told(p.answers(1, "bucket", Denied, SourceOwner, "a")); want == "" && got != "" ||
			!strings.Contains(got, want) {
			t.Errorf("denied after %v: found %q, want %q", wait.Duration(), got, want)
		}
	}
}

// TestSeveralByPolicy: a check of several keys is denied under `closed` as soon as one of them
// cannot be asked for; else each node's share is all that comes on top.
func TestSeveralByPolicy(t *testing.T) {
	with := func(policy string, byPolicy, byOwner int) *plant {
		p := planted(once())
		p.Rules = []Rule{{Name: "several", Limit: 20, Window: 2 * second, Policy: policy, Several: true}}
		for i := range byPolicy + byOwner {
			source := SourceOwner
			if i < byPolicy {
				source = "fallback_local"
			}
			p.Ops = append(p.Ops, Op{Call: p.now, Return: p.now + ms, Rule: "several", Outcome: Allowed, Source: source,
				Keys: []string{"ip x", "user y"}})
			p.now += 10 * ms
		}
		return p
	}
	for _, row := range []struct {
		policy            string
		byPolicy, byOwner int
		want              string
	}{
		{"closed", 0, 20, ""},
		{"closed", 1, 0, "the policy of node 0 admitted 1"},
		{"local", 10, 16, ""}, // of the ten the owners counted four
		{"local", 10, 17, "27 admitted by owners, heirs and policies"},
	} {
		if got := told(with(row.policy, row.byPolicy, row.byOwner)); row.want == "" && got != "" ||
			!strings.Contains(got, row.want) {
			t.Errorf("%s, %d by policy, %d by owners: found %q, want %q", row.policy, row.byPolicy, row.byOwner, got, row.want)
		}
	}
}

// TestABucketAfterAFault: of a bucket that a minority decided with less nobody knows what
// is left when all has settled, so only what comes back from then on is asked of it.
func TestABucketAfterAFault(t *testing.T) {
	for _, row := range []struct {
		name    string
		admits  Micros // one unit in so long
		settled Micros
		want    int
	}{
		{"all that comes back", 100 * ms, 2 * ms, 0},
		{"half of it", 200 * ms, 2 * ms, 1},
		{"and no burst, though nothing was broken", 100 * ms, 0, 1},
	} {
		p := planted(once())
		p.Faults[0] = Fault{At: 0, Until: ms, Settled: row.settled, Nodes: []int{1}}
		if row.settled == 0 {
			p.Faults = nil
		}
		p.now = 10 * ms
		for i := range 600 {
			outcome := Denied
			if Micros(i)*10*ms%row.admits == 0 {
				outcome = Allowed
			}
			p.answers(1, "bucket", outcome, SourceOwner, "a")
			p.now = 10*ms + Micros(i+1)*10*ms
		}
		p.End = p.now
		if got := p.judges().Used(); len(got) != row.want {
			t.Errorf("%s: found %v, and %+v", row.name, got, p.judges().Uses())
		}
	}
}

// TestLateAnswers: where copies are so late that answers wait for them, a policy may
// answer at the deadline, and nowhere else after graceful changes. A check that the heir
// was asked for too may have been counted twice; none that was answered sooner.
func TestLateAnswers(t *testing.T) {
	for _, row := range []struct {
		name   string
		raised bool
		took   Micros
		policy bool
		want   bool
	}{
		{"a policy at the deadline", true, 300 * ms, true, false},
		{"a policy before it", true, 299 * ms, true, true},
		{"a policy at the deadline, no copies late", false, 300 * ms, true, true},
		{"a check counted twice", true, 80 * ms, false, false},
		{"too soon for it", true, 79 * ms, false, true},
		{"nor where they are not", false, 79 * ms, false, true},
		{"which has nothing to do with copies", false, 80 * ms, false, false},
	} {
		a := exact()
		a.Raised = row.raised
		p := planted(a)
		last := func() *Op { return &p.Ops[len(p.Ops)-1] }
		if row.policy {
			p.answers(1, "window", Denied, "fallback_closed", "")
			last().Return = last().Call + row.took
		} else {
			p.answers(1, "once", Allowed, SourceOwner, "a")
			last().Return = last().Call + row.took
			p.now = last().Return
			p.allowed(18, "once", "a").answers(1, "once", Denied, SourceOwner, "a")
		}
		if got := p.judges().Conserved(); (len(got) > 0) != row.want {
			t.Errorf("%s: found %v", row.name, got)
		}
	}
}

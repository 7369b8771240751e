package arith

import "github.com/weirlimit/weir/limiter"

// A decision over several counters takes four steps, which a decider runs under the
// locks that protect the states: Probe each limit, Combine them, Charge those
// that Combine selects, and Report each limit. A single counter takes the same steps.

// Probe asks one limit about the cost in out.Cost. It fills in out.Allowed, out.Never
// and out.Blocked, and clears out.Overflow and out.RetryAfter. It returns the units
// that count at now, for [State.Report]. It changes the state only by [State.Roll].
func (s *State) Probe(l *limiter.Limit, words []uint64, now limiter.Tick, out *limiter.LimitDecision) (used uint64) {
	c := s.Open(l)
	used = c.Probe(l, words, now, out)
	*s = c.State(l)
	return used
}

// Probe is [State.Probe].
func (s *Counts) Probe(l *limiter.Limit, words []uint64, now limiter.Tick, out *limiter.LimitDecision) (used uint64) {
	return s.probe(of(l), words, now, out)
}

func (s *Counts) probe(l *rate, words []uint64, now limiter.Tick, out *limiter.LimitDecision) (used uint64) {
	if l.P.Algorithm == limiter.SlidingCounter && s.Until == 0 { // what roll and used do, without two calls
		(*counter)(l).roll(s, now)
		used = s.A + (*counter)(l).tail(s, now)
	} else {
		s.roll(l, words, now)
		used = l.used(s, now)
	}
	n := max(out.Cost, 1)
	out.Overflow, out.RetryAfter = false, 0
	out.Never = n > l.Cap
	out.Blocked = s.Until > now
	out.Allowed = !out.Blocked && used+n <= l.Cap
	return used
}

// Combine combines the results of all limits into the decision, and determines what is
// charged, see [ToCharge]. With peek nothing is charged.
func Combine(d *limiter.Decision, peek bool) {
	d.Allowed, d.Never, d.ShadowDenied = true, false, false
	shadowNever := false
	limits := d.Limits()
	for i := range limits {
		l := &limits[i]
		switch {
		case l.Allowed:
		case l.Rule.Shadow:
			d.ShadowDenied = true
			shadowNever = shadowNever || l.Never
		default:
			d.Allowed = false
			d.Never = d.Never || l.Never
		}
	}
	d.Steps().Charges = !peek && !d.Never
	d.Steps().ShadowCharges = d.Steps().Charges && !shadowNever
}

// ToCharge returns, after [Combine], whether limit i is to be charged and
// whether its denial begins a block. Both are false for a peek and for a check that can
// never be allowed.
func ToCharge(d *limiter.Decision, i int) (charge, block bool) {
	l := d.Limit(i)
	together, charges := d.Allowed, d.Steps().Charges
	if l.Rule.Shadow {
		together, charges = together && !d.ShadowDenied, d.Steps().ShadowCharges
	}
	if !charges || l.Cost == 0 || l.Overflow {
		return false, false
	}
	switch of(l.Limit).P.Count {
	case limiter.CountAll:
		charge = true
	case limiter.CountRoom:
		charge = l.Allowed
	default:
		charge = together
	}
	return charge, !l.Allowed && !l.Blocked && of(l.Limit).P.Block > 0
}

// BeginBlock begins the block of limit i at now, in a state of l.
func BeginBlock(d *limiter.Decision, i int, l *limiter.Limit, s *State, now limiter.Tick) {
	out := d.Limit(i)
	c := s.Open(l)
	c.Until = now + of(out.Limit).P.Block
	*s = c.State(l)
	out.Blocked, d.Steps().Began = true, true
}

// Repeat makes a decision that charged nothing the answer to a check whose id is remembered:
// every limit admits it.
func Repeat(d *limiter.Decision) {
	d.Allowed, d.Never, d.ShadowDenied, d.Repeated, d.Steps().Began = true, false, false, true, false
	d.Rule = "" // that of a denial
	for i := range d.Len() {
		Admit(d.Limit(i))
	}
}

// Admit makes a limit one that admits the check, as of a key for which its id is remembered.
func Admit(l *limiter.LimitDecision) {
	l.Allowed, l.Never, l.Blocked, l.Overflow, l.RetryAfter = true, false, false, false, 0
}

// Report fills in out.Remaining and out.ResetAfter, and out.RetryAfter if the check was
// denied but not for ever. It must follow the charge: used is the result of
// [State.Probe], charged the units charged since then. A limit of a shadow rule that
// would deny has a RetryAfter, too, although the check is allowed.
func (s *State) Report(l *limiter.Limit, words []uint64, now limiter.Tick, used, charged uint64, denied bool,
	out *limiter.LimitDecision) {
	c := s.Open(l)
	c.Report(l, words, now, used, charged, denied, out)
}

// Report is [State.Report].
func (s *Counts) Report(l *limiter.Limit, words []uint64, now limiter.Tick, used, charged uint64, denied bool,
	out *limiter.LimitDecision) {
	s.report(of(l), words, now, used, charged, denied, out)
}

func (s *Counts) report(l *rate, words []uint64, now limiter.Tick, used, charged uint64, denied bool,
	out *limiter.LimitDecision) {
	switch {
	case charged == 0:
	case l.P.Count == limiter.CountAll:
		used = l.used(s, now) // used may have been more than the capacity
	default:
		used += charged
	}
	out.ResetAfter = max(0, s.emptyAt(l, words)-now).Duration()
	if l.P.Algorithm == limiter.Concurrency && s.A == s.B { // no hold has come, nor does one for a rule in shadow
		out.ResetAfter = max(0, s.Until-now).Duration()
	}
	out.Remaining = l.Cap - min(used, l.Cap)
	if s.Until > now || out.Overflow && !out.Allowed {
		out.Remaining = 0
	}
	if !denied && out.Allowed || out.Never || out.Overflow {
		return
	}
	n := max(out.Cost, 1)
	if used+n > l.Cap {
		out.RetryAfter = (l.admitsAt(s, words, n) - now).Duration()
	}
	out.RetryAfter = max(out.RetryAfter, (s.Until - now).Duration())
}

// Conclude sets d.RetryAfter and the limit that denied, from the reports of the limits.
func Conclude(d *limiter.Decision) {
	d.RetryAfter, d.Steps().Blocked = 0, 0
	limits := d.Limits()
	if Fields(&d.Receipt).Charged != 0 {
		set := uint64(0)
		for i := range limits {
			l := &limits[i]
			set = setHash(set, of(l.Limit), l.Cost)
		}
		Fields(&d.Receipt).Set = set
	}
	if d.Allowed {
		return
	}
	for i := range limits {
		l := &limits[i]
		if l.Rule.Shadow {
			continue
		}
		d.RetryAfter = max(d.RetryAfter, l.RetryAfter)
		if !l.Allowed && (d.Steps().Blocked == 0 || outranks(l, d.Limit(int(d.Steps().Blocked)-1))) {
			d.Steps().Blocked = int16(i) + 1
		}
	}
	if d.Never {
		d.RetryAfter = 0
	}
	if b := d.BlockedBy(); b != nil {
		d.Rule = b.Rule.Name
	}
}

func outranks(a, b *limiter.LimitDecision) bool {
	if a.Never != b.Never {
		return a.Never
	}
	return a.RetryAfter > b.RetryAfter
}

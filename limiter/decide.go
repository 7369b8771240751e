package limiter

// A decision over several counters takes four steps, which a decider runs under the
// locks that protect the states: Probe each limit, Settle them together, Charge those
// that Settle selects, and Report each limit. A single counter takes the same steps.

// Probe asks one limit about the cost in out.Cost. It fills in out.Allowed, out.Never
// and out.Blocked, and clears out.Overflow and out.RetryAfter. It returns the units
// that count at now, for [State.Report]. It changes the state only by [State.Roll].
func (s *State) Probe(l *Limit, words []uint64, now Tick, out *LimitDecision) (used uint64) {
	c := s.Open(l)
	used = c.Probe(l, words, now, out)
	*s = c.State(l)
	return used
}

// Probe is [State.Probe].
func (s *Counts) Probe(l *Limit, words []uint64, now Tick, out *LimitDecision) (used uint64) {
	if l.p.algorithm == SlidingCounter && s.Until == 0 { // what roll and used do, without two calls
		l.rollCounter(s, now)
		used = s.A + l.tail(s, now)
	} else {
		s.roll(l, words, now)
		used = l.used(s, now)
	}
	n := max(out.Cost, 1)
	out.Overflow, out.RetryAfter = false, 0
	out.Never = n > l.cap
	out.Blocked = s.Until > now
	out.Allowed = !out.Blocked && used+n <= l.cap
	return used
}

// Settle combines the results of all limits into the decision, and determines what is
// charged, see [ToCharge]. With peek nothing is charged.
func Settle(d *Decision, peek bool) {
	d.Allowed, d.Never, d.ShadowDenied = true, false, false
	shadowNever := false
	limits := Limits(d)
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
	d.charges = !peek && !d.Never
	d.shadowCharges = d.charges && !shadowNever
}

// ToCharge returns, after [Settle], whether limit i is to be charged and
// whether its denial begins a block. Both are false for a peek and for a check that can
// never be allowed.
func ToCharge(d *Decision, i int) (charge, block bool) {
	l := d.Limit(i)
	together, charges := d.Allowed, d.charges
	if l.Rule.Shadow {
		together, charges = together && !d.ShadowDenied, d.shadowCharges
	}
	if !charges || l.Cost == 0 || l.Overflow {
		return false, false
	}
	switch l.Limit.p.count {
	case CountAll:
		charge = true
	case CountRoom:
		charge = l.Allowed
	default:
		charge = together
	}
	return charge, !l.Allowed && !l.Blocked && l.Limit.p.block > 0
}

// BeginBlock begins the block of limit i at now.
func BeginBlock(d *Decision, i int, s *State, now Tick) {
	out := d.Limit(i)
	c := s.Open(out.Limit)
	c.Until = now + out.Limit.p.block
	*s = c.State(out.Limit)
	out.Blocked, d.began = true, true
}

// Repeat makes a decision that charged nothing the answer to a check whose id is remembered:
// every limit admits it.
func Repeat(d *Decision) {
	d.Allowed, d.Never, d.ShadowDenied, d.Repeated, d.began = true, false, false, true, false
	for i := range d.Len() {
		l := d.Limit(i)
		l.Allowed, l.Never, l.Blocked, l.Overflow, l.RetryAfter = true, false, false, false, 0
	}
}

// Report fills in out.Remaining and out.ResetAfter, and out.RetryAfter if the check was
// denied but not for ever. It must follow the charge: used is the result of
// [State.Probe], charged the units charged since then. A limit of a shadow rule that
// would deny has a RetryAfter, too, although the check is allowed.
func (s *State) Report(l *Limit, words []uint64, now Tick, used, charged uint64, denied bool, out *LimitDecision) {
	c := s.Open(l)
	c.Report(l, words, now, used, charged, denied, out)
}

// Report is [State.Report].
func (s *Counts) Report(l *Limit, words []uint64, now Tick, used, charged uint64, denied bool, out *LimitDecision) {
	switch {
	case charged == 0:
	case l.p.count == CountAll:
		used = l.used(s, now) // used may have been more than the capacity
	default:
		used += charged
	}
	out.ResetAfter = max(0, s.emptyAt(l, words)-now).Duration()
	out.Remaining = l.cap - min(used, l.cap)
	if s.Until > now || out.Overflow && !out.Allowed {
		out.Remaining = 0
	}
	if !denied && out.Allowed || out.Never || out.Overflow {
		return
	}
	n := max(out.Cost, 1)
	if used+n > l.cap {
		out.RetryAfter = (l.admitsAt(s, words, n) - now).Duration()
	}
	out.RetryAfter = max(out.RetryAfter, (s.Until - now).Duration())
}

// Conclude sets d.RetryAfter and the limit that denied, from the reports of the limits.
func Conclude(d *Decision) {
	d.RetryAfter, d.blocked = 0, 0
	limits := Limits(d)
	if d.Receipt.Charged != 0 {
		set := uint64(0)
		for i := range limits {
			l := &limits[i]
			set = setHash(set, l.Limit, l.Cost)
		}
		d.Receipt.Set = set
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
		if !l.Allowed && (d.blocked == 0 || outranks(l, d.Limit(int(d.blocked)-1))) {
			d.blocked = int32(i) + 1
		}
	}
	if d.Never {
		d.RetryAfter = 0
	}
	if b := d.BlockedBy(); b != nil {
		d.Rule = b.Rule.Name
	}
}

func outranks(a, b *LimitDecision) bool {
	if a.Never != b.Never {
		return a.Never
	}
	return a.RetryAfter > b.RetryAfter
}

package limiter

// UpTo returns a rule like the receiver whose checks may use percent of each limit, or of the burst of a bucket,
// rounded down, and at least 1: see [Spec.Ceiling]. The limits must be able to have ceilings. The counters are those of
// the receiver, and no units are lent.
func (r *Rule) UpTo(percent uint8) *Rule {
	out := *r
	out.ceiling, out.Leases, out.Limits = percent, false, make([]*Limit, len(r.Limits))
	for i, l := range r.Limits {
		p := l.C.P
		p.Ceiling = max(1, l.C.Full/100*uint64(percent)+l.C.Full%100*uint64(percent)/100)
		out.Limits[i] = p.Compile(l.C.Cal)
	}
	return &out
}

// Onward returns a rule like the receiver whose denials are no answers yet: another rule is asked then.
func (r *Rule) Onward() *Rule {
	out := *r
	out.onward = true
	return &out
}

// LeadsOn reports whether [Rule.Onward] returned the rule.
func (r *Rule) LeadsOn() bool { return r.onward }

// Ceiling returns how many percent of its limits the rule may use that [Rule.UpTo] returned, 0 for any other.
func (r *Rule) Ceiling() uint8 { return r.ceiling }

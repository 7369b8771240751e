package rules

import "github.com/weirlimit/weir/limiter/arith"

// leasing says whether owners lend units of a rule's counters to the members that are asked.
type leasing uint8

// The ways. The zero value is the default.
const (
	leasesAuto leasing = iota // of keys that are asked for often, where nobody could tell
	leasesOff
)

// String returns the name in a rules file.
func (l leasing) String() string {
	return nameOf(l, "auto", "off")
}

// leasesField is what a file says of it, and where; nil: nowhere.
type leasesField struct {
	how leasing
	at  *node
}

// field decodes it.
func (l *leasesField) field(d *decoder) field {
	f := choice(d, "leases", &l.how)
	read := f.read
	f.read = func(k, v *node) {
		l.at = v
		read(k, v)
	}
	return f
}

// neverLent warns about a rule that says that it lends, and does not.
func neverLent(r *definition) (out []Warning) {
	if at := r.leases.at; r.leases.how != leasesAuto || at == nil || at.Line < r.line {
		return nil
	}
	var why string
	switch counted := newCounters(r, &Options{}); {
	case len(r.keys)+len(r.draws) > 1 && len(r.limits) > 0 || len(r.draws) > 1:
		why = "a check by it has several counters"
	case len(r.limits) > 0 && arith.LeaseFor(counted.limiter) == 0:
		why = "it is in shadow, has no copies, a window below 200ms, or a limit whose units are not lent: concurrency, a " +
			"window from the first hit, a drip, a block or count_rejected"
	default:
		return nil
	}
	return []Warning{newWarning(r, r.leases.at, "", "\"leases: auto\" has no effect in %s: %s. Remove it", r.title(), why)}
}

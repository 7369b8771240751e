package rules

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir/internal/yamltree"
	"github.com/weirlimit/weir/limiter"
)

// Hints returns what may surprise in limits that are right, in the order of the file. Strict does not count a hint,
// and nodes do not log it. The caller owns the slice.
func (s *Set) Hints() []Warning { return slices.Clone(s.hints) }

// A limit of at least surprisingLimit units loses at most a tenth of even traffic by sliding_counter, and nobody
// notices a wait below shortSurprise.
const (
	surprisingLimit = 10
	shortSurprise   = time.Second
)

// counterSays are the options with which a file says that a limit is meant as it counts.
func counterSays() []string { return []string{"algorithm", "rounding", "weight"} }

func hints(rules, quotas []definition) (out []Warning) {
	for _, all := range [][]definition{quotas, rules} {
		for i := range all {
			out = append(out, slices.Concat(deniesAfterQuiet(&all[i]), withoutIDs(&all[i]))...)
		}
	}
	return inOrder(out)
}

// withoutIDs has a hint of what a rule with alternatives does not do.
func withoutIDs(r *definition) []Warning {
	i := slices.IndexFunc(r.draws, func(w drawing) bool { return w.any > 0 })
	if i < 0 {
		return nil
	}
	return []Warning{newWarning(r, r.draws[i].at, "", "checks by %s take no id, hold or credit, and clients borrow no "+
		"units by it, since no quota of \"any\" knows what another was charged: a check that is sent again may count twice. "+
		"Draw on one quota where callers need ids", r.title())}
}

// deniesAfterQuiet has a hint for each small limit that uses sliding_counter without saying so. If all L units of a
// window W are used at its beginning, the next one begins with all of them: x later L - L·x/W still count, and one
// more has room from x = W/L on. A log would have forgotten them all.
func deniesAfterQuiet(r *definition) (out []Warning) {
	said := func(s setting) bool { return slices.Contains(counterSays(), s.option.name) }
	if slices.ContainsFunc(r.settings, said) {
		return nil
	}
	for i, l := range r.limits {
		if l == nil || l.Algorithm() != limiter.SlidingCounter || slices.Contains(r.choosing.limits, i) {
			continue // numbers of plans are in other places
		}
		at := r.written[i]
		if slices.ContainsFunc(counterSays(), func(name string) bool { return at.At(name) != nil }) {
			continue
		}
		n, window := l.Limit(), l.Window()
		wait := window / time.Duration(n)
		if n >= surprisingLimit || wait < shortSurprise {
			continue
		}
		instead := "rounding: floor"
		if at.Kind == yamltree.Scalar {
			instead = fmt.Sprintf("{limit: %d, window: %s, rounding: floor}", n, limiter.WindowName(window))
		}
		out = append(out, newWarning(r, at, instead, "after %d at the beginning of one window and a quiet rest, "+
			"limit %s of %s denies the first %s of the next, since sliding_counter needs a whole unit of room. Write %q, or "+
			"\"algorithm: sliding_log\" for at most %d in any window, exactly; \"rounding: exact\" says that it is meant",
			n, quote(l.Name()), r.title(), wait.Round(time.Millisecond), instead, n))
	}
	return out
}

package rules

import (
	"cmp"
	"fmt"
	"math/bits"

	"github.com/weirlimit/weir/internal/yamltree"
	"github.com/weirlimit/weir/limiter"
)

// drips is a decoder of what a leaky bucket leaks at once, {amount: 5, every: 10s}.
type drips struct{ *decoder }

// long decodes the long form of drip, and reports whether it is valid.
func (d drips) long(n *node) bool {
	before := len(d.problems.list)
	d.mapping(n, "drip", d.fields(), func(name string) string {
		switch name {
		case "units", "limit", "count":
			return fmt.Sprintf(`unknown field %q (in drip); write "amount" for the units that leak at once`, name)
		case "window", "interval", "period", "per":
			return fmt.Sprintf(`unknown field %q (in drip); write "every" for the time between two drips`, name)
		}
		return ""
	})
	if n.At("amount") == nil && len(d.problems.list) == before {
		every := "10s"
		if v := n.At("every"); v != nil {
			every = v.Text // valid, since there was no problem
		}
		d.add(n, `this drip has no "amount": write {amount: 5, every: %s}, or "drip: interval" for one unit at a time`, every)
	}
	return len(d.problems.list) == before
}

func (d drips) fields() []field {
	return []field{
		{"amount", func(_, v *node) {
			if d.scalar(v, "amount") {
				if _, bad := units(v.Text, 1); bad != "" {
					d.add(v, "amount: %s", bad)
				}
			}
		}},
		{"every", func(_, v *node) {
			if d.scalar(v, "every") {
				if w, bad := duration(v.Text); bad != "" || w <= 0 {
					d.add(v, "every: %s", cmp.Or(bad, quote(v.Text)+" is not a time: give one such as 10s"))
				}
			}
		}},
	}
}

// setDrip sets how a leaky bucket leaks.
func setDrip(s *limiter.Spec, n *node) string {
	s.DripUnits = 0
	if n.Kind != yamltree.Mapping {
		return choose(n, "drip", &s.Drip)
	}
	s.Drip = limiter.DripInterval
	s.DripUnits, _ = units(n.At("amount").Text, 1)
	return ""
}

// agree reports a time between drips that contradicts the limit and its window, whose
// rate is that of the drips.
func (d drips) agree(s *spec) {
	at := s.at["drip"]
	if at == nil || at.Kind != yamltree.Mapping || at.At("every") == nil ||
		s.DripUnits < 1 || s.Limit < 1 || s.Window <= 0 ||
		s.bad["limit"] || s.bad["window"] {
		return
	}
	every, _ := duration(at.At("every").Text)
	hi, lo := bits.Mul64(uint64(s.DripUnits), uint64(s.Window))
	otherHi, otherLo := bits.Mul64(uint64(s.Limit), uint64(every))
	if hi == otherHi && lo == otherLo {
		return
	}
	instead := `leave "every" out`
	if hi < uint64(every) {
		if n, rest := bits.Div64(hi, lo, uint64(every)); rest == 0 && n >= 1 && n <= limiter.MaxUnits {
			instead = fmt.Sprintf("write limit: %d, or %s", n, instead)
		}
	}
	d.add(at.At("every"), "%d units every %v are not the rate of this limit, %d per %s: %s", s.DripUnits, every, s.Limit,
		limiter.WindowName(s.Window), instead)
}

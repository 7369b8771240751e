package walk

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"
)

// String returns a limit as a rules file has it.
func (l *lim) String() string {
	w := time.Duration(l.window) * time.Microsecond
	s := fmt.Sprintf("{name: %s, limit: %d", l.name, l.units)
	switch {
	case l.most > 0:
		s = fmt.Sprintf("{name: %s, limit: {from: 'attr:plan', most: %d, else: %d}", l.name, l.most, l.units)
	case l.table != nil:
		var of []string
		for _, plan := range slices.Sorted(maps.Keys(l.table)) {
			of = append(of, fmt.Sprintf("%q: %d", plan, l.table[plan]))
		}
		s = fmt.Sprintf("{name: %s, limit: {by: 'attr:plan', of: {%s}, else: %d}", l.name, strings.Join(of, ", "), l.units)
	}
	switch l.alg {
	case "calendar":
		s += fmt.Sprintf(", calendar: day, zone: %s", l.zone)
	case "concurrency":
		s += ", algorithm: concurrency"
	case "first_hit":
		s += fmt.Sprintf(", window: %s, algorithm: fixed_window, align: first_hit", w)
	default:
		s += fmt.Sprintf(", window: %s, algorithm: %s", w, l.alg)
	}
	switch {
	case l.bucket():
		s += fmt.Sprintf(", burst: %d", l.burst)
		if l.drip == 1 {
			s += ", drip: interval"
		} else if l.drip > 1 {
			s += fmt.Sprintf(", drip: {amount: %d}", l.drip)
		}
	case l.alg == "sliding_window":
		s += fmt.Sprintf(", sub_windows: %d, coverage: %s", l.sub,
			map[bool]string{true: "lenient", false: "strict"}[l.lenient])
	case l.alg == "sliding_counter":
		s += fmt.Sprintf(", weight: %d.%03d, rounding: %s", l.weight/1000, l.weight%1000, l.rounding)
	}
	if l.reject != "none" && l.alg != "concurrency" {
		s += ", count_rejected: " + l.reject
	}
	if l.block > 0 {
		s += fmt.Sprintf(", block: %s", time.Duration(l.block)*time.Microsecond)
	}
	return s + "}"
}

// chosen is the limit for a request of a plan: "the number of its plan; that of else if the table has
// none", or "the number that the request states, at most most; that of else if it states none".
func (l *lim) chosen(plan string) *lim {
	units, ok := l.table[plan]
	if l.most > 0 {
		n, valid := new(big.Int).SetString(plan, 10)
		if ok = valid && n.Sign() > 0; ok {
			units = l.most
			if n.Cmp(big.NewInt(l.most)) < 0 {
				units = n.Int64()
			}
		}
	}
	if !ok {
		return l
	}
	out := *l
	out.units = units
	return &out
}

// "remaining is out of capacity, its burst, and a cost above that is denied for ever".
func (l *lim) capacity() int64 {
	if l.ceiling > 0 {
		return l.ceiling
	}
	if l.bucket() {
		return l.burst
	}
	return l.units
}

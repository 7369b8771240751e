package limiter

import "github.com/weirlimit/weir/limiter/calendar"

// ChosenBy is what of a request chooses the variant of a rule.
type ChosenBy uint8

// What chooses. The zero value is that of a rule without variants.
const (
	ChosenByNone   ChosenBy = iota
	ChosenByZone            // a time zone: see [Rule.Zoned]
	ChosenByName            // a name, such as that of a plan: see [Rule.Varied]
	ChosenByNumber          // the number of a limit: see [Rule.Varied]
)

// variants are those of a rule, of which each request chooses one.
type variants struct {
	base *Rule // without a choice
	by   ChosenBy
	of   func(choice string) *Rule // nil: there is no such variant
}

// Zoned returns a rule like the receiver whose limits at the given indices have a time zone that each
// request chooses: see [Rule.In]. These limits must have calendars of one zone, which is
// the default. All of a key's counters are the same in each zone: if the next request
// chooses another, the limit has changed, and what was used so far counts on.
func (r *Rule) Zoned(limits []int) *Rule {
	out := new(*r)
	if len(limits) == 0 {
		return out
	}
	fallback := r.Limits[limits[0]].Spec().Zone
	made := calendar.NewPerZone(func(zone string) *Rule {
		if zone == fallback {
			return out
		}
		v := *out
		v.choice, v.Limits = zone, append([]*Limit(nil), out.Limits...)
		for _, i := range limits {
			s := out.Limits[i].Spec()
			s.Zone = zone
			l, err := NewLimit(s)
			if err != nil {
				return nil // not reached: the zone is of the database
			}
			v.Limits[i] = l
		}
		return &v
	})
	out.variants = &variants{base: out, by: ChosenByZone, of: made.Get}
	return out
}

// Varied returns a rule like the receiver with variants that requests choose by a name or by a number: see
// [Rule.In]. of returns the variant for a choice, made by [Rule.Variant] of base, nil if there is none.
// It is called by several goroutines. The receiver's limits are for requests that choose none. All of
// a key's counters are the same whatever is chosen: if the next request makes another choice, the
// limit has changed, and what was used so far counts on. There may be more variants by number than
// can be kept; those by name are all of the rules file.
func (r *Rule) Varied(by ChosenBy, of func(base *Rule, choice string) *Rule) *Rule {
	base := *r
	base.variants = &variants{base: &base, by: by, of: func(choice string) *Rule { return of(&base, choice) }}
	return &base
}

// Variant returns a variant of a rule that [Rule.Varied] calls base, with other limits: as many as the rule has,
// in their order and with their names.
func (r *Rule) Variant(choice string, limits []*Limit) *Rule {
	v := *r
	v.choice, v.Limits = choice, limits
	return &v
}

// In returns the variant of the rule that a request chooses: its policies and counters are
// those of the rule, and its limits have the time zone or the numbers of that choice. ok is
// false, and the rule without a choice is returned, if there is no such variant, as for a
// name that is not of the time zone database. A variant by zone is made once and kept. There are at
// most as many as the database has zones.
func (r *Rule) In(choice string) (variant *Rule, ok bool) {
	if r.variants == nil {
		return r, false
	}
	if v := r.variants.of(choice); v != nil {
		return v, true
	}
	return r.variants.base, false
}

// Choice returns what chose a variant that [Rule.In] returned, so that In returns it again in
// another process with the same rules. It is empty for the rule without a choice.
func (r *Rule) Choice() string { return r.choice }

// ChosenBy returns what of a request chooses the rule's variant.
func (r *Rule) ChosenBy() ChosenBy {
	if r.variants == nil {
		return ChosenByNone
	}
	return r.variants.by
}

// InDefaultZone reports whether the rule is made by [Rule.Zoned] and has its default zone: the
// request named that one, or none.
func (r *Rule) InDefaultZone() bool { return r.ChosenBy() == ChosenByZone && r.choice == "" }

// Zone returns the time zone of a variant that [Rule.In] returned, empty for the rule
// with its default zone.
func (r *Rule) Zone() string {
	if r.ChosenBy() != ChosenByZone {
		return ""
	}
	return r.choice
}

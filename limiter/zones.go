package limiter

import "github.com/weirlimit/weir/limiter/calendar"

// zones are the variants of a rule by time zone.
type zones struct {
	base     *Rule
	fallback string // the zone of base
	variants *calendar.PerZone[Rule]
}

// Zoned returns a rule like the receiver whose limits at the given indices have a time zone that each
// request chooses: see [Rule.In]. These limits must have calendars of one zone, which is
// the default. All of a key's counters are the same in each zone: if the next request
// chooses another, the limit has changed, and what was used so far counts on.
func (r *Rule) Zoned(limits []int) *Rule {
	base := *r
	out := &base
	if len(limits) == 0 {
		return out
	}
	z := &zones{base: out, fallback: r.Limits[limits[0]].Spec().Zone}
	z.variants = calendar.NewPerZone(func(zone string) *Rule {
		if zone == z.fallback {
			return out
		}
		v := base
		v.zone, v.Limits = zone, append([]*Limit(nil), base.Limits...)
		for _, i := range limits {
			s := base.Limits[i].Spec()
			s.Zone = zone
			l, err := NewLimit(s)
			if err != nil {
				return nil // not reached: the zone is of the database
			}
			v.Limits[i] = l
		}
		return &v
	})
	out.zones = z
	return out
}

// In returns the variant of the rule for a time zone: its limits, policies and counters
// are those of the rule, but the windows of the limits named to [Rule.Zoned] follow the clocks
// of that zone. ok is false, and the rule with its default zone is returned, if the zone
// has no entry in the time zone database, or the rule is not made by Zoned. A variant is
// made once and kept. There are at most as many as the database has zones.
func (r *Rule) In(zone string) (variant *Rule, ok bool) {
	z := r.zones
	if z == nil {
		return r, false
	}
	if v := z.variants.Get(zone); v != nil {
		return v, true
	}
	return z.base, false
}

// InDefaultZone reports whether the rule is made by [Rule.Zoned] and has its default zone: the
// request named that one, or none.
func (r *Rule) InDefaultZone() bool { return r.zones != nil && r.zone == "" }

// Zone returns the time zone of a variant that [Rule.In] returned, empty for the rule
// with its default zone.
func (r *Rule) Zone() string { return r.zone }

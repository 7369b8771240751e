package limiter

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// actual is what a settlement says was used, by the attributes that stated the estimates.
type actual struct {
	units map[string]uint64
	read  []string // the attributes from which a cost was taken
}

// Actual settles each counter with the cost that its rule or quota computes from these units, as it computed the
// estimate from the attributes of the check: {"tokens": 800, "udollars": 1930}. So it settles a reservation whose
// costs differ. Each attribute from which a rule in force takes a cost must be named, and no other. Other costs
// are computed anew, so the request needs what they depend on, such as the method of the check. The number of Settle
// must be 0 then. 1 to [MaxAttributes] attributes, of 0 to
// [MaxUnits] units each. The map is read, never kept.
func Actual(units map[string]int64) SettleOption {
	return func(a *Settling) { a.Actual, a.Named = units, true }
}

// NameActual lets the costs of a request come from the units of [Actual], until the request is resolved. The error
// wraps [ErrInvalid].
func NameActual(r *Request, units map[string]int64) error {
	switch {
	case len(units) == 0 || len(units) > MaxAttributes:
		return fmt.Errorf("%w: the settlement names %d attributes: give what was used of 1 to %d of them", ErrInvalid,
			len(units), MaxAttributes)
	case r.Cost.Given():
		return fmt.Errorf("%w: the request has a cost, which no attribute states: settle it with one number", ErrInvalid)
	}
	named := make(map[string]uint64, len(units))
	for name, n := range units {
		switch {
		case len(name) > MaxFieldBytes:
			return fieldTooLong("the name of an attribute", len(name))
		case n < 0 || n > MaxUnits:
			return fmt.Errorf("%w: the request is settled with %d of attribute %.100q: give 0 to %d units", ErrInvalid, n,
				name, int64(MaxUnits))
		}
		named[name] = uint64(n)
	}
	r.Cost.actual = &actual{units: named}
	return nil
}

// WithActual returns the request, or one that also has the attributes which its settlement names and it lacks, so that
// what looks whether it has one sees it.
func WithActual(r *Request) *Request {
	if r.Cost.actual == nil {
		return r
	}
	with := *r
	if with.Attributes = maps.Clone(r.Attributes); with.Attributes == nil {
		with.Attributes = make(map[string]string)
	}
	for name, n := range r.Cost.actual.units {
		if with.Attributes[name] == "" {
			with.Attributes[name] = strconv.FormatUint(n, 10)
		}
	}
	return &with
}

// NamesActual reports whether [NameActual] was called for the request.
func NamesActual(r *Request) bool { return r.Cost.actual != nil }

// ActualOf returns what a settlement says was used of an attribute, and whether it does. The attribute counts as read.
func ActualOf(r *Request, attribute string) (units uint64, named bool) {
	if r.Cost.actual == nil {
		return 0, false
	}
	if !slices.Contains(r.Cost.actual.read, attribute) {
		r.Cost.actual.read = append(r.Cost.actual.read, attribute)
	}
	units, named = r.Cost.actual.units[attribute]
	return units, named
}

// UnreadActual returns an error that wraps [ErrInvalid] if a settlement names an attribute from which no cost of a
// resolved request was taken.
func UnreadActual(r *Request) error {
	if r.Cost.actual == nil {
		return nil
	}
	unread, found := "", false
	for name := range r.Cost.actual.units {
		if !slices.Contains(r.Cost.actual.read, name) && (!found || name < unread) {
			unread, found = name, true
		}
	}
	if !found {
		return nil
	}
	slices.Sort(r.Cost.actual.read)
	return fmt.Errorf("%w: no rule that matches takes a cost from attribute %.100q, which the settlement names: name "+
		"those from which they do: %.1000s", ErrInvalid, unread,
		cmp.Or(strings.Join(r.Cost.actual.read, ", "), "none, so give a number"))
}

package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// option is an option that a limit may set, or inherit from its rule or the defaults.
type option struct {
	name string
	// uses lists the algorithms that use the option; empty means all.
	uses []limiter.Algorithm
	// calendar is set for the options of calendar windows.
	calendar bool
	// set puts a value into a spec, or returns what is wrong with it.
	set func(s *limiter.Spec, n *node) string
}

func (o *option) usedBy(s *limiter.Spec) bool {
	switch {
	case o.calendar:
		return o.fits(s.Calendar)
	case o.name == "align" && s.Calendar != limiter.CalendarNone:
		return false
	}
	return len(o.uses) == 0 || slices.Contains(o.uses, s.Algorithm)
}

// limitOptions returns all options of a limit except those that cannot be inherited:
// its name, number and window.
func limitOptions() []option {
	buckets := []limiter.Algorithm{limiter.TokenBucket, limiter.LeakyBucket, limiter.GCRA}
	rates := append([]limiter.Algorithm{limiter.SlidingCounter, limiter.FixedWindow, limiter.SlidingLog,
		limiter.SlidingWindow}, buckets...)
	return []option{
		{name: "algorithm", set: func(s *limiter.Spec, n *node) string { return choose(n, "algorithm", &s.Algorithm) }},
		{name: "align", uses: []limiter.Algorithm{limiter.FixedWindow},
			set: func(s *limiter.Spec, n *node) string { return choose(n, "alignment", &s.Align) }},
		{name: "zone", calendar: true, set: setZone},
		{name: "anchor_day", calendar: true, set: func(s *limiter.Spec, n *node) string {
			day, bad := units(n.Text, 1)
			if bad != "" {
				return named("anchor_day", bad)
			}
			s.AnchorDay = int(day)
			return calendarProblem(s, "anchor_day")
		}},
		{name: "week_start", calendar: true,
			set: func(s *limiter.Spec, n *node) string { return choose(n, "weekday", &s.WeekStart) }},
		{name: "at", calendar: true, set: setAt},
		{name: "sub_windows", uses: []limiter.Algorithm{limiter.SlidingWindow}, set: setSubWindows},
		{name: "coverage", uses: []limiter.Algorithm{limiter.SlidingWindow},
			set: func(s *limiter.Spec, n *node) string { return choose(n, "coverage", &s.Coverage) }},
		{name: "weight", uses: []limiter.Algorithm{limiter.SlidingCounter}, set: setWeight},
		{name: "rounding", uses: []limiter.Algorithm{limiter.SlidingCounter},
			set: func(s *limiter.Spec, n *node) string { return choose(n, "rounding", &s.Rounding) }},
		{name: "burst", uses: buckets, set: func(s *limiter.Spec, n *node) (bad string) {
			s.Burst, bad = units(n.Text, 1)
			return named("burst", bad)
		}},
		{name: "drip", uses: []limiter.Algorithm{limiter.LeakyBucket}, set: setDrip},
		{name: "count_rejected", uses: rates,
			set: func(s *limiter.Spec, n *node) string { return choose(n, "count_rejected mode", &s.CountRejected) }},
		{name: "block", set: setBlock},
	}
}

func setSubWindows(s *limiter.Spec, n *node) string {
	m, bad := integer(n.Text)
	if bad == "" && (m < 1 || m > limiter.MaxSubWindows) {
		bad = fmt.Sprintf("%d is out of range: give 1 to %d sub-windows", m, limiter.MaxSubWindows)
	}
	s.SubWindows = int(m)
	return named("sub_windows", bad)
}

func setWeight(s *limiter.Spec, n *node) string {
	w, bad := thousandths(n.Text)
	s.Weight = &w
	return named("weight", bad)
}

func setBlock(s *limiter.Spec, n *node) (bad string) {
	if s.Block, bad = duration(n.Text); bad != "" {
		return named("block", bad)
	}
	for _, p := range (&limiter.Spec{Limit: 1, Window: time.Second, Block: s.Block}).Problems() {
		return p.Text // only the block can be wrong here
	}
	return ""
}

// named adds the name of the field to an error text, unless that is empty.
func named(field, bad string) string {
	if bad == "" {
		return ""
	}
	return field + ": " + bad
}

// choose decodes a name of an enumeration whose first value is 0 and whose String
// returns "unknown" beyond the last.
func choose[T interface {
	~uint8
	fmt.Stringer
}](n *node, what string, out *T) string {
	names := namesOf[T]()
	i := slices.Index(names, n.Text)
	if i < 0 {
		return unknown(what, n.Text, names)
	}
	*out = T(i)
	return ""
}

func namesOf[T interface {
	~uint8
	fmt.Stringer
}]() (names []string) {
	for v := T(0); v.String() != "unknown"; v++ {
		names = append(names, v.String())
	}
	return names
}

// setting is an option with a valid value, and its position in the file.
type setting struct {
	option     *option
	key, value *node
}

type spec struct {
	limiter.Spec
	zoneFrom string           // the attribute that names the time zone; empty: Zone
	numbers  *numbering       // how requests choose the number; nil: Limit
	at       map[string]*node // the position of each field
	bad      map[string]bool  // fields whose problems were reported already
}

// apply sets the options of the spec; of several with one name the last wins. Inherited
// options that the algorithm does not use are ignored; one that the limit itself sets
// must have an effect. used has those that a limit uses.
func (d limiting) apply(s *spec, inherited, own []setting) {
	all := slices.Concat(inherited, own)
	for _, o := range all { // first, because it determines which others have an effect
		if o.option.name == "algorithm" {
			o.option.set(&s.Spec, o.value)
		}
	}
	d.calendarAlgorithm(s, own)
	for i, o := range all {
		switch {
		case o.option.name == "algorithm":
			if s.Calendar == limiter.CalendarNone || o.value.Text == limiter.FixedWindow.String() {
				d.used[o.key] = true
			}
		case o.option.usedBy(&s.Spec):
			o.option.set(&s.Spec, o.value)
			if o.option.name == "zone" {
				s.zoneFrom = zoneAttribute(o.value)
			}
			s.at[o.option.name], d.used[o.key] = o.value, true
		case i < len(inherited):
		case o.option.calendar:
			if !s.bad["calendar"] {
				d.add(o.value, "%s", notOfCalendar(s.Calendar, o.option.name))
			}
		case o.option.name == "align" && s.Calendar != limiter.CalendarNone:
			d.add(o.key, "align and calendar exclude each other: the calendar says where windows begin")
		case !s.bad["algorithm"]:
			d.add(o.key, "%s does not use %q; it is an option of %s", s.Algorithm, o.option.name, algorithmList(o.option.uses))
		}
	}
}

// unused reports options that a rule or a quota sets and none of its limits uses: it would
// do something else than its author wrote.
func (d limiting) unused(own []setting, r *definition) {
	calendars := !slices.ContainsFunc(r.limits, func(l *limiter.Limit) bool {
		return l.Calendar() == limiter.CalendarNone
	})
	for _, o := range own {
		if d.used[o.key] {
			continue
		}
		advice := "remove it"
		switch {
		case o.option.calendar:
			unit := map[string]string{"anchor_day": "month", "week_start": "week"}[o.option.name]
			unit = cmp.Or(unit, "day")
			advice = "it is an option of limits such as {limit: 5, calendar: " + unit + "}; write one, or remove it"
		case calendars:
			advice = "windows of a calendar have no other; remove it"
		case len(o.option.uses) > 0:
			advice = fmt.Sprintf("it is an option of %s; write \"algorithm: %s\" too, or remove it",
				algorithmList(o.option.uses), o.option.uses[0])
		}
		d.add(o.key, "no limit of this %s uses %q: %s", r.kind(), o.option.name, advice)
	}
}

func algorithmList(list []limiter.Algorithm) string {
	names := make([]string, len(list))
	for i, a := range list {
		names[i] = a.String()
	}
	return strings.Join(names, ", ")
}

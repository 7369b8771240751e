package limitertest

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// spellLimit writes a spec in the form of rules files, without options that have their
// defaults.
func spellLimit(s limiter.Spec) string {
	var b strings.Builder
	if s.Calendar == limiter.CalendarNone {
		fmt.Fprintf(&b, "{limit: %d, window: %s, algorithm: %s", s.Limit, s.Window, s.Algorithm)
	} else {
		fmt.Fprintf(&b, "{limit: %d, calendar: %s", s.Limit, s.Calendar)
	}
	add := func(given bool, name string, value any) {
		if given {
			fmt.Fprintf(&b, ", %s: %v", name, value)
		}
	}
	add(s.Name != "", "name", s.Name)
	add(s.Align != 0, "align", s.Align)
	add(s.SubWindows != 0, "sub_windows", s.SubWindows)
	add(s.Coverage != 0, "coverage", s.Coverage)
	if s.Weight != nil {
		add(true, "weight", strconv.FormatFloat(float64(*s.Weight)/1000, 'f', 3, 64))
	}
	add(s.Rounding != 0, "rounding", s.Rounding)
	add(s.Burst != 0, "burst", s.Burst)
	add(s.Drip != 0 && s.DripUnits == 0, "drip", s.Drip)
	add(s.DripUnits != 0, "drip", fmt.Sprintf("{amount: %d}", s.DripUnits))
	add(s.CountRejected != 0, "count_rejected", s.CountRejected)
	add(s.Block != 0, "block", s.Block)
	add(s.Zone != "", "zone", s.Zone)
	add(s.AnchorDay != 0, "anchor_day", s.AnchorDay)
	add(s.WeekStart != 0, "week_start", s.WeekStart)
	add(s.At != 0, "at", fmt.Sprintf("\"%02d:%02d\"", s.At/time.Hour, s.At%time.Hour/time.Minute))
	return b.String() + "}"
}

// rulesFile collects rules, each for one path and per user.
type rulesFile struct{ b strings.Builder }

// add appends a rule with that name for the path "/name".
func (f *rulesFile) add(name string, specs ...limiter.Spec) {
	limits := make([]string, len(specs))
	for i, s := range specs {
		limits[i] = spellLimit(s)
	}
	fmt.Fprintf(&f.b, "  - name: %s\n    match: {path: \"^/%s$\"}\n    key: [rule, user]\n    limits: [%s]\n",
		name, name, strings.Join(limits, ", "))
}

func (f *rulesFile) String() string { return "version: 1\nrules:\n" + f.b.String() }

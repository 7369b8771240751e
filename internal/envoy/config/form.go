package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// ownKey is the key of metadata under which a file says how a limit counts. The original
// accepts anything there, so the file can be loaded by both.
const ownKey = "weir"

// Form is how a limit counts, as far as its file says so. The zero value leaves it to the
// service. It is comparable.
type Form struct {
	// Own reports that Algorithm is given.
	Own       bool
	Algorithm limiter.Algorithm
	// Burst is the capacity of a bucket, 0 if it is the limit. SubWindows are those of
	// sliding_window, 0 if it has the default.
	Burst      int64
	SubWindows int
	// Multiplier is how many units a period of the limit has; 0 means 1.
	Multiplier uint32
	// Calendar makes windows those of a calendar; the other fields are its options, as in a
	// [limiter.Spec].
	Calendar  bool
	Zone      string
	AnchorDay int
	WeekStart limiter.Weekday
	At        time.Duration
	// Estimate is what a request that only looks reserves, if it has an id, in hits; 0 leaves
	// it to the service.
	Estimate uint32
}

// Spec returns the limit that counts for l, by an algorithm unless the file has another one.
func (l *Limit) Spec(algorithm limiter.Algorithm) limiter.Spec {
	f := &l.Form
	if f.Own {
		algorithm = f.Algorithm
	}
	s := limiter.Spec{
		Name: l.Unit.String(), Algorithm: algorithm, Limit: int64(l.Requests), Window: l.Period(),
		Burst: f.Burst, SubWindows: f.SubWindows,
	}
	switch {
	case f.Calendar:
		s.Algorithm, s.Window, s.Calendar = limiter.FixedWindow, 0, l.Unit.calendar()
		s.Zone, s.AnchorDay, s.WeekStart, s.At = f.Zone, f.AnchorDay, f.WeekStart, f.At
	case algorithm == limiter.FixedWindow && l.Unit == Week && f.Multiplier <= 1:
		// Weeks of the original begin with the epoch, on a Thursday.
		s.Window, s.Calendar, s.WeekStart = 0, limiter.CalendarWeek, limiter.Thursday
	}
	return s
}

// Period returns how long the period of the limit is, for which its requests are.
func (l *Limit) Period() time.Duration {
	return time.Duration(max(1, l.Form.Multiplier)) * l.Unit.Length()
}

// MaxMultiplier returns the most units that a period may have.
func (u Unit) MaxMultiplier() uint32 { return uint32(limiter.MaxWindow / u.Length()) }

func (u Unit) calendar() limiter.Calendar {
	return [...]limiter.Calendar{
		Second: limiter.CalendarNone, Minute: limiter.CalendarMinute, Hour: limiter.CalendarHour, Day: limiter.CalendarDay,
		Week: limiter.CalendarWeek, Month: limiter.CalendarMonth, Year: limiter.CalendarYear,
	}[u]
}

// form takes what metadata says of a limit out of it.
func (l *Limit) form() error {
	v, given := l.Metadata[ownKey]
	if !given {
		return nil
	}
	delete(l.Metadata, ownKey) // it is not for those who get the answers
	if l.Unlimited {
		return errors.New(ownKey + " has no effect: the limit is unlimited")
	}
	if err := l.Form.read(v); err != nil {
		return fmt.Errorf("%s: %w", ownKey, err)
	}
	if l.Form.Calendar && l.Unit == Second {
		return errors.New(ownKey +
			": a second is as long in every calendar: leave out calendar, or give unit: minute or a longer one")
	}
	if most := l.Unit.MaxMultiplier(); l.Form.Multiplier > most {
		return fmt.Errorf("%s: unit_multiplier is %d: give 1 to %d for unit: %s, since a period has at most %d days", ownKey,
			l.Form.Multiplier, most, l.Unit, limiter.MaxWindow/(24*time.Hour))
	}
	s := l.Spec(limiter.FixedWindow)
	s.Limit = max(s.Limit, 1) // 0 denies everything, and needs no counter
	if _, err := limiter.NewLimit(s); err != nil {
		return fmt.Errorf("%s: %w", ownKey, err)
	}
	return nil
}

// read reads the map that metadata has.
func (f *Form) read(v any) error {
	m, ok := v.(map[string]any)
	if !ok {
		return errors.New("it is not a map: give {algorithm: NAME} or {calendar: true}")
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		want, known := f.set(name, m[name])
		if !known {
			return fmt.Errorf("unknown key '%.100s': give algorithm, burst, sub_windows, unit_multiplier, calendar, zone, "+
				"anchor_day, week_start, at or estimate", name)
		}
		if want != "" {
			return fmt.Errorf("%s is %.100q: give %s", name, fmt.Sprint(m[name]), want)
		}
	}
	return f.agrees()
}

// set sets one option. It returns what the option takes if v is something else.
func (f *Form) set(name string, v any) (want string, known bool) {
	text, isText := v.(string)
	ok := false
	switch name {
	case "algorithm":
		at := slices.Index(limiter.AlgorithmNames(), text)
		f.Algorithm, f.Own, ok, want = limiter.Algorithm(max(at, 0)), true, at >= 0,
			"one of "+strings.Join(limiter.AlgorithmNames(), ", ")
	case "burst":
		f.Burst, ok = number(v, limiter.NarrowUnits)
		want = "a number of requests, from 1"
	case "sub_windows":
		var n int64
		n, ok = number(v, limiter.MaxSubWindows)
		f.SubWindows, want = int(n), fmt.Sprintf("1 to %d", limiter.MaxSubWindows)
	case "unit_multiplier":
		var n int64
		n, ok = number(v, math.MaxUint32)
		f.Multiplier, want = uint32(n), "a number of units, from 1" //nolint:gosec // at most MaxUint32
	case "calendar":
		f.Calendar, ok = v.(bool)
		want = "true or false: the unit is that of the limit"
	case "zone":
		f.Zone, ok, want = text, isText && text != "", "the IANA name of a time zone, such as Europe/Berlin"
	case "anchor_day":
		var n int64
		n, ok = number(v, 31)
		f.AnchorDay, want = int(n), "1 to 31"
	case "week_start":
		for d := limiter.Monday; d <= limiter.Sunday; d++ {
			if d.String() == text {
				f.WeekStart, ok = d, true
			}
		}
		want = "the name of a day, such as sunday"
	case "at":
		t, err := time.Parse("15:04", text)
		f.At, ok = time.Duration(t.Hour())*time.Hour+time.Duration(t.Minute())*time.Minute,
			err == nil && len(text) == len("15:04")
		want = `a time of day in quotes, such as "06:00"`
	case "estimate":
		var n int64
		n, ok = number(v, limiter.NarrowUnits)
		f.Estimate, want = uint32(n), "a number of hits, from 1" //nolint:gosec // at most NarrowUnits
	default:
		return "", false
	}
	if ok {
		want = ""
	}
	return want, true
}

// number returns a whole number from 1 to most.
func number(v any, most int64) (int64, bool) {
	n, ok := v.(float64)
	if !ok || n < 1 || n > float64(most) || n != float64(int64(n)) {
		return 0, false
	}
	return int64(n), true
}

// agrees returns an error for options that have no effect beside each other.
func (f *Form) agrees() error {
	bucket := f.Own && (f.Algorithm == limiter.TokenBucket || f.Algorithm == limiter.LeakyBucket ||
		f.Algorithm == limiter.GCRA)
	switch {
	case f.Burst > 0 && !bucket:
		return errors.New("burst has no effect: give algorithm: token_bucket, leaky_bucket or gcra beside it")
	case f.SubWindows > 0 && (!f.Own || f.Algorithm != limiter.SlidingWindow):
		return errors.New("sub_windows has no effect: give algorithm: sliding_window beside it")
	case f.Calendar && f.Own && f.Algorithm != limiter.FixedWindow:
		return fmt.Errorf("%s has no calendar windows: leave out algorithm or calendar", f.Algorithm)
	case f.Calendar && f.Multiplier > 1:
		return errors.New("a window of a calendar is one unit: leave out unit_multiplier or calendar")
	case !f.Calendar && (f.Zone != "" || f.AnchorDay > 0 || f.WeekStart != limiter.Monday || f.At > 0):
		return errors.New("zone, anchor_day, week_start and at are options of a calendar: give calendar: true beside them")
	}
	return nil
}

// String describes the form for people, empty if the service decides.
func (f *Form) String() string {
	var b strings.Builder
	add := func(given bool, format string, args ...any) {
		if given {
			fmt.Fprintf(&b, ", "+format, args...)
		}
	}
	add(f.Own, "algorithm: %s", f.Algorithm)
	add(f.Burst > 0, "burst: %d", f.Burst)
	add(f.SubWindows > 0, "sub_windows: %d", f.SubWindows)
	add(f.Multiplier > 1, "unit_multiplier: %d", f.Multiplier)
	add(f.Calendar, "calendar: true")
	add(f.Zone != "", "zone: %s", f.Zone)
	add(f.AnchorDay > 0, "anchor_day: %d", f.AnchorDay)
	add(f.WeekStart != limiter.Monday, "week_start: %s", f.WeekStart)
	add(f.At > 0, "at: %02d:%02d", int(f.At.Hours()), int(f.At.Minutes())%60)
	add(f.Estimate > 0, "estimate: %d", f.Estimate)
	return b.String()
}

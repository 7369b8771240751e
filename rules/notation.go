package rules

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/yamltree"
	"github.com/weirlimit/weir/limiter"
)

// The functions in this file read what other programs' files have for a duration or a rate, to say what to write here.

// otherUnit returns the unit here of a name elsewhere, in small letters; 0 if there is none.
func otherUnit(name string) (suffix string, d time.Duration) {
	if name != "s" && name != "ms" && name != "us" && name != "ns" {
		name = strings.TrimSuffix(name, "s")
	}
	switch name {
	case "ms", "msec", "milli", "millisecond":
		return "ms", time.Millisecond
	case "s", "sec", "second":
		return "s", time.Second
	case "m", "min", "minute":
		return "m", time.Minute
	case "h", "hr", "hour":
		return "h", time.Hour
	case "d", "day":
		return "d", day
	case "w", "wk", "week":
		return "w", 7 * day
	case "mo", "mon", "month":
		return "", 30 * day
	case "y", "yr", "year":
		return "", 365 * day
	}
	return "", 0
}

// Forms of other notations.
const (
	// otherDuration is a number and a unit in a duration; isoDuration is a duration of ISO 8601.
	otherDuration = `^[ ,]*(?:and )?([0-9]+)? *([a-z]+)[.,]?`
	isoDuration   = `^p(?:([0-9]+)w)?(?:([0-9]+)d)?(?:t(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?)?$`
	// otherRate is a rate, such as 10 requests per 30 seconds or 10r/s.
	otherRate = `^([0-9][0-9_,.]*(?:e[0-9]{1,2})?) ?(k|m)? ?(?:r|req|reqs|rps|requests?|times?|calls?|hits?)? ` +
		`?(?:/|\bper\b|\bevery\b|\bin\b|\ba\b|\bp(?:er)?-) ?(.+)$`
)

// groupsOf returns the groups of a form in a text, nil if it does not fit.
func groupsOf(form, s string) []string {
	re, err := regexp.Compile(form)
	if err != nil {
		return nil
	}
	return re.FindStringSubmatch(s)
}

// meantDuration returns the duration or the unit that a text of another notation means, empty if it is none.
func meantDuration(s string) string {
	if s = strings.ToLower(strings.TrimSpace(s)); len(s) > 64 {
		return ""
	}
	if m := groupsOf(isoDuration, s); m != nil && len(s) > 2 {
		out := ""
		for i, unit := range []string{"w", "d", "h", "m", "s"} {
			if m[i+1] != "" {
				out += m[i+1] + unit
			}
		}
		if _, bad := readDuration(out); bad {
			return ""
		}
		return out
	}
	out := ""
	for rest := s; rest != ""; {
		m := groupsOf(otherDuration, rest)
		if m == nil {
			return ""
		}
		suffix, d := otherUnit(m[2])
		n, err := strconv.ParseUint(m[1], 10, 20)
		switch {
		case d == 0, m[1] != "" && err != nil:
			return ""
		case m[1] == "" && rest == s && len(m[0]) == len(rest):
			return limiter.WindowName(d)
		case m[1] == "":
			return ""
		case suffix == "":
			out += strconv.FormatUint(n*uint64(d/day), 10) + "d"
		default:
			out += m[1] + suffix
		}
		rest = strings.TrimLeft(rest[len(m[0]):], " ")
	}
	if _, bad := readDuration(out); bad {
		return ""
	}
	return out
}

// shortDuration returns a duration in the largest unit of which it is a multiple.
func shortDuration(d time.Duration) string {
	for _, u := range []struct {
		d      time.Duration
		suffix string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if d%u.d == 0 {
			return strconv.FormatInt(int64(d/u.d), 10) + u.suffix
		}
	}
	return d.String()
}

// meantRate returns the limit in its short form that a text of another notation means, empty if it is none.
func meantRate(s string) string {
	m := groupsOf(otherRate, strings.ToLower(strings.TrimSpace(s)))
	if m == nil {
		return ""
	}
	per := strings.TrimSpace(m[3])
	if _, bad := duration(per); bad != "" {
		per = meantDuration(per)
	}
	if per == "" {
		return ""
	}
	count := strings.ReplaceAll(strings.ReplaceAll(m[1], "_", ""), ",", "")
	if strings.Count(m[1], ",") == 1 && len(m[1])-strings.IndexByte(m[1], ',') != 4 {
		return "" // a decimal comma, or a list
	}
	// The count is p/q units.
	digits, power, _ := strings.Cut(count, "e")
	whole, decimals, _ := strings.Cut(digits, ".")
	p, err := strconv.ParseUint(whole+decimals, 10, 53)
	zeros, _ := strconv.Atoi("0" + power)
	if err != nil || p == 0 || len(decimals) > 6 {
		return ""
	}
	zeros += map[string]int{"k": 3, "m": 6}[m[2]]
	q := uint64(1)
	for range decimals {
		q *= 10
	}
	for ; zeros > 0 && p < 1<<50; zeros-- {
		p *= 10
	}
	for _, d := range []uint64{2, 5} {
		for p%d == 0 && q%d == 0 {
			p, q = p/d, q/d
		}
	}
	if q > 1 {
		window, bad := duration(per)
		if bad != "" || window > 400*day/time.Duration(q) {
			return ""
		}
		per = shortDuration(window * time.Duration(q))
	}
	out := strconv.FormatUint(p, 10) + "/" + per
	if _, window, bad := readRate(out); bad != "" || window > limiter.MaxWindow || p > limiter.MaxUnits {
		return ""
	}
	return out
}

// badRate returns what is wrong with a limit in its short form, and what is probably meant.
func badRate(s, bad string) string {
	if several := strings.FieldsFunc(s, func(r rune) bool { return r == ';' || r == ',' || r == '|' }); len(several) > 1 {
		for i, one := range several {
			one = strings.TrimSpace(one)
			if _, _, odd := readRate(one); odd != "" {
				one = meantRate(one)
			}
			several[i] = one
		}
		if list := strings.Join(several, ", "); !strings.Contains(", "+list+",", ", ,") {
			return fmt.Sprintf("%s is several limits in one; did you mean a list, [%s]?", quote(s), list)
		}
	}
	if meant := meantRate(s); meant != "" {
		return fmt.Sprintf("%s is not a limit; did you mean %q?", quote(s), meant)
	}
	return bad
}

// windowText returns the field with the window of a limit.
func windowText(n *node, s *spec) string {
	if s.Calendar != limiter.CalendarNone {
		return "calendar: " + s.Calendar.String()
	}
	text := s.Window.String()
	if n.Kind == yamltree.Scalar {
		_, text, _ = strings.Cut(n.Text, "/")
	} else if v := n.At("window"); v != nil && v.Kind == yamltree.Scalar {
		text = v.Text
	}
	return "window: " + clip(strings.TrimSpace(text))
}

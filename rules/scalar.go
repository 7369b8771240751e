package rules

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// The functions in this file parse one value each. They return what is wrong with it,
// or "" if it is valid; the caller adds the position.

// integer parses a whole number in decimal digits, which underscores may separate.
func integer(s string) (int64, string) {
	digits := strings.TrimPrefix(s, "-")
	if digits == "" || digits[0] == '_' || digits[len(digits)-1] == '_' || strings.Contains(digits, "__") ||
		strings.Trim(digits, "0123456789_") != "" {
		return 0, fmt.Sprintf("%s is not a whole number", quote(s))
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
	if err != nil {
		return 0, fmt.Sprintf("%s is too large a number", quote(s))
	}
	return n, ""
}

// units parses a number of units from least to [limiter.MaxUnits].
func units(s string, least int64) (int64, string) {
	n, bad := integer(s)
	if bad == "" && (n < least || n > limiter.MaxUnits) {
		bad = fmt.Sprintf("%d is out of range: give %d to %d units", n, least, int64(limiter.MaxUnits))
	}
	return n, bad
}

// boolean parses true or false.
func boolean(n *node) (bool, string) {
	if !n.Quoted {
		switch n.Text {
		case "true", "True", "TRUE":
			return true, ""
		case "false", "False", "FALSE":
			return false, ""
		}
	}
	return false, fmt.Sprintf("%s is neither true nor false", quote(n.Text))
}

// thousandths parses a number from 0 to 1 with at most three decimals.
func thousandths(s string) (int, string) {
	whole, decimals, _ := strings.Cut(s, ".")
	if whole == "" && decimals == "" || strings.Trim(whole+decimals, "0123456789") != "" {
		return 0, fmt.Sprintf("%s is not a number from 0 to 1, such as 0.5", quote(s))
	}
	if len(decimals) > 3 {
		return 0, fmt.Sprintf("%s has more than three decimals", quote(s))
	}
	n, err := strconv.Atoi(whole + (decimals + "000")[:3])
	if err != nil || n > 1000 {
		return 0, fmt.Sprintf("%s is out of range: give 0 to 1", quote(s))
	}
	return n, ""
}

const (
	day     = 24 * time.Hour
	durText = "a unit (second, minute, hour, day, week, month, year) or a duration such as 15m, 1h30m or 2d"
)

// unitNames returns the windows that have a name.
func unitNames() []string {
	return []string{"second", "minute", "hour", "day", "week", "month", "year"}
}

func unit(name string) (time.Duration, bool) {
	i := slices.Index(unitNames(), name)
	if i < 0 {
		return 0, false
	}
	return [...]time.Duration{time.Second, time.Minute, time.Hour, day, 7 * day, 30 * day, 365 * day}[i], true
}

// duration parses the name of a unit, or a duration in Go's syntax with the additional
// units d (24 hours) and w (7 days).
func duration(s string) (time.Duration, string) {
	d, bad := readDuration(s)
	if bad {
		return 0, badDuration(s)
	}
	return d, ""
}

func readDuration(s string) (_ time.Duration, bad bool) {
	if d, ok := unit(s); ok {
		return d, false
	}
	if s == "0" {
		return 0, false
	}
	total, rest := time.Duration(0), s
	for rest != "" {
		n := len(rest) - len(strings.TrimLeft(rest, "0123456789."))
		u := len(rest) - n - len(strings.TrimLeft(rest[n:], "abcdefghijklmnopqrstuvwxyzµμ"))
		part, ok := durationPart(rest[:n], rest[n:n+u])
		if !ok || n == 0 || total > math.MaxInt64-part {
			return 0, true
		}
		total, rest = total+part, rest[n+u:]
	}
	if s == "" {
		return 0, true
	}
	return total, false
}

func durationPart(number, unit string) (time.Duration, bool) {
	times := time.Duration(1)
	switch unit {
	case "d":
		unit, times = "h", 24
	case "w":
		unit, times = "h", 7*24
	}
	d, err := time.ParseDuration(number + unit)
	if err != nil || d < 0 || d > math.MaxInt64/times {
		return 0, false
	}
	return d * times, true
}

func badDuration(s string) string {
	if n, bad := integer(s); bad == "" && s[0] != '-' {
		if n >= 1000 && n%1000 == 0 {
			return fmt.Sprintf("%s lacks a unit: write %s if these are milliseconds, or %ss for seconds", quote(s),
				shortDuration(time.Duration(min(n, int64(400*day/time.Millisecond)))*time.Millisecond), s)
		}
		return fmt.Sprintf("%s lacks a unit: write %ss for seconds, for example", quote(s), s)
	}
	if meant := meantDuration(s); meant != "" {
		return fmt.Sprintf("%s is not a duration; did you mean %q?", quote(s), meant)
	}
	if name := nearest(s, unitNames()); name != "" && len(s) > 2 {
		return fmt.Sprintf("%s is not a duration; did you mean %q?", quote(s), name)
	}
	return fmt.Sprintf("%s is not a duration: write %s", quote(s), durText)
}

// rate parses a limit in its short form, such as 5/second or 20/15m.
func rate(s string) (limit int64, window time.Duration, bad string) {
	if limit, window, bad = readRate(s); bad != "" {
		bad = badRate(s, bad)
	}
	return limit, window, bad
}

func readRate(s string) (limit int64, window time.Duration, bad string) {
	count, per, found := strings.Cut(s, "/")
	if !found {
		return 0, 0, fmt.Sprintf("%s is not a limit: write units per window, such as 5/second or 20/15m", quote(s))
	}
	if limit, bad = integer(strings.TrimSpace(count)); bad != "" {
		return 0, 0, bad
	}
	window, bad = duration(strings.TrimSpace(per))
	return limit, window, bad
}

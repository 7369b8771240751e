package rules

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/yamltree"
	"github.com/weirlimit/weir/limiter"
)

func TestInteger(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "7": 7, "-7": -7, "007": 7, "1_000_000": 1_000_000, "1_2_3": 123, "9223372036854775807": 1<<63 - 1,
		"-9223372036854775808": -1 << 63,
	} {
		if got, bad := integer(text); got != want || bad != "" {
			t.Errorf("%s: got %d, %q; want %d", text, got, bad, want)
		}
	}
	for text, want := range map[string]string{
		"":                     `"" is not a whole number`,
		"-":                    `"-" is not a whole number`,
		"+5":                   `"+5" is not a whole number`,
		"--5":                  `"--5" is not a whole number`,
		"5-":                   `"5-" is not a whole number`,
		"_5":                   `"_5" is not a whole number`,
		"5_":                   `"5_" is not a whole number`,
		"5__0":                 `"5__0" is not a whole number`,
		"1.5":                  `"1.5" is not a whole number`,
		"1e3":                  `"1e3" is not a whole number`,
		"0x10":                 `"0x10" is not a whole number`,
		" 5":                   `" 5" is not a whole number`,
		"٣":                    `"٣" is not a whole number`,
		"9223372036854775808":  `"9223372036854775808" is too large a number`,
		"-9223372036854775809": `"-9223372036854775809" is too large a number`,
	} {
		if _, bad := integer(text); bad != want {
			t.Errorf("%q: %q, want %q", text, bad, want)
		}
	}
}

func TestUnits(t *testing.T) {
	for _, test := range []struct {
		text  string
		least int64
		good  bool
	}{
		{"0", 0, true}, {"0", 1, false}, {"1", 1, true}, {"-1", 0, false},
		{strconv.Itoa(limiter.MaxUnits), 1, true}, {strconv.Itoa(limiter.MaxUnits + 1), 1, false}, {"many", 0, false},
	} {
		if _, bad := units(test.text, test.least); (bad == "") != test.good {
			t.Errorf("%s from %d: %q", test.text, test.least, bad)
		}
	}
}

func TestBoolean(t *testing.T) {
	for text, want := range map[string]bool{"true": true, "True": true, "TRUE": true, "false": false, "False": false,
		"FALSE": false} {
		if got, bad := boolean(&node{Kind: yamltree.Scalar, Text: text}); got != want || bad != "" {
			t.Errorf("%s: %t, %q", text, got, bad)
		}
		if _, bad := boolean(&node{Kind: yamltree.Scalar, Text: text, Quoted: true}); bad == "" {
			t.Errorf("%s in quotes is text", text)
		}
	}
	for _, text := range []string{"", "yes", "no", "on", "off", "1", "0", "tRUE", "y"} {
		_, bad := boolean(&node{Kind: yamltree.Scalar, Text: text})
		if bad != strconv.Quote(text)+" is neither true nor false" {
			t.Errorf("%s: %q", text, bad)
		}
	}
}

func TestThousandths(t *testing.T) {
	for n := range 1001 { // every weight there is, in its shortest form and padded
		text := strconv.FormatFloat(float64(n)/1000, 'f', -1, 64)
		padded := strconv.FormatFloat(float64(n)/1000, 'f', 3, 64)
		for _, s := range []string{text, padded, strings.TrimPrefix(padded, "0")} {
			if got, bad := thousandths(s); got != n || bad != "" {
				t.Errorf("%s: got %d, %q; want %d", s, got, bad, n)
			}
		}
	}
	for _, text := range []string{"", ".", "-0", "-1", "1.001", "2", "0.0000", "0.1234", "1e-1", "½", "0,5", "0.5.0",
		"99999999999999999999", "inf"} {
		if got, bad := thousandths(text); bad == "" {
			t.Errorf("%s: accepted as %d", text, got)
		}
	}
}

func TestDuration(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": day, "week": 7 * day, "month": 30 * day,
		"year": 365 * day,
		"0":    0, "0s": 0, "1ns": 1, "1us": 1000, "1µs": 1000, "1μs": 1000, "1ms": 1e6, "1s": 1e9, "1m": time.Minute,
		"1h": time.Hour,
		"1d": day, "1w": 7 * day, "1w2d3h4m5s6ms": 9*day + 3*time.Hour + 4*time.Minute + 5*time.Second + 6*time.Millisecond,
		"1.5s": 1500 * time.Millisecond, ".5s": 500 * time.Millisecond, "0.5d": 12 * time.Hour, "1.5w": 252 * time.Hour,
		"90s":     90 * time.Second,
		"106751d": 106751 * day,
	} {
		if got, bad := duration(text); got != want || bad != "" {
			t.Errorf("%s: got %v, %q; want %v", text, got, bad, want)
		}
	}
	for _, text := range []string{
		"", " ", "s", "5", "-5s", "+5s", "5 s", "1h 30m", "5S", "5x", "5days", "5mo", "1..5s", "1.5.5s", ".s", "106752d",
		"15251w",
		"9999999999999999999s", "106751d106751d", "second1", "1second", "Second", "seconds",
	} {
		if got, bad := duration(text); bad == "" {
			t.Errorf("%q: accepted as %v", text, got)
		}
	}
}

// Whatever Go prints as a duration is read as that duration.
func TestDurationReadsWhatGoWrites(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		want := time.Duration(rnd.Int64() >> rnd.IntN(60))
		if got, bad := duration(want.String()); got != want || bad != "" {
			t.Fatalf("%v: got %v, %q", want, got, bad)
		}
	}
}

// The name that a limit gets from its window is a window again: the same.
func TestWindowNamesAreWindows(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for range 2000 {
		want := time.Duration(1+rnd.Int64N(int64(limiter.MaxWindow/time.Microsecond))>>rnd.IntN(30)) * time.Microsecond
		if want < limiter.MinWindow {
			continue
		}
		name := limiter.WindowName(want)
		if got, bad := duration(name); got != want || bad != "" {
			t.Fatalf("%v is called %s, which is %v, %q", want, name, got, bad)
		}
	}
}

func TestRate(t *testing.T) {
	for text, want := range map[string]struct {
		limit  int64
		window time.Duration
	}{
		"5/second": {5, time.Second}, "20/15m": {20, 15 * time.Minute}, " 1_000 / day ": {1000, 24 * time.Hour},
		"0/1s": {0, time.Second}, "-1/1s": {-1, time.Second},
	} {
		if limit, window, bad := rate(text); limit != want.limit || window != want.window || bad != "" {
			t.Errorf("%s: got %d per %v, %q", text, limit, window, bad)
		}
	}
	for _, text := range []string{"", "/", "5", "5/", "/second", "second", "5/second/second", "5 per second",
		"five/second", "5.5/second"} {
		if limit, window, bad := rate(text); bad == "" {
			t.Errorf("%q: accepted as %d per %v", text, limit, window)
		}
	}
}

// Every enumeration has its names, and they are what choose accepts.
func TestChoose(t *testing.T) {
	var a limiter.Algorithm
	if got := len(namesOf[limiter.Algorithm]()); got != len(limiter.AlgorithmNames())+1 {
		t.Errorf("%d algorithms, want %d", got, len(limiter.AlgorithmNames())+1)
	}
	for i, name := range append(limiter.AlgorithmNames(), "concurrency") {
		if bad := choose(&node{Text: name}, "algorithm", &a); bad != "" || int(a) != i {
			t.Errorf("%s: %v, %q", name, a, bad)
		}
	}
	for _, name := range []string{"", "unknown", "GCRA", " gcra"} {
		if bad := choose(&node{Text: name}, "algorithm", &a); bad == "" {
			t.Errorf("%q: accepted", name)
		}
	}
}

// A value that is good for its option is good for a limit that uses it.
func TestOptionsAreCheckedWhereTheyStand(t *testing.T) {
	values := map[string][]string{
		"sub_windows": {"0", "1", "3600", "3601", "-1", "x"}, "weight": {"0", "1", "1.1"},
		"burst": {"0", "1", "9007199254740991", "9007199254740992"},
		"block": {"0", "1us", "1ns", "400d", "9601h", "minute", "-1s"}, "algorithm": {"gcra", "x"}, "align": {"epoch", "x"},
		"coverage": {"lenient", "x"}, "rounding": {"ceil", "x"}, "drip": {"interval", "x"}, "count_rejected": {"all", "x"},
		"zone": {"Europe/Berlin", "UTC", "x", "Local"}, "anchor_day": {"0", "1", "31", "32", "x"},
		"week_start": {"monday", "sunday", "x"}, "at": {"00:00", "06:30", "24:00", "6:30", "x"},
	}
	units := map[string]limiter.Calendar{
		"zone": limiter.CalendarMinute, "anchor_day": limiter.CalendarMonth, "week_start": limiter.CalendarWeek,
		"at": limiter.CalendarDay,
	}
	for _, o := range limitOptions() {
		if len(values[o.name]) == 0 {
			t.Errorf("no values to try for %s", o.name)
		}
		for _, v := range values[o.name] {
			s := limiter.Spec{Limit: 1 << 30, Window: time.Hour}
			if o.name == "burst" {
				s.Limit = 1 << 40 // else the largest burst takes too long to recover
			}
			if len(o.uses) > 0 {
				s.Algorithm = o.uses[0]
			}
			if s.Calendar = units[o.name]; o.calendar {
				s.Window = 0
			}
			bad := o.set(&s, &node{Kind: yamltree.Scalar, Text: v})
			if _, err := limiter.NewLimit(s); bad == "" && err != nil {
				t.Errorf("%s: %s is accepted, but no limit has it: %v", o.name, v, err)
			}
		}
	}
}

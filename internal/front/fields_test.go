package front

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
)

// said is one limit of a decision that a test defines.
type said struct {
	rule, limit string
	spec        limiter.Spec
	remaining   uint64
	reset       limiter.Tick
	denies      bool
	shadow      bool
	never       bool
	blocked     bool
}

// decision makes a decision of limits, in the way of a decider.
func decision(t testing.TB, limits ...said) *limiter.Decision {
	t.Helper()
	d := new(limiter.Decision)
	d.Clear()
	d.Grow(len(limits))
	for i, s := range limits {
		spec := s.spec
		spec.Name = s.limit
		if spec.Limit == 0 {
			spec.Limit = 100
		}
		if spec.Window == 0 {
			spec.Window = time.Minute
		}
		l := limitertest.Limit(t, spec)
		rule := &limiter.Rule{Name: s.rule, Limits: []*limiter.Limit{l}, Shadow: s.shadow}
		*d.Limit(i) = limiter.LimitDecision{
			Rule: rule, Limit: l, Allowed: !s.denies, Never: s.never, Blocked: s.blocked,
			Remaining: s.remaining, ResetAfter: s.reset.Duration(), Cost: 1,
		}
	}
	return d
}

func TestFields(t *testing.T) {
	for _, c := range []struct {
		name          string
		limits        []said
		policy, state string
	}{
		{"none", nil, "", ""},
		{
			"one", []said{{rule: "towns", limit: "minute", remaining: 50, reset: 30 * limiter.Second}},
			`"towns/minute";q=100;w=60`, `"towns/minute";r=50;t=30`,
		},
		{
			"two", []said{
				{rule: "towns", limit: "second", spec: limiter.Spec{Limit: 5, Window: time.Second}, remaining: 4, reset: 1},
				{rule: "towns", limit: "hour", spec: limiter.Spec{Limit: 1000, Window: time.Hour}, remaining: 999,
					reset: limiter.Hour + 1},
			},
			`"towns/second";q=5;w=1, "towns/hour";q=1000;w=3600`, `"towns/second";r=4;t=1, "towns/hour";r=999;t=3601`,
		},
		{
			"windows with parts of a second", []said{
				{rule: "a", limit: "x", spec: limiter.Spec{Window: 200 * time.Millisecond}},
				{rule: "a", limit: "y", spec: limiter.Spec{Window: 1500 * time.Millisecond}},
			},
			`"a/x";q=100;w=1, "a/y";q=100;w=2`, `"a/x";r=0;t=0, "a/y";r=0;t=0`,
		},
		{
			"the nearest of several counters", []said{
				{rule: "a", limit: "x", remaining: 7, reset: 5 * limiter.Second},
				{rule: "a", limit: "y", remaining: 1, reset: 5 * limiter.Second},
				{rule: "a", limit: "x", remaining: 3, reset: 2 * limiter.Second},
				{rule: "a", limit: "x", remaining: 3, reset: 1 * limiter.Second},
			},
			`"a/x";q=100;w=60, "a/y";q=100;w=60`, `"a/x";r=3;t=2, "a/y";r=1;t=5`,
		},
		{
			"shadow limits", []said{
				{rule: "trial", limit: "x", shadow: true, denies: true},
				{rule: "a", limit: "x", remaining: 3},
			},
			`"a/x";q=100;w=60`, `"a/x";r=3;t=0`,
		},
		{
			"names", []said{{rule: `q"b\s`, limit: "züri"}},
			`"q\"b\\s/z%C3%BCri";q=100;w=60`, `"q\"b\\s/z%C3%BCri";r=0;t=0`,
		},
		{
			"the largest numbers", []said{{
				rule: "a", limit: "x", remaining: limiter.MaxUnits, reset: 1 << 52,
				spec: limiter.Spec{Limit: limiter.MaxUnits, Window: limiter.MaxWindow},
			}},
			`"a/x";q=999999999999999;w=34560000`, `"a/x";r=999999999999999;t=4503599628`,
		},
	} {
		limits := Limits(nil, decision(t, c.limits...))
		if got := string(AppendPolicy(nil, limits)); got != c.policy {
			t.Errorf("%s: policy %s, want %s", c.name, got, c.policy)
		}
		if got := string(AppendState(nil, limits)); got != c.state {
			t.Errorf("%s: state %s, want %s", c.name, got, c.state)
		}
	}
}

// The fields of many limits with long names leave room in 4 KiB for the rest of a header, which is what proxies read.
func TestManyLimitsAreShort(t *testing.T) {
	for n := 1; n <= 32; n++ {
		var list []said
		for i := range n {
			list = append(list, said{rule: strings.Repeat("\u00fc", 31) + fmt.Sprint(i), limit: "hour",
				remaining: uint64(99 - i)})
		}
		h := map[string][]string{}
		AddLists(h, Limits(nil, decision(t, list...)), nil)
		state, policy := h[fieldState][0], h[fieldPolicy][0]
		if size := len(state) + len(policy); size > 3<<10 {
			t.Fatalf("%d limits have %d bytes", n, size)
		}
		want := n
		if n > 7 { // the last one has the least left
			want = 1
		}
		states, err := readList(state)
		policies, bad := readList(policy)
		if err != nil || bad != nil || len(states) != want || len(policies) != want ||
			states[want-1].parameters["r"] != int64(100-n) || states[want-1].name != policies[want-1].name {
			t.Errorf("%d limits are told as %s and %s: %v, %v", n, policy, state, err, bad)
		}
	}
}

func TestNearest(t *testing.T) {
	if Nearest(nil) != nil {
		t.Error("there is none")
	}
	d := decision(t,
		said{rule: "a", limit: "x", remaining: 2},
		said{rule: "a", limit: "y", remaining: 1, reset: 1},
		said{rule: "a", limit: "z", remaining: 1, reset: 2},
	)
	if got := Nearest(Limits(nil, d)).FullName(); got != "a/z" {
		t.Errorf("got %s", got)
	}
}

// The table is full: a new key has no counter that would recover, and is denied until there may be room. No field says
// that it may ask again at once.
func TestResetOfANewKeyWithoutRoom(t *testing.T) {
	d := decision(t, said{rule: "api", limit: "minute", denies: true})
	l := d.Limit(0)
	l.Overflow, l.RetryAfter = true, 90*time.Second
	h := map[string][]string{}
	AddLists(h, []*limiter.LimitDecision{l}, nil)
	if got, three := h["Ratelimit"], ResetSeconds(l); len(got) != 1 || got[0] != `"api/minute";r=0;t=90` || three != "90" {
		t.Errorf("the fields are %v and %s", h, three)
	}
	l.Allowed = true // a limit beside it, in which the check was not charged
	if got := ResetSeconds(l); got != "0" {
		t.Errorf("a limit that allows is reset in %s s", got)
	}
}

func TestViolated(t *testing.T) {
	d := decision(t,
		said{rule: "a", limit: "x", denies: true},
		said{rule: "a", limit: "y"},
		said{rule: "a", limit: "x", denies: true},
		said{rule: "s", limit: "x", denies: true, shadow: true},
		said{rule: "b", limit: "x", denies: true},
	)
	if got, want := fmt.Sprint(Violated(d)), "[a/x b/x]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestRetryAfterSeconds(t *testing.T) {
	for _, c := range []struct {
		d    limiter.Decision
		want string
	}{
		{limiter.Decision{Allowed: true}, "0 false"},
		{limiter.Decision{Never: true}, "0 false"},
		{limiter.Decision{}, "1 true"},
		{limiter.Decision{RetryAfter: 1 * time.Microsecond}, "1 true"},
		{limiter.Decision{RetryAfter: limiter.Second.Duration()}, "1 true"},
		{limiter.Decision{RetryAfter: (limiter.Second + 1).Duration()}, "2 true"},
	} {
		s, ok := RetryAfterSeconds(&c.d)
		if got := fmt.Sprint(s, ok); got != c.want {
			t.Errorf("%v: got %s, want %s", c.d.RetryAfter, got, c.want)
		}
	}
}

// FuzzFields reads back, by the grammar of structured fields, what was written
// for limits of any name, and finds their numbers.
func FuzzFields(f *testing.F) {
	f.Add("towns", "minute", uint64(100), uint64(50), int64(30e6))
	f.Add("towns", "bytes", uint64(limiter.MaxUnits), uint64(1e15), int64(0))
	f.Add(`a"\`, "z\u00fcri\x00", uint64(1), uint64(0), int64(0))
	f.Fuzz(func(t *testing.T, rule, limit string, units, remaining uint64, reset int64) {
		if len(limit) > limiter.MaxNameBytes || limit == "" || units == 0 || max(units, remaining) > limiter.MaxUnits ||
			reset < 0 || reset > 1<<52 {
			return
		}
		spec := limiter.Spec{Limit: int64(units)}
		d := decision(t, said{rule: rule, limit: limit, spec: spec, remaining: remaining, reset: limiter.Tick(reset)},
			said{rule: rule + "2", limit: limit, spec: spec, remaining: remaining})
		limits := Limits(nil, d)
		for field, want := range map[string]map[string]int64{
			string(AppendPolicy(nil, limits)): {"q": int64(min(units, maxInteger)), "w": 60},
			string(AppendState(nil, limits)): {"r": int64(min(remaining, maxInteger)),
				"t": limiter.Seconds(limiter.Tick(reset).Duration())},
		} {
			items, err := readList(field)
			if err != nil {
				t.Fatalf("%s: %v", field, err)
			}
			if len(items) != 2 || !reflect.DeepEqual(items[0].parameters, want) {
				t.Fatalf("%s: read as %v, want %v", field, items, want)
			}
			if name := rule + "/" + limit; isPlain(name) && items[0].name != name {
				t.Fatalf("%s: the name reads as %q, want %q", field, items[0].name, name)
			}
		}
	})
}

func isPlain(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// item is a member of a list of structured fields that is a string with
// parameters that are integers.
type item struct {
	name       string
	parameters map[string]int64
}

// readList reads such a list by sections 4.2.1 to 4.2.5 of RFC 9651, and nothing
// more lenient.
func readList(s string) (out []item, err error) {
	for {
		it := item{parameters: map[string]int64{}}
		if it.name, s, err = readString(s); err != nil {
			return nil, err
		}
		for strings.HasPrefix(s, ";") {
			var key string
			var n int64
			if key, n, s, err = readParameter(s[1:]); err != nil {
				return nil, err
			}
			it.parameters[key] = n
		}
		out = append(out, it)
		s = strings.TrimLeft(s, " \t")
		if s == "" {
			return out, nil
		}
		if s[0] != ',' {
			return nil, fmt.Errorf("%q where a comma should be", s)
		}
		if s = strings.TrimLeft(s[1:], " \t"); s == "" {
			return nil, fmt.Errorf("a comma at the end")
		}
	}
}

func readString(s string) (value, rest string, err error) {
	if s == "" || s[0] != '"' {
		return "", "", fmt.Errorf("%q is no string", s)
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\':
			if i++; i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", "", fmt.Errorf("a bad escape in %q", s)
			}
			b.WriteByte(s[i])
		case c == '"':
			return b.String(), s[i+1:], nil
		case c < 0x20 || c > 0x7e:
			return "", "", fmt.Errorf("byte %#x in a string", c)
		default:
			b.WriteByte(c)
		}
	}
	return "", "", fmt.Errorf("%q does not end", s)
}

func readParameter(s string) (key string, n int64, rest string, err error) {
	i := 0
	for i < len(s) && s[i] >= 'a' && s[i] <= 'z' {
		i++
	}
	key, s = s[:i], s[i:]
	if key == "" || !strings.HasPrefix(s, "=") {
		return "", 0, "", fmt.Errorf("%q is no parameter", s)
	}
	for i = 1; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
		n = 10*n + int64(s[i]-'0')
	}
	if i == 1 || i > 16 {
		return "", 0, "", fmt.Errorf("%q has %d digits", s, i-1)
	}
	return key, n, s[i:], nil
}

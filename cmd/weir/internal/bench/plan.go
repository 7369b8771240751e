// Package bench compares deciders: a node's table, a cluster of three nodes, Redis, and
// a node in another process. All get the same rules and keys, in turn. A run whose
// premises do not hold returns an error and no figures.
package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// Mode is a kind of decider.
type Mode string

// The modes.
const (
	// Table is one node in this process.
	Table Mode = "table"
	// Cluster is three nodes in this process, connected over loopback, which keep
	// copies; each caller asks one of them.
	Cluster Mode = "cluster"
	// Redis is one node in this process that counts in a Redis.
	Redis Mode = "redis"
	// Server is a node in another process.
	Server Mode = "server"
)

// Modes returns all modes, in the order in which they are shown.
func Modes() []Mode { return []Mode{Table, Cluster, Redis, Server} }

// Shape is the kind of limits in the rules.
type Shape string

// The shapes.
const (
	// One is one window for each key.
	One Shape = "one"
	// Three is three windows for each key.
	Three Shape = "three"
	// Log is one sliding log for each key.
	Log Shape = "log"
)

// Shapes returns all shapes, in the order in which they are shown.
func Shapes() []Shape { return []Shape{One, Three, Log} }

// limits returns the number of counters of a key.
func (s Shape) limits() int {
	if s == Three {
		return 3
	}
	return 1
}

// Bounds of a run.
const (
	// MaxKeys bounds Config.Keys: a node must hold three windows of each.
	MaxKeys    = 1_000_000
	MaxCallers = 1024
	MaxRounds  = 100
	// MaxMeasured bounds Rounds times Duration. Four modes then take less time than the
	// shortest window that must not end during the run.
	MaxMeasured = 3 * time.Minute
)

// Config is what is measured.
type Config struct {
	// Modes and Shapes to measure, at least one of each.
	Modes  []Mode
	Shapes []Shape
	// Keys is the number of keys, 2 to [MaxKeys]. Half of them are exhausted before the
	// measurement.
	Keys int
	// Callers is the number of goroutines, 1 to [MaxCallers]. Each sends a check as
	// soon as the previous one is answered.
	Callers int
	// Rounds is the number of turns of each mode, 1 to [MaxRounds], and Duration the
	// length of a turn; see [MaxMeasured].
	Rounds   int
	Duration time.Duration
	// RedisAddr is the host:port of a Redis without a password, or the path of its
	// socket. The mode Redis requires it.
	RedisAddr string
	// Server asks a node. The mode Server requires it. It is called from many
	// goroutines. The node must have the rules of [Rules].
	Server func(ctx context.Context, r *limiter.Request) (limiter.Answer, error)
	// Progress receives a description of the present step; default none.
	Progress func(what string)
}

// Validate returns an error that names all problems of a configuration.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	errs = append(errs, known("mode", c.Modes, Modes()), known("shape", c.Shapes, Shapes()))
	if c.Keys < 2 || c.Keys > MaxKeys {
		bad("%d keys are out of range: give 2 to %d", c.Keys, MaxKeys)
	}
	if c.Callers < 1 || c.Callers > MaxCallers {
		bad("%d callers are out of range: give 1 to %d", c.Callers, MaxCallers)
	}
	if c.Rounds < 1 || c.Rounds > MaxRounds {
		bad("%d rounds are out of range: give 1 to %d", c.Rounds, MaxRounds)
	} else if c.Duration < time.Millisecond || c.Duration > MaxMeasured/time.Duration(c.Rounds) {
		bad("a duration of %v is out of range: give 1ms to %v for each of %d rounds", c.Duration,
			MaxMeasured/time.Duration(c.Rounds), c.Rounds)
	}
	if slices.Contains(c.Modes, Redis) && c.RedisAddr == "" {
		bad("the mode redis needs the address of a Redis")
	}
	if slices.Contains(c.Modes, Server) && c.Server == nil {
		bad("the mode server needs the address of a node")
	}
	return errors.Join(errs...)
}

// known returns an error for names that do not exist or occur twice.
func known[T ~string](kind string, given, all []T) error {
	var names []string
	for _, n := range all {
		names = append(names, string(n))
	}
	if len(given) == 0 {
		return fmt.Errorf("no %s is given: give some of %s", kind, strings.Join(names, ","))
	}
	for i, g := range given {
		if !slices.Contains(all, g) {
			return fmt.Errorf("there is no %s %q: give some of %s", kind, g, strings.Join(names, ","))
		}
		if slices.Contains(given[:i], g) {
			return fmt.Errorf("the %s %s is given twice", kind, g)
		}
	}
	return nil
}

// Rules returns the rules file for all shapes. Each shape has two rules: under "open"
// nothing is ever denied, and under "spent" a key is exhausted by its first check. The
// windows of spent keys, and those of open ones except for the log, start with the
// first check and outlast every run. The log of an open key has a window of one second;
// otherwise it would grow with the speed of the mode.
func Rules() string {
	const window = "algorithm: fixed_window, align: first_hit"
	var b strings.Builder
	b.WriteString("version: 1\nrules:\n")
	rule := func(s Shape, kind string, limits ...string) {
		fmt.Fprintf(&b, "  - name: %s\n    match: {path: \"^%s/?$\"}\n    key: [path, user]\n    limits:\n",
			ruleName(s, kind), path(s, kind))
		for i, l := range limits {
			fmt.Fprintf(&b, "      - {name: l%d, %s}\n", i+1, l)
		}
	}
	for _, k := range []struct {
		kind  string
		limit uint64
	}{{open, limiter.NarrowUnits - 1}, {spent, 1}} {
		rule(One, k.kind, fmt.Sprintf("limit: %d, window: 1h, %s", k.limit, window))
		rule(Three, k.kind,
			fmt.Sprintf("limit: %d, window: 20m, %s", k.limit, window),
			fmt.Sprintf("limit: %d, window: 40m, %s", k.limit, window),
			fmt.Sprintf("limit: %d, window: 1h, %s", k.limit, window))
	}
	rule(Log, open, fmt.Sprintf("limit: %d, window: 1s, algorithm: sliding_log", limiter.MaxLogLimit))
	rule(Log, spent, "limit: 1, window: 1h, algorithm: sliding_log")
	return b.String()
}

// The kinds of keys.
const (
	open  = "open"
	spent = "spent"
)

func ruleName(s Shape, kind string) string { return "bench-" + string(s) + "-" + kind }
func path(s Shape, kind string) string     { return "/bench/" + string(s) + "/" + kind }

// isSpent reports whether key n is exhausted. Keys are checked in random order, so a
// processor cannot predict the result.
func isSpent(n uint32) bool { return n&1 == 1 }

func machine() Machine {
	return Machine{Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.GOMAXPROCS(0)}
}

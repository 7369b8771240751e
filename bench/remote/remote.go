// Package remote measures limiters that are asked over a connection, side by side:
// what decides in Redis, and a Weir node.
package remote

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/loadgen"
)

// Limit is how many checks of a key are allowed in the shortest window, so that a
// run exhausts no key but those that are asked for to that end. The windows of
// those that have three are 1 h, 6 h and 24 h; one is 24 h.
const Limit = 1000

// windows are the three, and how much more than Limit the longer ones allow.
var windows = [3]struct {
	limit int
	long  time.Duration
}{{Limit, time.Hour}, {2 * Limit, 6 * time.Hour}, {4 * Limit, 24 * time.Hour}}

const (
	paths, users = 1000, 100
	// Keys is how many keys are asked for, drawn alike.
	Keys = paths * users
	// sampled keys are exhausted after a run, to see that each was charged as often
	// as it was asked for.
	sampled = 3
)

// Config says where things are.
type Config struct {
	// Redis is the address of a Redis, host:port or the path of a socket, whose keys
	// may be added to and that nobody else uses. Server is the gRPC address of a
	// Weir node that has [Rules].
	Redis, Server string
}

// Contender is a way to limit rates over a connection.
type Contender struct {
	// Name is what it is called in results, What says what it does.
	Name, What string
	// Workers is how many goroutines ask, Batch how many checks each sends at a time.
	Workers, Batch int
	// slack is how many units a key may have got back during a run.
	slack int
	open  func(ctx context.Context, c Config, run string) (asker, error)
}

// asker asks for checks of some keys, and reports for each whether it was allowed.
type asker interface {
	// worker returns what one goroutine asks with.
	worker() (func(ctx context.Context, keys []int, allowed []bool) error, error)
	close() error
}

// Speed is what a run found.
type Speed struct {
	Checks int
	Spent  time.Duration
}

// PerSecond returns the checks per second.
func (s Speed) PerSecond() float64 { return float64(s.Checks) / s.Spent.Seconds() }

// path and user name key n in one run.
func path(n int) string { return fmt.Sprintf("/api/resource/%05d", n%paths) }

func user(run string, n int) string { return run + fmt.Sprintf("%03d", n/paths) }

// joined is key n in one piece.
func joined(run string, n int) string { return path(n) + ":" + user(run, n) }

// Measure has a contender asked for so long. It is an error, and no figure, if a
// check is denied, or a key was charged otherwise than it was asked for.
func Measure(ctx context.Context, c Contender, at Config, long time.Duration) (out Speed, err error) {
	run := fmt.Sprintf("%08x", rand.Uint32())
	a, err := c.open(ctx, at, run)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	asked := make([]atomic.Int32, Keys)
	calls := make([]loadgen.Call, c.Workers)
	var checks atomic.Int64
	for w := range calls {
		ask, err := a.worker()
		if err != nil {
			return out, err
		}
		draw := rand.New(rand.NewPCG(uint64(w), 1))
		keys, allowed := make([]int, c.Batch), make([]bool, c.Batch)
		calls[w] = func(ctx context.Context, clock loadgen.Clock, _ time.Duration) (time.Duration, error) {
			for i := range keys {
				keys[i] = draw.IntN(Keys)
				asked[keys[i]].Add(1)
			}
			if err := ask(ctx, keys, allowed); err != nil {
				return 0, err
			}
			for i, ok := range allowed {
				if !ok {
					return 0, fmt.Errorf("%s denied key %d, asked for %d times", c.Name, keys[i], asked[keys[i]].Load())
				}
			}
			checks.Add(int64(c.Batch))
			return clock.Now(), nil
		}
	}
	done, err := loadgen.Plan{Long: long}.Run(ctx, calls)
	if err != nil {
		return out, err
	}
	out.Spent, out.Checks = done.Spent, int(checks.Load())
	return out, verify(ctx, c, a, asked)
}

// verify exhausts some keys.
func verify(ctx context.Context, c Contender, a asker, asked []atomic.Int32) error {
	ask, err := a.worker()
	if err != nil {
		return err
	}
	for k := range sampled {
		n, more := k*Keys/sampled, 0
		for {
			var allowed [1]bool
			if err := ask(ctx, []int{n}, allowed[:]); err != nil {
				return err
			}
			if !allowed[0] {
				break
			}
			if more++; more > 2*Limit {
				break
			}
		}
		if got := more + int(asked[n].Load()); got < Limit || got > Limit+c.slack {
			return fmt.Errorf("%s allowed key %d %d times, where its limit is %d", c.Name, n, got, Limit)
		}
	}
	return nil
}

// Rules are what a node needs, a rules file.
func Rules() string {
	text := "version: 1\nrules:\n"
	for i := range 8 {
		text += "  - {name: other-" + strconv.Itoa(i) + ", match: {path: \"^/v" + strconv.Itoa(i) +
			"/(items|orders)/[0-9]+$\"}, limits: [5/second]}\n"
	}
	for _, r := range []struct{ name, algorithm, path string }{
		{"log3", "sliding_log", "^/log/.*[0-9]$"}, {"counter3", "sliding_counter", "^/api/.*[0-9]$"},
	} {
		text += "  - name: " + r.name + "\n    match: {path: \"" + r.path + "\"}\n    limits:\n"
		for _, w := range windows {
			text += fmt.Sprintf("      - {limit: %d, window: %v, algorithm: %s}\n", w.limit, w.long, r.algorithm)
		}
	}
	return text
}

package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// Bounds of the verification after a point. With many keys, almost none reaches its
// limit during a run, so the answers alone would not distinguish a node that never
// denies from a correct one.
const (
	maxPeeked    = 10_000 // keys
	maxExhausted = 50     // keys, each asked for at most limit+2 times
	lookWithin   = 5 * time.Second
)

// Limits is the verification of the limited keys, in the run and after it: some are
// then peeked at, and a few are checked until they must be denied.
type Limits struct {
	// Hit is how many limited keys were checked in the run; Reached is how many of them
	// more often than their limit.
	Hit     int `json:"hit"`
	Reached int `json:"reached"`
	// Peeked keys must have remaining what the run was not allowed; Unequal of them did
	// not. Low of these had less: charges that no answer tells of, such as of a check that one
	// node charged and did not answer in time, and another one answered. The others had more:
	// charges were lost.
	Peeked  int `json:"peeked"`
	Unequal int `json:"unequal"`
	Low     int `json:"low"`
	// Exhausted keys must admit exactly that, and then no more; Missed of them did not.
	Exhausted int `json:"exhausted"`
	Missed    int `json:"missed"`
	// Example describes a wrong key. Why is why not all keys could be verified.
	Example string `json:"example,omitempty"`
	Why     string `json:"why,omitempty"`
}

// Wrong returns what is wrong with the limits, nil if nothing is.
func (l *Limits) Wrong() error {
	var errs []error
	if l.Unequal+l.Missed > 0 {
		errs = append(errs,
			fmt.Errorf("counters are wrong: of %d keys that were peeked at after the run, %d had less left than expected "+
				"(charged more often than answered) and %d had more left (charges were lost, as up to 5 %% of a limit may be "+
				"when an heir takes over); of %d keys that were checked until denied, %d allowed too many or too few checks; for "+
				"example, %s",
				l.Peeked, l.Low, l.Unequal-l.Low, l.Exhausted, l.Missed, l.Example))
	}
	if l.Why != "" {
		errs = append(errs, fmt.Errorf("some counters could not be read after the run: %s", l.Why))
	}
	return errors.Join(errs...)
}

// Tested reports whether any key was checked beyond its limit.
func (l *Limits) Tested() bool { return l.Reached > 0 || l.Exhausted > 0 }

// wrong counts a wrong key and records it as the example.
func (l *Limits) wrong(count *int, format string, args ...any) {
	if *count++; l.Example == "" {
		l.Example = fmt.Sprintf(format, args...)
	}
}

// left returns how many checks of limited key n must still be allowed. It is a range if
// some checks may or may not have been charged, or may have been charged twice.
func (l *ledger) left(n uint32) (least, most int) {
	most = limit - int(min(l.allowed[n].Load(), limit))
	return max(0, most-int(l.open[n].Load()+l.twice[n].Load())), most
}

// hit returns the limited keys that were checked, and how many of them beyond their
// limit.
func (l *ledger) hit() (all []uint32, reached int) {
	for i := range l.asked {
		n := uint32(i)
		asked := l.asked[i].Load()
		if asked == 0 || !l.keys.isLimited(n) {
			continue
		}
		if all = append(all, n); asked > limit {
			reached++
		}
	}
	return all, reached
}

// sample returns up to n elements of a list, evenly spaced.
func sample(list []uint32, n int) []uint32 {
	if len(list) <= n {
		return list
	}
	out := make([]uint32, n)
	for i := range out {
		out[i] = list[i*len(list)/n]
	}
	return out
}

// look verifies the limited keys when all checks have been answered. It uses the
// servers in turn, whichever owns the key.
func (l *ledger) look(ctx context.Context, c *Config) (seen Limits) {
	all, reached := l.hit()
	seen.Hit, seen.Reached = len(all), reached
	looking, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	if err := l.lookAt(looking, c, all, &seen); err != nil && looking.Err() == nil {
		seen.Why = err.Error()
	} else if len(all) > 0 && seen.Peeked == 0 && seen.Exhausted == 0 {
		seen.Why = fmt.Sprintf("nothing was answered by who counts within %v", lookWithin)
	}
	return seen
}

func (l *ledger) lookAt(ctx context.Context, c *Config, all []uint32, seen *Limits) (err error) {
	if len(all) == 0 {
		return nil
	}
	nodes := make([]wire, len(c.Servers))
	for i, server := range c.Servers {
		conn, err := c.dial(server)
		if err != nil {
			return err
		}
		nodes[i] = wire{server, conn, weirv1.NewLimiterClient(conn)}
		defer func() { err = errors.Join(err, conn.Close()) }()
	}
	peeked := sample(all, maxPeeked)
	for i := 0; i < len(peeked); i += MaxBatch {
		if err := l.peek(ctx, &nodes[i/MaxBatch%len(nodes)], peeked[i:min(i+MaxBatch, len(peeked))], seen); err != nil {
			return err
		}
	}
	for i, n := range sample(all, maxExhausted) {
		if err := l.exhaust(ctx, &nodes[i%len(nodes)], n, seen); err != nil {
			return err
		}
	}
	return nil
}

// peek verifies what keys have remaining.
func (l *ledger) peek(ctx context.Context, w *wire, some []uint32, seen *Limits) error {
	decisions, err := l.askAll(ctx, w, some, true)
	if err != nil {
		return err
	}
	for i, d := range decisions {
		if len(d.GetLimits()) == 0 || byPolicy(d) {
			continue // the owner could not be reached
		}
		seen.Peeked++
		least, most := l.left(some[i])
		if left := int(d.GetLimits()[0].GetRemaining()); left < least || left > most {
			if left < least {
				seen.Low++
			}
			seen.wrong(&seen.Unequal, "key %s has %d left of %d, and should have %s", d.GetLimits()[0].GetKey(), left, limit,
				between(uint64(least), uint64(most)))
		}
	}
	return nil
}

// exhaust checks a key until it must be denied, and once more.
func (l *ledger) exhaust(ctx context.Context, w *wire, n uint32, seen *Limits) error {
	least, most := l.left(n)
	same := slices.Repeat([]uint32{n}, most+2)
	decisions, err := l.askAll(ctx, w, same, false)
	if err != nil {
		return err
	}
	got := 0
	for _, d := range decisions {
		if d == nil || byPolicy(d) {
			return nil // the owner could not be reached
		}
		if limiter.Source(d.GetSource()) == limiter.SourceHeir {
			least = max(0, least-1) // the owner may have charged it, too
		}
		if d.GetAllowed() {
			got++
		}
	}
	seen.Exhausted++
	if got < least || got > most {
		seen.wrong(&seen.Missed, "key %s%s was allowed %d of %d checks more, and should have been %s",
			l.keys.paths[int(n)%len(l.keys.paths)],
			":"+l.keys.users[int(n)/len(l.keys.paths)], got, len(same), between(uint64(least), uint64(most)))
	}
	return nil
}

func byPolicy(d *weirv1.CheckResponse) bool { return limiter.Source(d.GetSource()).ByPolicy() }

// askAll checks keys in one call. A check that failed has no decision.
func (l *ledger) askAll(ctx context.Context, w *wire, some []uint32, peek bool) ([]*weirv1.CheckResponse, error) {
	m := &weirv1.CheckBatchRequest{Checks: make([]*weirv1.CheckRequest, len(some))}
	var r limiter.Request
	for i, n := range some {
		l.keys.request(&r, n)
		m.Checks[i] = weirwire.NewCheckRequest(&r, peek)
	}
	got, err := w.api.CheckBatch(ctx, m)
	if err != nil {
		return nil, w.failed(err)
	}
	if len(got.GetResults()) != len(some) {
		return nil, fmt.Errorf("node %s answered %d checks of %d", w.server, len(got.GetResults()), len(some))
	}
	out := make([]*weirv1.CheckResponse, len(some))
	for i, result := range got.GetResults() {
		out[i] = result.GetDecision()
	}
	return out, nil
}

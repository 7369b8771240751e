package resp

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// Keys that clients name with a limit of their own: those of CL.THROTTLE and of scripts.
// All limits have one name, so a key has one counter, whatever its limits are, as it has
// one value in Redis; and a key can be deleted without its limit being known.

// limitName is the name of all limits that come with a command.
const limitName = "gcra"

// maxKey is the longest key, in bytes, that is its counter's name; of a longer one it is
// the begin and a hash. A key of the node has at most 256 bytes.
const maxKey = 160

func counterName(key string) string {
	if len(key) <= maxKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return key[:maxKey-2*len(sum)] + hex.EncodeToString(sum[:])
}

// rate is a limit of a command: units in a period, and how many fit at once; 0 for a window of the first charge.
type rate struct {
	units, burst int64
	period       time.Duration
}

func (r rate) spec() limiter.Spec {
	if r.burst == 0 {
		return limiter.Spec{
			Name: windowName, Algorithm: limiter.FixedWindow, Limit: r.units, Window: r.period, Align: limiter.AlignFirstHit,
		}
	}
	return limiter.Spec{Name: limitName, Algorithm: limiter.GCRA, Limit: r.units, Window: r.period, Burst: r.burst}
}

// interval returns the time for one unit, in seconds.
func (r rate) interval() float64 { return r.period.Seconds() / float64(r.units) }

// above returns for how long what a key has used is more than the burst, as a look finds it: one that was charged under
// a larger burst. The wait of a look is that for one unit, and so longer by what one takes to leak. That is not the
// interval if the key leaks by another number still: then it is a part of the time until the key is as new.
func (r rate) above(l *limiter.LimitDecision) time.Duration {
	one := time.Duration(float64(r.period) / float64(r.units))
	if r.burst > 1 {
		one = max(one, (l.ResetAfter-l.RetryAfter)/time.Duration(r.burst-1))
	}
	if wait := l.RetryAfter - one; wait > limiter.TickDuration { // both are rounded to ticks
		return wait
	}
	return 0
}

// rates makes each limit once, up to a bound. The zero value is empty.
type rates struct {
	mu   sync.RWMutex
	made map[rate]*limiter.Limit
}

// maxRates bounds the limits that are kept; further ones are made for each command.
const maxRates = 4096

func (r *rates) of(k rate) (*limiter.Limit, error) {
	r.mu.RLock()
	have := r.made[k]
	r.mu.RUnlock()
	if have != nil {
		return have, nil
	}
	out, err := limiter.NewLimit(k.spec())
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.made == nil {
		r.made = make(map[rate]*limiter.Limit)
	}
	if len(r.made) < maxRates {
		r.made[k] = out
	}
	return out, nil
}

// throttle reads the arguments of CL.THROTTLE after its name.
func throttle(args []string) (key string, r rate, cost int64, err error) {
	if len(args) < 4 || len(args) > 5 {
		return "", rate{}, 0, usageError("CL.THROTTLE <key> <max_burst> <count per period> <period> [<quantity>]")
	}
	numbers := [4]int64{3: 1}
	for i, arg := range args[1:] {
		if numbers[i], err = integerOf(throttleName(i), arg); err != nil {
			return "", rate{}, 0, err
		}
	}
	const units, seconds = limiter.MaxUnits - 1, int64(limiter.MaxWindow / time.Second)
	for i, of := range [4]struct{ least, most int64 }{{0, units}, {1, units}, {1, seconds}, {0, units}} {
		if n := numbers[i]; n < of.least || n > of.most {
			return "", rate{}, 0, rangeError(throttleName(i), n, of.least, of.most)
		}
	}
	return args[0], rate{units: numbers[1], burst: numbers[0] + 1, period: time.Duration(numbers[2]) * time.Second},
		numbers[3], nil
}

// throttleName returns the name of a number of CL.THROTTLE.
func throttleName(i int) string {
	return [...]string{"max_burst", "count per period", "period", "quantity"}[i]
}

// commandError is why a command cannot be carried out, for the client.
type commandError string

func (e commandError) Error() string { return string(e) }

func usageError(usage string) error { return commandError("Usage: " + usage) }

func integerOf(name, text string) (int64, error) {
	n := int64(0)
	for i := range len(text) {
		d := text[i] - '0'
		if d > 9 || i == maxDigits {
			return integerBy(name, text)
		}
		n = 10*n + int64(d)
	}
	if len(text) == 0 {
		return integerBy(name, text)
	}
	return n, nil
}

// integerBy reads a number that has a sign or many digits, or is none.
func integerBy(name, text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, commandError(fmt.Sprintf("%s is %.40s: give a number from %d to %d", name, text, math.MinInt64,
			math.MaxInt64))
	case err != nil:
		return 0, commandError(fmt.Sprintf("%s is %.40q: give a whole number", name, text))
	}
	return n, nil
}

func rangeError(name string, n, least, most int64) error {
	return commandError(fmt.Sprintf("%s is %d: give %d to %d", name, n, least, most))
}

// throttled appends the reply to CL.THROTTLE: whether the command is limited, the limit,
// what remains, and the seconds until a retry is allowed and until the key is as new, both
// rounded up.
func (r *reply) throttled(q rate, cost int64, d *limiter.Decision) {
	l := d.Limit(0)
	limited, retry := int64(0), int64(-1)
	wait := l.RetryAfter
	if cost == 0 {
		wait = q.above(l)
	}
	if !d.Allowed && (cost > 0 || wait > 0) {
		limited = 1
		if !l.Never {
			retry = limiter.Seconds(wait)
		}
	}
	r.array(5)
	r.integer(limited)
	r.integer(q.burst)
	r.integer(int64(l.Remaining))
	r.integer(retry)
	r.integer(limiter.Seconds(l.ResetAfter))
}

// The scripts that are answered, by the SHA1 of their text.
const (
	// scriptAllowN is allowN of redis_rate v10: all of the cost, or nothing.
	scriptAllowN = "f52a5b566060d79fd321d695df55bc918339c4aa"
	// scriptAllowAtMost is allowAtMost of redis_rate v10: as much of the cost as fits.
	scriptAllowAtMost = "054143318f521948424aa25df61d7f7ba835a9d7"
)

func knownScript(sha string) bool {
	return sha == scriptAllowN || sha == scriptAllowAtMost || sha == scriptIncrement || sha == scriptCount
}

// scripted reads the arguments of EVALSHA after the script: the number of keys, the key,
// the burst, the units of a period, the period in seconds and the cost.
func scripted(args []string) (key string, r rate, cost int64, err error) {
	if len(args) != 6 || args[0] != "1" {
		return "", rate{}, 0,
			commandError("the script of redis_rate takes 1 key and 4 arguments: burst, rate, period and cost")
	}
	period, err := strconv.ParseFloat(args[4], 64)
	if err != nil || !(period*float64(time.Second) >= float64(limiter.MinWindow)) || period > limiter.MaxWindow.Seconds() {
		return "", rate{}, 0, commandError(fmt.Sprintf("the period is %.40q: give %g to %g seconds", args[4],
			limiter.MinWindow.Seconds(), limiter.MaxWindow.Seconds()))
	}
	r.period = time.Duration(math.Round(period*1e6)) * time.Microsecond
	for _, n := range []struct {
		name, text string
		least      int64
		to         *int64
	}{{"burst", args[2], 1, &r.burst}, {"rate", args[3], 1, &r.units}, {"cost", args[5], 0, &cost}} {
		if *n.to, err = integerOf("the "+n.name, n.text); err == nil && (*n.to < n.least || *n.to > limiter.MaxUnits) {
			err = rangeError("the "+n.name, *n.to, n.least, limiter.MaxUnits)
		}
		if err != nil {
			return "", rate{}, 0, err
		}
	}
	return args[1], r, cost, nil
}

// scriptAllowed appends the reply of a script that allowed some units: how many, what
// remains, -1, and the seconds until the key is as new.
func (r *reply) scriptAllowed(units int64, d *limiter.Decision) {
	l := d.Limit(0)
	r.array(4)
	r.integer(units)
	r.integer(int64(l.Remaining))
	r.bulk("-1")
	r.bulk(float(l.ResetAfter.Seconds()))
}

// scriptDenied appends the reply of a script that allowed nothing. The seconds until a
// retry of a cost are those until its TAT is within the burst. So they are told for a cost
// above the burst too, which is never allowed, as the script does.
func (r *reply) scriptDenied(q rate, cost int64, d *limiter.Decision) {
	l := d.Limit(0)
	retry := l.ResetAfter.Seconds() + q.interval()*float64(cost-q.burst)
	switch {
	case cost == 0:
		retry = q.above(l).Seconds()
	case !l.Never && l.RetryAfter > 0:
		retry = l.RetryAfter.Seconds()
	}
	r.array(4)
	r.integer(0)
	r.integer(0)
	r.bulk(float(max(retry, 0)))
	r.bulk(float(l.ResetAfter.Seconds()))
}

func float(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

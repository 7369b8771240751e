package redisstore

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Explain returns what a check would find in Redis, and why it would be allowed or
// denied, without charging it. Commands are shell commands with redis-cli for the calls
// that would decide it; they do charge. The error states that Redis did not answer, or
// what could not be parsed.
func (s *Store) Explain(ctx context.Context, now arith.Instant, c *arith.Charge,
	name arith.KeyNamer) (*limiter.Explanation, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	parts := s.divide(nil, c, 0)
	w := s.clock.when(now, len(parts))
	e := &limiter.Explanation{Now: w.now}
	for _, p := range parts {
		made, err := s.calls.decision(w, s.modeOf(c), c, c.ID, 0, p.first, p.last, name)
		if err != nil {
			return nil, err
		}
		if e.Now == serverClock { // there is one part
			if e.Now, err = serverTime(ctx, s.client, made.route); err != nil {
				return nil, fmt.Errorf("redis did not return its time: %w", err)
			}
		}
		at, ids := 0, made.keys[len(made.args)-1:][:made.ids]
		for n := p.first; n < p.last; n++ {
			k := c.Key(n)
			var id []limiter.Field
			if len(k.Rule.Limits) == 0 {
				continue
			}
			held, err := s.openHolds(ctx, e.Now, made.keys[at])
			if err != nil {
				return nil, err
			}
			if k.Cost > 0 && len(ids) > 0 {
				if id, err = s.explainID(ctx, e.Now, ids[0]); err != nil {
					return nil, err
				}
				ids = ids[1:]
			}
			for _, l := range k.Rule.Limits {
				x, err := s.explainLimit(ctx, e.Now, made.keys[at], k, l, held)
				if err != nil {
					return nil, err
				}
				x.State = append(x.State, id...)
				e.Limits = append(e.Limits, x)
				at++
			}
		}
		e.Commands = append(e.Commands, s.config.shell(made))
	}
	if e.Now == serverClock {
		e.Now = s.clock.now() // there is nothing to explain
	}
	return e, nil
}

func (s *Store) explainLimit(ctx context.Context, now limiter.Tick, key string, k *arith.Key, l *limiter.Limit,
	held openHolds) (x limiter.LimitExplanation, err error) {
	value, err := s.client.Get(ctx, key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return x, fmt.Errorf("redis did not return the value of %s: %w", key, err)
	}
	found := counter{limit: l}
	if strings.HasPrefix(value, "{") { // its key has holds
		value = "[" + value[1:]
	}
	if value != "" {
		if found, err = decode(value, l, k.Rule, now); err != nil {
			return x, fmt.Errorf("the value of %s cannot be read: %w", key, err)
		}
	}
	name := s.calls.spelled.of(l).counted(l.Name())
	if l.Algorithm() == limiter.Concurrency {
		name = found.name
	}
	fields := held.fields(name)
	if fields == nil && found.name != "" {
		found.state.A, found.state.B = 0, 0 // its holds are gone
	}
	x = found.state.Explain(found.limit, found.words, now, &limiter.LimitDecision{Limit: l, Cost: k.Cost})
	x.Limit, x.Now, x.State = l.String(), now, append(x.State, fields...)
	return x, nil
}

// explainID returns until when an entry remembers the id of a charge, nil if it does not.
func (s *Store) explainID(ctx context.Context, now limiter.Tick, key string) ([]limiter.Field, error) {
	value, err := s.client.Get(ctx, key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("redis did not return the value of %s: %w", key, err)
	}
	var whole [8]byte
	if copy(whole[:7], value) < 7 {
		return nil, nil
	}
	until := limiter.Tick(binary.LittleEndian.Uint64(whole[:]))
	if until <= now {
		return nil, nil
	}
	return []limiter.Field{{Name: "id remembered until", Value: stamp(until)}}, nil
}

func stamp(t limiter.Tick) string { return t.Time().Format("2006-01-02T15:04:05.000000Z") }

// shell returns a call as a shell command.
func (c *Config) shell(made *call) string {
	var b strings.Builder
	b.WriteString("redis-cli")
	addr := c.Addrs[0]
	if c.SentinelMaster != "" {
		addr = "" // the server may change
	}
	if host, port, err := net.SplitHostPort(addr); err == nil {
		b.WriteString(" -h " + quote(host) + " -p " + quote(port))
	} else if addr != "" {
		b.WriteString(" -s " + quote(addr))
	}
	if c.clustered() {
		b.WriteString(" -c")
	}
	if c.DB != 0 {
		b.WriteString(" -n " + strconv.Itoa(c.DB))
	}
	if c.TLS != nil {
		b.WriteString(" --tls")
	}
	if c.Username != "" {
		b.WriteString(" --user " + quote(c.Username))
	}
	b.WriteString(" EVAL " + quote(made.script.text) + " " + strconv.Itoa(len(made.keys)))
	for _, k := range made.keys {
		b.WriteString(" " + quote(k))
	}
	for _, a := range made.args {
		b.WriteString(" " + quote(fmt.Sprint(a)))
	}
	return b.String()
}

// quote quotes text for a POSIX shell.
func quote(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// counter is a counter in Redis, in the form of package limiter.
type counter struct {
	limit *limiter.Limit
	state arith.State
	words []uint64
	name  string // of a limit on concurrency, by which holds know the counter
}

var errValue = errors.New("it is not the value of a counter")

// decode parses a value. If another limit made it, it is adopted by l, a limit of a rule, unless it stays what it is.
func decode(value string, l *limiter.Limit, rule *limiter.Rule, now limiter.Tick) (c counter, err error) {
	end := strings.IndexByte(value, ']') + 1
	var numbers []int64
	if json.Unmarshal([]byte(value[:end]), &numbers) != nil || len(numbers) < 7 {
		return c, errValue
	}
	f, wide := isWide(numbers[0])
	if numbers[0] = int64(f); f == familyLog {
		numbers[1] = limiter.MaxLogLimit // a log may hold more than its limit, from a larger one before
	}
	if start, stop, ok := calendarSpan(f, value[end:]); ok {
		numbers[2] = int64(stop - start)
	}
	if c.limit = l; f == familyLog || newParams(l).text != value[:end] {
		if c.limit, err = limitOf(l, numbers); err != nil {
			return c, err
		}
	}
	// Room for twice the entries that the value can have, since expensive ones take
	// two, and for the most sub-windows.
	c.words = make([]uint64, 2*len(value)/12+limiter.MaxSubWindows)
	if err := c.read(f, wide, []byte(value[end:]), limiter.Tick(numbers[2])); err != nil {
		return c, err
	}
	if f == familySlots && c.state.A > 0 {
		c.state.Time = now + 1 // the instants are those of its holds
	}
	c.state.Roll(c.limit, c.words, now)
	if c.limit == l {
		return c, nil
	}
	if arith.Stays(l, c.limit, &c.state, chosen(rule), now) {
		c.limit = arith.Seen(l, c.limit)
		return c, nil
	}
	charge, fresh := c.state.Adopt(l, c.limit, c.words, now)
	if c.limit = l; fresh {
		clear(c.words)
		c.state.Roll(l, c.words, now)
		if charge > 0 {
			c.state.Overdraw(l, c.words, now, charge)
		}
	}
	return c, nil
}

// calendarSpan returns the window of a calendar limit's state.
func calendarSpan(f family, state string) (start, end limiter.Tick, ok bool) {
	if f != familyCalendar || len(state) < 14 {
		return 0, 0, false
	}
	number := func(b string) limiter.Tick {
		var whole [8]byte
		copy(whole[:], b)
		return limiter.Tick(binary.LittleEndian.Uint64(whole[:]))
	}
	return number(state[:7]), number(state[7:14]), true
}

// limitOf returns a limit with the given parameters. Algorithms of one family are not
// distinguished: it is that of the present limit, if it is of the family.
func limitOf(l *limiter.Limit, n []int64) (*limiter.Limit, error) {
	s := limiter.Spec{
		Name: l.Name(), Limit: n[1], Window: limiter.Tick(n[2]).Duration(), CountRejected: limiter.CountRejected(n[4]),
		Block: limiter.Tick(n[5]).Duration(),
	}
	f := family(n[0])
	if few := f == familyFixed && len(n) < 8 || f == familyCounter && len(n) < 9; few || f == familyWindow && n[6] < 1 {
		return nil, errValue
	}
	switch f {
	case familySlots:
		s.Algorithm, s.Window = limiter.Concurrency, 0
	case familyFixed:
		s.Algorithm, s.Align = limiter.FixedWindow, limiter.Align(n[7])
	case familyCalendar: // its calendar is not known, but its window is, which ends alike
		s.Algorithm, s.Align = limiter.FixedWindow, limiter.AlignFirstHit
	case familyCounter:
		weight := int(n[7])
		s.Weight, s.Rounding = &weight, limiter.Rounding(n[8])
	case familyLog:
		s.Algorithm = limiter.SlidingLog
	case familyWindow:
		s.Algorithm, s.Coverage, s.SubWindows = limiter.SlidingWindow, limiter.CoverageLenient, int(n[2]/n[6])
	case familyBucket:
		if s.Algorithm, s.Burst = limiter.TokenBucket, n[3]; newParams(l).family == f {
			s.Algorithm = l.Algorithm()
		}
	case familyDrip:
		s.Algorithm, s.Burst, s.Drip = limiter.LeakyBucket, n[3], limiter.DripInterval
		if len(n) > 7 {
			s.DripUnits = n[7]
		}
	default:
		return nil, errValue
	}
	return limiter.NewLimit(s)
}

// read unpacks a value that the scripts packed.
func (c *counter) read(f family, wide bool, b []byte, window limiter.Tick) error {
	units, short := 4, false
	if wide {
		units = 7
	}
	number := func(bytes int) uint64 {
		if len(b) < bytes {
			short = true
			return 0
		}
		var whole [8]byte
		copy(whole[:], b[:bytes])
		b = b[bytes:]
		return binary.LittleEndian.Uint64(whole[:])
	}
	var s arith.Counts
	if f != familySlots {
		s.Time = limiter.Tick(number(7))
	}
	if f == familyCalendar {
		number(7) // the end of the window
	}
	s.Until = limiter.Tick(number(7))
	switch f {
	case familyLog, familyWindow:
		c.readList(number, s, wide, window, &short)
	case familyCounter:
		s.A, s.B = number(units), number(units)
	case familySlots:
		if s.A = number(units); s.A > 0 {
			c.name = string(b)
		}
	case familyDrip:
		s.A = number(max(units, min(len(b), 7))) // a level above 32 bits has 7 bytes
	default:
		s.A = number(units)
	}
	if short {
		return errValue
	}
	if f != familyLog && f != familyWindow {
		c.state = s.State(c.limit)
	}
	return nil
}

// readList rebuilds a list by charging its entries again. It stops if the value is
// shorter than its length field says.
func (c *counter) readList(number func(bytes int) uint64, s arith.Counts, wide bool, window limiter.Tick,
	short *bool) {
	const wrap = 1<<48 - 1
	newest, most, all := s.Time, uint64(limiter.NarrowUnits), uint64(wrap)
	high := func() uint64 { return 0 } // the upper bits of a sum; of those beyond 64 bits no difference has any
	if wide {
		most, all = limiter.MaxUnits, math.MaxUint64
		high = func() uint64 { return number(3) << 48 }
	}
	dead, live, sum := number(4), number(4), number(6)
	number(6) // the sum after the last entry
	sum += high()
	high()
	for i := uint64(0); i < dead && !*short; i++ {
		number(12)
		high()
	}
	for i := uint64(0); i < live && !*short; i++ {
		at, upTo := limiter.Tick(number(6)), number(6)
		upTo += high()
		at = newest - (newest-at)&wrap
		units := min((upTo-sum)&all, most)
		if sum = upTo; units == 0 || newest-at > window {
			continue
		}
		c.state.Roll(c.limit, c.words, at)
		c.state.Overdraw(c.limit, c.words, at, units) // also beyond the limit
	}
	counts := c.state.Open(c.limit)
	counts.Until = s.Until
	c.state = counts.State(c.limit)
}

// serverTime asks for the clock of the server that has a key. A client of a Cluster would
// ask any server, which may be down.
func serverTime(ctx context.Context, client redis.UniversalClient, key string) (limiter.Tick, error) {
	var server interface {
		Time(ctx context.Context) *redis.TimeCmd
	} = client
	if cluster, ok := client.(*redis.ClusterClient); ok {
		master, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			return 0, err
		}
		server = master
	}
	t, err := server.Time(ctx).Result()
	if err != nil {
		return 0, err
	}
	return limiter.TickOf(t), nil
}

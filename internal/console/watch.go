package console

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/history"
	"github.com/weirlimit/weir/metrics"
	"github.com/weirlimit/weir/transport"
)

// tickEvery is how often it is looked for overrides that end. sampled ticks make a second.
const (
	tickEvery = 250 * time.Millisecond
	sampled   = 4
)

// digestEvery is how often members compare their overrides, in seconds: what one has missed it then gets.
const digestEvery = 5

// Run keeps the history, and ends overrides, until the context ends.
func (c *Console) Run(ctx context.Context) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	last := c.config.Totals()
	c.Overriding.apply()
	for i := 1; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c.Overriding.end(c.outlook.members())
		if i%sampled != 0 {
			continue
		}
		totals := c.config.Totals()
		c.sample(last, totals)
		last = totals
		c.rules.look(c)
		members := c.outlook.members()
		c.events.look(members, c.config.Now())
		c.sends.look(members, time.Now())
		if i/sampled%digestEvery == 0 {
			c.Overriding.tellDigest()
		}
	}
}

// sample keeps what happened between two totals.
func (c *Console) sample(before, now metrics.Totals) {
	s := history.Second{Undecided: less(now.Undecided, before.Undecided), P99: p99(before.Waits, now.Waits)}
	if stats, ok := c.outlook.stats(); ok {
		s.Members, s.Unreachable = stats.Members["active"]+stats.Members["leaving"], stats.Unreachable
	} else {
		s.Members = 1
	}
	had := make(map[string]*metrics.RuleTotals, len(before.Rules))
	for i := range before.Rules {
		had[before.Rules[i].Rule] = &before.Rules[i]
	}
	for i := range now.Rules {
		r := &now.Rules[i]
		was := cmp.Or(had[r.Rule], &metrics.RuleTotals{})
		x := history.Rule{Name: r.Rule, Allowed: less(r.Allowed, was.Allowed), Denied: less(r.Denied, was.Denied),
			ByPolicy: less(r.ByPolicy, was.ByPolicy)}
		if x.Allowed+x.Denied == 0 {
			continue
		}
		for j := range r.Sources {
			x.Sources[j] = less(r.Sources[j], was.Sources[j])
		}
		s.Rules = append(s.Rules, x)
	}
	c.ring.Add(c.config.Now(), &s)
}

// less returns how much a counter has grown: a rule that has gone and come back begins anew.
func less(now, before uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}

// p99 returns the bound of the bucket that has the 99th of 100 new waits, 0 if there are none.
func p99(before, now []uint64) time.Duration {
	var all uint64
	grown := make([]uint64, len(now))
	for i := range now {
		if i < len(before) {
			grown[i] = less(now[i], before[i])
			all += grown[i]
		}
	}
	if all == 0 {
		return 0
	}
	bounds, rest := metrics.WaitBounds(), all-all/100
	for i, n := range grown {
		if n >= rest {
			return bounds[min(i, len(bounds)-1)]
		}
		rest -= n
	}
	return bounds[len(bounds)-1]
}

// event is something that happened to the cluster, for charts.
type event struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

// events are the last ones.
type events struct {
	mu     sync.Mutex
	list   []event
	states map[string]string // of members
}

const maxEvents = 200

func (e *events) add(at time.Time, text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.list) == maxEvents {
		e.list = slices.Delete(e.list, 0, 1)
	}
	e.list = append(e.list, event{at.UTC(), text})
}

func (e *events) since(t time.Time) []event {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := slices.IndexFunc(e.list, func(x event) bool { return !x.At.Before(t) })
	if i < 0 {
		return nil
	}
	return slices.Clone(e.list[i:])
}

// look notes which members have come, gone or died.
func (e *events) look(members []weir.Member, at time.Time) {
	now := make(map[string]string, len(members))
	for i := range members {
		now[members[i].Name] = stateOf(&members[i])
	}
	for name, state := range now {
		if e.states != nil && e.states[name] != state {
			e.add(at, "member "+name+" is "+state)
		}
	}
	for name := range e.states {
		if now[name] == "" {
			e.add(at, "member "+name+" is gone")
		}
	}
	e.states = now
}

// History is what the members of a cluster decided.
type History struct {
	*history.Series
	Missing []Missing `json:"missing"`
	Events  []event   `json:"events"`
}

// history gathers what all members decided, or, if one is set, this node only.
func (c *Console) history(ctx context.Context, span history.Span, one bool) (*History, error) {
	out := &History{Series: c.ring.Series(span, c.config.Now()), Missing: []Missing{}}
	out.Events = append([]event{}, c.events.since(out.Start)...)
	if one {
		return out, nil
	}
	var err error
	out.Missing, err = gather(ctx, c, question{Kind: "history", Span: span.Name}, func(_ string, s *history.Series) error {
		if !out.Add(s) {
			return errAnother
		}
		return nil
	})
	return out, err
}

// serveHistory serves /v1/history.
func (c *Console) serveHistory(w http.ResponseWriter, r *http.Request, by transport.AdminCaller) {
	err := only(r, "span", "one")
	span, ok := history.SpanOf(r.URL.Query().Get("span"))
	if err == nil && !ok {
		err = invalid("span must be 5m, 1h or 1d")
	}
	if err == nil {
		err = by.MayAll() // it has the rules of every tenant
	}
	var out *History
	if err == nil {
		out, err = c.history(r.Context(), span, r.URL.Query().Get("one") == "true")
	}
	answer(w, &by, out, err)
}

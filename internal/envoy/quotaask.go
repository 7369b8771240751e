package envoy

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/internal/envoy/quota"
	"github.com/weirlimit/weir/limiter"
)

// find looks the limit of a bucket up. Without a counter the grant says what is done with the bucket.
func (s *quotaStream) find(c *config.Config, id string) (it item, g quota.Grant, err error) {
	var entries []config.Entry
	for _, e := range quota.Entries(id) {
		entries = append(entries, config.Entry(e))
	}
	l, counted, all := c.LookupUnordered(s.domain, entries)
	switch {
	case !all:
		s.of.warn(logOrders, "buckets of Envoy are denied, as the entries of their ids have too many orders: give them "+
			"fewer, or fewer descriptors with the same keys", "domain", shortened(s.domain))
		return it, quota.Grant{Kind: quota.DenyAll}, nil
	case l == nil && !c.Has(s.domain):
		s.of.warn(logDomain, "no limits are configured for a domain of Envoy: all its requests are allowed", "domain",
			shortened(s.domain), "from", s.by.sender())
		return it, quota.Grant{Kind: quota.AllowAll}, nil
	case l == nil || l.Unlimited || l.Shadow || s.of.of.options.Shadow:
		return it, quota.Grant{Kind: quota.AllowAll}, nil
	case l.Requests == 0:
		return it, quota.Grant{Kind: quota.DenyAll}, nil
	}
	it = item{limit: l, by: &s.by, key: keyOf(s.domain, counted)}
	it.counter, err = s.of.limits.of(l, false)
	return it, quota.Grant{Kind: quota.DenyAll}, err
}

// ask asks the owners of buckets' counters for slices.
func (s *quotaStream) ask(ctx context.Context, asks []quota.Ask, over error, out *quota.Out) error {
	c := s.of.of.config.Load()
	if c == nil {
		return errors.New("no rate limit configuration loaded")
	}
	s.of.check(c)
	ctx, cancel := context.WithTimeout(ctx, ownersWithin)
	defer cancel()
	grants, at := make([]quota.Grant, len(asks)), make([]int, 0, len(asks))
	var rs []limiter.Request
	for i := range asks {
		a := &asks[i]
		if grants[i].Kind = quota.DenyAll; over != nil {
			continue
		}
		it, g, err := s.find(c, a.ID)
		if err != nil {
			s.unassigned(&it, err)
		}
		grants[i] = g
		if it.counter == nil || err != nil {
			continue
		}
		if grants[i].Size = a.Size; a.Size == 0 {
			grants[i].Size = sizeOf(it.counter, a.Smaller)
			if n := max(0, s.of.streams.Load()); few(it.counter, uint64(n)) {
				s.of.warn(logSmall, "some Envoys are assigned nothing of a limit", "domain", shortened(s.domain), "limit",
					it.limit.Path, "why", whyFew, "envoys", n)
			}
		}
		r := request(&it)
		r.ID = s.name + "-" + strconv.FormatUint(uint64(a.Slice), 36)
		r.Lent, r.Hold, r.Rate, r.Cost = true, a.Hold.Duration(), max(1, a.Demand), limiter.Units(int64(grants[i].Size))
		r.Fast = s.of.of.options.FastQuotas
		rs, at = append(rs, r), append(at, i)
	}
	ds := make([]limiter.Decision, len(rs))
	err := s.by.session.Decide(ctx, rs, ds, nil)
	some, _ := errors.AsType[*limiter.BatchError](err)
	for i, of := range at {
		failed := err
		if some != nil {
			failed = nil
			for j, k := range some.Index {
				if k == i {
					failed = some.Errs[j]
				}
			}
		}
		if failed != nil {
			grants[of].Size = 0
			s.unassigned(nil, failed)
			continue
		}
		if rate := ds[i].Remarks().Assigned; ds[i].Allowed && rate > 0 {
			grants[of].Kind, grants[of].Rate = quota.Tokens, uint32(min(rate, limiter.NarrowUnits))
		} else if asks[of].Size == 0 && grants[of].Size <= leastBurst {
			s.of.warn(logNone, "an Envoy is assigned nothing of a limit: others have all of it, or 128 Envoys have slices",
				"domain", shortened(s.domain), "from", s.by.sender())
		}
	}
	now := s.of.now()
	for i := range asks {
		s.quota.Answered(now, &asks[i], grants[i], out)
	}
	return nil
}

// unassigned logs why a bucket cannot be assigned anything.
func (s *quotaStream) unassigned(it *item, err error) {
	name := ""
	if it != nil && it.limit != nil {
		name = it.limit.Path
	}
	s.of.warn(logUnassigned, "buckets of Envoy are assigned nothing", "domain", shortened(s.domain), "limit", name,
		"error", err.Error())
}

// errLate ends a stream.
var errLate = errors.New("the client does not read what it is assigned, or the node is too busy: an assignment that " +
	"comes late lasts too long")

// send tells Envoy what is assigned, for which owners were asked at an instant or later.
func (s *quotaStream) send(ctx context.Context, actions []quota.Action, asked time.Time) error {
	s.count() // before Envoy knows
	if len(actions) == 0 {
		return nil
	}
	within := quota.Slack.Duration()
	if !slices.ContainsFunc(actions, func(a quota.Action) bool { return a.Kind == quota.Tokens }) {
		asked, within = time.Now(), reportWithin // no owner lends anything
	}
	ctx, cancel := context.WithDeadline(ctx, asked.Add(within))
	defer cancel()
	var data []byte
	for i := range actions {
		data = quota.AppendAction(data, &actions[i])
		if len(data) < quotaMessage && i < len(actions)-1 {
			continue
		}
		if ctx.Err() != nil {
			return errLate
		}
		m, sent := &assignments{data}, make(chan error, 1)
		go func() { sent <- s.grpc.SendMsg(m) }() // it waits for a client that does not read until the stream ends
		select {
		case err := <-sent:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return errLate
		}
		data = nil
	}
	return nil
}

// assignments is a message to Envoy.
type assignments struct{ data []byte }

// MarshalWire implements [transport.WireReply].
func (m *assignments) MarshalWire() []byte { return m.data }

// charge charges what Envoys have allowed beyond what they were assigned.
func (s *quotaStream) charge(ctx context.Context, beyond []quota.Beyond) {
	c := s.of.of.config.Load()
	if c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, quota.Slack.Duration())
	defer cancel()
	for i := range beyond {
		b := &beyond[i]
		it, _, err := s.find(c, b.ID)
		if err != nil || it.counter == nil {
			continue
		}
		sum(&s.of.beyond, b.Units)
		s.of.warn(logBeyond, "Envoy has allowed more than it was assigned, by its own configuration: that is charged",
			"domain", shortened(s.domain), "limit", it.limit.Path, "from", s.by.sender(), "requests", b.Units)
		r := request(&it)
		// Lent, so that false reports shut a limit no longer than two full ones take.
		r.ID, r.Lent = rand.Text(), true
		_, _ = s.by.session.Settle(ctx, r, int64(min(b.Units, it.counter.Capacity()))) // without an answer it stays uncharged
	}
}

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir"
	core "github.com/weirlimit/weir/internal/cluster"
	"github.com/weirlimit/weir/internal/cluster/gossip"
	"github.com/weirlimit/weir/internal/cluster/members"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/rules"
)

// enter begins a call to the core. Unless it returns an error, the caller must call
// closing.RUnlock.
func (m *member) enter() error {
	m.closing.RLock()
	switch {
	case m.closed:
		m.closing.RUnlock()
		return weir.ErrClosed
	case m.joining.Load():
		m.closing.RUnlock()
		return fmt.Errorf("%w: ask another one until it is ready", weir.ErrJoining)
	}
	return nil
}

// Check implements [engine.Decider]: it waits until the owner, the heir or a policy has
// decided.
func (m *member) Check(ctx context.Context, set *rules.Set, r *limiter.Request, d *limiter.Decision, peek bool) error {
	if err := m.enter(); err != nil {
		return m.Refused(err)
	}
	defer m.closing.RUnlock()
	c := new(arith.Charge)
	match, err := set.Resolve(r, c)
	if err != nil {
		return m.Refused(err)
	}
	if err := m.lendable(r); err != nil {
		return m.Refused(err)
	}
	c.Peek = peek
	if err := engine.Unheld(match, c); err != nil {
		return m.Refused(err)
	}
	if m.config.Tracer != nil {
		c.Trace = m.config.Tracer.Parent(ctx)
	}
	if err := m.core.CheckWithin(ctx, c, d, patience(ctx)); err != nil {
		return m.Refused(notAwaited(err, "the check may have been counted"))
	}
	if err := engine.Spent(d); err != nil {
		d.Clear()
		return m.Refused(err)
	}
	m.checks.Add(1)
	m.decided(set, r, c, match, d, nil)
	return nil
}

// patience returns how long checks of a context wait for other members; 0 means the deadline.
func patience(ctx context.Context) limiter.Tick {
	return limiter.Tick(engine.Patience(ctx) / limiter.TickDuration)
}

// decided completes a decision. It also sends the names of keys that entered a list of
// top keys.
func (m *member) decided(set *rules.Set, r *limiter.Request, c *arith.Charge, match rules.Match, d *limiter.Decision,
	alike *engine.Tally) {
	if c.Unnamed != 0 && !strings.HasPrefix(r.Tenant, arith.OwnTenants) {
		var buf [limiter.MaxKeyBytes]byte
		for i := range c.Len() {
			if c.Unnamed&(1<<i) != 0 {
				m.core.SetName(c.Key(i), set.AppendKeyName(buf[:0], r, c.Key(i), nil))
			}
		}
	}
	if c.ID != nil && c.ID.Hold != 0 {
		d.Receipt = limiter.Receipt{} // a reservation is cancelled, which is done once
	}
	m.Decided(set, r, match, d, alike)
}

// Amend implements [engine.Decider].
func (m *member) Amend(ctx context.Context, q *engine.Question, a limiter.Amend) (limiter.Amended, error) {
	if err := m.enter(); err != nil {
		return limiter.Amended{}, err
	}
	defer m.closing.RUnlock()
	if err := m.lendable(q.Request); err != nil {
		return limiter.Amended{}, err
	}
	done := make(chan route.Outcome, 1)
	m.core.Amend(&q.Charge, a, func(o route.Outcome) { done <- o })
	what := "settlement"
	if a.Extend {
		what = "extension"
	}
	select {
	case o := <-done: // the deadline bounds it
		if err := m.unanswered(q, o, what, "ask again, which does no harm"); err != nil {
			return limiter.Amended{}, err
		}
		return *o.Amended, nil
	case <-ctx.Done():
		return limiter.Amended{}, notAwaited(ctx.Err(), "the "+what+
			" may have been made, of all keys or some; ask again, which does no harm")
	}
}

// CheckBatch implements [engine.Decider]. Checks for one owner share frames.
func (m *member) CheckBatch(ctx context.Context, set *rules.Set, rs []limiter.Request, ds []limiter.Decision,
	peeks engine.Peeks) (all engine.Undecided, _ error) {
	if err := m.enter(); err != nil {
		return all, m.Refused(err)
	}
	defer m.closing.RUnlock()
	var bad engine.Undecided
	room := m.room(len(rs))
	defer m.rooms.Put(room)
	charges, matches := room.charges, room.matches
	for i := range rs {
		var err error
		charges[i].Lend(&room.ids[i]) // a copy is made of those that are not decided at once
		if matches[i], err = set.Resolve(&rs[i], &charges[i]); err == nil {
			err = m.lendable(&rs[i])
		}
		charges[i].Peek = peeks.Has(i)
		if err == nil {
			err = engine.Unheld(matches[i], &charges[i])
		}
		if err != nil {
			bad.Add(i, &ds[i], m.Refused(err))
			charges[i].Clear() // an empty charge asks nothing
		}
	}
	if m.config.Tracer != nil && len(charges) > 0 {
		charges[0].Trace = m.config.Tracer.Parent(ctx)
	}
	undecided := m.core.CheckMany(ctx, charges, ds, patience(ctx))
	m.checks.Add(uint64(len(rs) - len(bad.Index) - len(undecided)))
	var alike engine.Tally
	defer alike.Tell(m.Observer.Checked)
	for i := range rs {
		switch {
		case len(bad.Index) > 0 && bad.Index[0] == i:
			all.Add(i, &ds[i], bad.Errs[0])
			bad.Index, bad.Errs = bad.Index[1:], bad.Errs[1:]
		case len(undecided) > 0 && undecided[0] == i:
			all.Add(i, &ds[i], m.Refused(notAwaited(ctx.Err(), "the check may have been counted")))
			undecided = undecided[1:]
		case engine.Spent(&ds[i]) != nil:
			all.Add(i, &ds[i], m.Refused(engine.Spent(&ds[i])))
		default:
			m.decided(set, &rs[i], &charges[i], matches[i], &ds[i], &alike)
		}
	}
	return all, nil
}

type batchRoom struct {
	charges []arith.Charge
	ids     []arith.Idempotency
	matches []rules.Match
}

// room returns memory for a batch of n checks, which the caller gives back to the pool. What was there before is
// overwritten by [rules.Set.Resolve].
func (m *member) room(n int) *batchRoom {
	const most = 1 << 12
	room, _ := m.rooms.Get().(*batchRoom)
	if room == nil || max(n, cap(room.charges)) > most {
		room = new(batchRoom)
	}
	room.charges = slices.Grow(room.charges[:0], n)[:n]
	room.ids = slices.Grow(room.ids[:0], n)[:n]
	room.matches = slices.Grow(room.matches[:0], n)[:n]
	return room
}

// notAwaited returns the error for a context that ended before the answer arrived.
func notAwaited(err error, unknown string) error {
	return fmt.Errorf("weir: the context ended before the answer arrived, and %s: %w", unknown, err)
}

// Refund implements [engine.Decider].
func (m *member) Refund(ctx context.Context, q *engine.Question, r limiter.Receipt) error {
	if err := m.enter(); err != nil {
		return err
	}
	defer m.closing.RUnlock()
	done := make(chan route.Outcome, 1)
	m.core.Refund(&q.Charge, r, func(o route.Outcome) { done <- o })
	select {
	case o := <-done: // the deadline bounds it
		return m.unanswered(q, o, "refund",
			"asked again, others' charges might be taken back; left alone, at most a little too much is denied")
	case <-ctx.Done():
		return notAwaited(ctx.Err(), "the refund may have been made")
	}
}

// Reset implements [engine.Decider].
func (m *member) Reset(ctx context.Context, q *engine.Question) (int, error) {
	if err := m.enter(); err != nil {
		return 0, err
	}
	defer m.closing.RUnlock()
	done := make(chan route.Outcome, 1)
	m.core.Reset(&q.Charge, func(o route.Outcome) { done <- o })
	select {
	case o := <-done: // the deadline bounds it
		return o.Counters, errors.Join(refusing(q, o), m.unanswered(q, o, "reset", "ask again, which does no harm"))
	case <-ctx.Done():
		return 0, notAwaited(ctx.Err(), "the keys may have been reset, all or some")
	}
}

// unanswered returns the error of a reset, refund or amendment if some holder of its keys did not
// answer, otherwise nil. It names those keys, and tells which of them may have been
// changed; then says what to do about those.
func (m *member) unanswered(q *engine.Question, o route.Outcome, what, then string) error {
	if o.Unanswered == 0 {
		return nil
	}
	var not, maybe []string
	for i := range q.Charge.Len() {
		switch {
		case o.Maybe>>i&1 != 0:
			maybe = append(maybe, strconv.Quote(q.Name(i)))
		case o.Unanswered>>i&1 != 0:
			not = append(not, strconv.Quote(q.Name(i)))
		}
	}
	text := ""
	if len(maybe) > 0 {
		text = fmt.Sprintf("; the %s may have been done or not for %s: %s", what, strings.Join(maybe, ", "), then)
	}
	if len(not) > 0 {
		text += fmt.Sprintf("; there was no %s for %s: ask again", what, strings.Join(not, ", "))
	}
	if all := uint32(1)<<q.Charge.Len() - 1; o.Unanswered|o.Forbidden != all {
		text += "; for the other keys it is done"
	}
	return fmt.Errorf("weir: %w within %v%s", weir.ErrUnanswered, m.config.Deadline, text)
}

// refusing returns the error of a reset if some holder of its keys refuses resets of
// other members, otherwise nil. It names those keys.
func refusing(q *engine.Question, o route.Outcome) error {
	if o.Forbidden == 0 {
		return nil
	}
	var keys []string
	for i := range q.Charge.Len() {
		if o.Forbidden>>i&1 != 0 {
			keys = append(keys, strconv.Quote(q.Name(i)))
		}
	}
	text := ""
	if all := uint32(1)<<q.Charge.Len() - 1; o.Unanswered|o.Forbidden != all {
		text = "; for the other keys it is done"
	}
	return fmt.Errorf("weir: %w: %s is held by a member that takes no resets from other members: start all members with "+
		"--allow-reset (Cluster.RefuseResets)%s",
		weir.ErrForbidden, strings.Join(keys, ", "), text)
}

// Ready implements [engine.Decider].
func (m *member) Ready() error { return m.membership.Ready() }

// Close implements [engine.Decider].
func (m *member) Close() error { return m.end(false) }

// HandOver implements [weir.Cluster].
func (m *member) HandOver(ctx context.Context) error {
	if m.Closed.Load() {
		return weir.ErrClosed
	}
	_, err := m.handOver(ctx)
	return err
}

// Leave implements [weir.Cluster].
func (m *member) Leave(ctx context.Context) error {
	if m.Closed.Load() {
		return weir.ErrClosed
	}
	mine, err := m.handOver(ctx)
	switch {
	case errors.Is(err, weir.ErrClosed):
		return err
	case !mine && ctx.Err() == nil:
		err = nil // HandOver has reported it
	}
	countsOn := m.membership.CountsOn()
	if m.core.Goodbye(countsOn); countsOn {
		m.log.Warn("this node left while it saw no more than half of the others: it counts as a dead member until it is "+
			"back, or until an operator forgets it",
			"if it will not be back", "weir members forget "+m.config.Name)
	} else if goodbye := m.gossip.Leave(goodbyeWithin); goodbye != nil && !errors.Is(goodbye, gossip.ErrClosed) {
		// This happens if all members leave at once. Nothing is lost: the others have
		// seen that this node is leaving, and its state is handed over.
		m.log.Info("some members were not told that this node leaves", "reason", goodbye)
	}
	if m.Closed.Swap(true) {
		return weir.ErrClosed
	}
	return errors.Join(err, m.end(true))
}

// Members implements [weir.Cluster].
func (m *member) Members() []weir.Member {
	m.mu.Lock()
	members := m.members()
	m.mu.Unlock()
	self, shutOut := m.membership.Self().Name, m.membership.Expelled() != nil
	shares := m.core.View().Shares()
	out := make([]weir.Member, len(members))
	for i := range members {
		o := &members[i]
		info := weir.Member{
			Name: o.Name, Address: o.GossipAddr, Instance: o.Instance.String(), State: o.State.String(),
			GRPCAddr: o.GRPCAddr, HTTPAddr: o.HTTPAddr, AdminAddr: o.AdminAddr, Version: o.Version, ZoneData: o.ZoneData,
			RulesHash: o.RulesHash,
		}
		if o.State != peer.Dead {
			info.Share = shares[o.Instance]
		}
		info.Unreachable = m.unreachable(o, self)
		info.SentFrames, info.SentBytes = m.links.Sent(o.Instance)
		if o.Name == self {
			s := m.core.Summary()
			if shutOut {
				info.State = stateExpelled
			}
			info.Self, info.Keys, info.Checks, info.ChecksPerSecond = true, m.Table.Stats().Keys, m.checks.Load(), m.rate.Load()
			info.Lag, info.Unacknowledged = s.Lag.Duration(), s.Unacknowledged
		}
		out[i] = info
	}
	for _, name := range m.expelled() {
		out = append(out, weir.Member{Name: name, State: stateExpelled})
	}
	slices.SortStableFunc(out, func(a, b weir.Member) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// unreachable reports whether a member is known by gossip and has no connection to this
// node.
func (m *member) unreachable(o *peer.Member, self string) bool {
	return o.Name != self && o.State != peer.Dead && !m.core.Reaches(o.Instance)
}

// logProblem logs what keeps this node from holding what it should.
func (m *member) logProblem(p members.Problem) {
	whom := []any{"state", p.State.String(), "unsettled", p.Unsettled, "members", p.Others, "unreached", len(p.Unreached)}
	if len(p.Unreached) > 0 {
		whom = append(whom, "which", members.NameMembers(p.Unreached))
	}
	switch {
	case p.Awaited > 0:
		m.log.Warn("this node waits for other members before it begins a cluster with them (--expect): "+
			"start them, or correct what --join resolves to", "join", m.config.Join, "expect", m.config.Expect, "needed",
			p.Awaited, "met", p.Met, "sees", p.Others)
	case !p.Ready:
		m.log.Warn("this node sees others by gossip and has no connection to any, so it does not become ready: "+
			members.CheckPeerAddr, whom...)
	case p.Minority:
		m.log.Warn("this node is ready although not all partitions are settled, as it sees no more than half of the "+
			"members: "+
			"policies answer until it sees more, or those that do not come back are forgotten (weir members forget)", whom...)
	case len(p.Unreached) > 0:
		m.log.Warn("this node is ready although not all partitions are settled, as it has no connection to some members: "+
			members.CheckPeerAddr, whom...)
	default:
		m.log.Warn("this node is ready although not all partitions are settled: members may have too little CPU, or not "+
			"reach each other", whom...)
	}
}

// Stats implements [weir.Cluster].
func (m *member) Stats() (weir.ClusterStats, bool) {
	h := m.core.Summary()
	s := weir.ClusterStats{
		Members: map[string]int{}, Owned: h.Owned, Heirs: h.Heirs, Copies: h.Copies, Sealed: h.Sealed, Unsettled: h.Unsettled,
		Withheld: h.Withheld, Parked: h.Parked, Waiting: h.Waiting, Queued: h.Queued, Fallback: h.Fallback, Links: h.Links,
		Lag: h.Lag.Duration(), Unacknowledged: h.Unacknowledged, Events: map[string]uint64{},
	}
	m.mu.Lock()
	members := m.members()
	s.RulesDiffer, s.ZoneDataDiffers = m.rules.now != "", m.zones.now != ""
	m.mu.Unlock()
	_, s.ClockDifference = m.clockDifference()
	self := m.membership.Self()
	for i := range members {
		state := members[i].State.String()
		if o := &members[i]; o.Name == self.Name && m.membership.Expelled() != nil {
			state = stateExpelled
		} else if o.Name != self.Name && o.State != peer.Dead && !m.core.Met(o.Name, o.Instance) {
			state = "unmet"
		}
		s.Members[state]++
		if m.unreachable(&members[i], self.Name) {
			s.Unreachable++
		}
	}
	if n := len(m.expelled()); n > 0 {
		s.Members[stateExpelled] += n
	}
	v := m.core.View()
	s.Minority, s.Counted = minority(v), v.Recent
	s.Share = v.Shares()[self.Instance]
	for e := range core.Events {
		s.Events[e.String()] = m.core.Count(e)
	}
	s.Store = m.keeper.stats()
	s.Events["peer_refused"] = m.links.RefusedTLS()
	if c := m.certificates; c != nil {
		s.CertificateBegins, s.CertificateExpires = c.Validity()
		s.AuthorityBegins, s.AuthorityExpires = c.AuthoritiesValidity()
	}
	return s, true
}

package weir

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/gossip"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/peer"
	"github.com/weirlimit/weir/rules"
)

// enter begins something that the core is asked; the caller must call
// closing.RUnlock unless there is an error.
func (m *member) enter() error {
	m.closing.RLock()
	switch {
	case m.closed:
		m.closing.RUnlock()
		return ErrClosed
	case m.joining.Load():
		m.closing.RUnlock()
		return fmt.Errorf("%w: ask another one until it is ready", ErrJoining)
	}
	return nil
}

// decideTogether has the cluster decide a request.
func (n *Node) decideTogether(ctx context.Context, set *rules.Set, r *Request, d *Decision, peek bool) error {
	m := n.member
	if err := m.enter(); err != nil {
		return n.refused(err)
	}
	defer m.closing.RUnlock()
	c := new(limiter.Charge)
	match, err := set.Resolve(r, c)
	if err != nil {
		return n.refused(err)
	}
	c.Peek = peek
	if err := m.core.Check(ctx, c, d); err != nil {
		return n.refused(notAwaited(err, "the check may have been counted"))
	}
	m.checks.Add(1)
	n.decided(set, r, c, match, d, nil)
	return nil
}

// batchTogether has the cluster decide those requests of a batch that can be
// decided. Those of one owner travel together.
func (n *Node) batchTogether(ctx context.Context, set *rules.Set, rs []Request, ds []Decision) error {
	m := n.member
	if err := m.enter(); err != nil {
		return n.refused(err)
	}
	defer m.closing.RUnlock()
	var bad BatchError
	// They are not used again: a check that the deadline has ended may still be
	// looked at for a moment.
	charges := make([]limiter.Charge, len(rs))
	room, matches := n.roomForMatches(len(rs))
	defer n.matches.Put(room)
	for i := range rs {
		var err error
		if matches[i], err = set.Resolve(&rs[i], &charges[i]); err != nil {
			bad.add(i, &ds[i], n.refused(err))
			charges[i].Clear() // then nothing is asked
		}
	}
	undecided := m.core.CheckMany(ctx, charges, ds)
	m.checks.Add(uint64(len(rs) - len(bad.Index) - len(undecided)))
	var all BatchError
	var alike tally
	defer alike.tell(n.watch)
	for i := range rs {
		switch {
		case len(bad.Index) > 0 && bad.Index[0] == i:
			all.add(i, &ds[i], bad.Errs[0])
			bad.Index, bad.Errs = bad.Index[1:], bad.Errs[1:]
		case len(undecided) > 0 && undecided[0] == i:
			all.add(i, &ds[i], n.refused(notAwaited(ctx.Err(), "the check may have been counted")))
			undecided = undecided[1:]
		default:
			n.decided(set, &rs[i], &charges[i], matches[i], &ds[i], &alike)
		}
	}
	return all.orNil()
}

// roomForMatches returns memory for the matches of a batch, which is to be given back:
// that of an earlier batch, unless this one is larger than most.
func (n *Node) roomForMatches(of int) (room *[]rules.Match, matches []rules.Match) {
	const most = 1 << 12
	if room, _ = n.matches.Get().(*[]rules.Match); room == nil {
		room = new([]rules.Match)
	}
	if of > most {
		return room, make([]rules.Match, of)
	}
	*room = slices.Grow((*room)[:0], of)[:of]
	return room, *room
}

// notAwaited is the error where the context ended before the answer was there.
func notAwaited(err error, unknown string) error {
	return fmt.Errorf("weir: nobody waits for the answer any more, and %s: %w", unknown, err)
}

func (m *member) refund(ctx context.Context, c *limiter.Charge, r Receipt, name func(i int) string) error {
	if err := m.enter(); err != nil {
		return err
	}
	defer m.closing.RUnlock()
	done := make(chan cluster.Outcome, 1)
	m.core.Refund(c, r, func(o cluster.Outcome) { done <- o })
	select {
	case o := <-done: // the deadline bounds it
		return m.unanswered(c, o, "refund", "asked again, others' charges might be taken back; left alone, at most a little too much is denied", name)
	case <-ctx.Done():
		return notAwaited(ctx.Err(), "the refund may have been made")
	}
}

func (m *member) reset(ctx context.Context, c *limiter.Charge, name func(i int) string) (int, error) {
	if err := m.enter(); err != nil {
		return 0, err
	}
	defer m.closing.RUnlock()
	done := make(chan cluster.Outcome, 1)
	m.core.Reset(c, func(o cluster.Outcome) { done <- o })
	select {
	case o := <-done: // the deadline bounds it
		return o.Counters, errors.Join(refusing(c, o, name), m.unanswered(c, o, "reset", "ask again, which does no harm", name))
	case <-ctx.Done():
		return 0, notAwaited(ctx.Err(), "the keys may have been reset, all or some")
	}
}

// unanswered returns the error of a reset or refund that not all who hold the keys
// answered, nil if all did. It names those keys, and tells of which something may
// have been done; then is what to do about those.
func (m *member) unanswered(c *limiter.Charge, o cluster.Outcome, what, then string, name func(i int) string) error {
	if o.Unanswered == 0 {
		return nil
	}
	var not, maybe []string
	for i := range c.Len() {
		switch {
		case o.Maybe>>i&1 != 0:
			maybe = append(maybe, strconv.Quote(name(i)))
		case o.Unanswered>>i&1 != 0:
			not = append(not, strconv.Quote(name(i)))
		}
	}
	text := ""
	if len(maybe) > 0 {
		text = fmt.Sprintf("; the %s may have been done or not for %s: %s", what, strings.Join(maybe, ", "), then)
	}
	if len(not) > 0 {
		text += fmt.Sprintf("; there was no %s for %s: ask again", what, strings.Join(not, ", "))
	}
	if all := uint32(1)<<c.Len() - 1; o.Unanswered|o.Forbidden != all {
		text += "; for the other keys it is done"
	}
	return fmt.Errorf("weir: %w within %v%s", ErrUnanswered, m.config.Deadline, text)
}

// refusing returns the error of a reset that not all who hold the keys take from other
// members, nil if all do. It names those keys.
func refusing(c *limiter.Charge, o cluster.Outcome, name func(i int) string) error {
	if o.Forbidden == 0 {
		return nil
	}
	var keys []string
	for i := range c.Len() {
		if o.Forbidden>>i&1 != 0 {
			keys = append(keys, strconv.Quote(name(i)))
		}
	}
	text := ""
	if all := uint32(1)<<c.Len() - 1; o.Unanswered|o.Forbidden != all {
		text = "; for the other keys it is done"
	}
	return fmt.Errorf("weir: %w: %s is held by a member that takes no resets from other members: start all members with --allow-reset (Cluster.RefuseResets)%s",
		ErrForbidden, strings.Join(keys, ", "), text)
}

// Ready tells why the node should not be asked, nil if it may be. A node of a
// cluster is ready when it has joined and holds what it should, and stays so
// until it leaves; one that cannot get what it should hold (a minority, say) is
// ready ten seconds after it joined, and answers by policy. But a node that sees
// others, more than a minority, and can talk to none of them is not ready before it
// can, and does not join before. The errors wrap [ErrJoining], [ErrSettling] or
// [ErrLeaving], or are [ErrClosed].
func (n *Node) Ready() error {
	switch {
	case n.closed.Load():
		return ErrClosed
	case n.member == nil:
		return nil
	}
	return n.member.membership.Ready()
}

// HandOver is the first half of [Node.Leave]: the node hands over what it holds,
// and goes on to take checks, which others decide. A program ends its servers
// between HandOver and Leave, so that nobody is turned away. Called while it is
// under way it waits for the same end. The errors are those of Leave, and
// [ErrNoCluster].
func (n *Node) HandOver(ctx context.Context) error {
	switch {
	case n.closed.Load():
		return ErrClosed
	case n.member == nil:
		return ErrNoCluster
	}
	_, err := n.member.handOver(ctx)
	return err
}

// Leave ends the node in good order: it hands over what it holds, says goodbye
// to the other members, and closes. Until then checks go on. It takes a fraction
// of a second, and 14 seconds at most. If the context ends before, or not all
// could be handed over, the node is closed all the same, the others go on from
// the copies that they have, and the error says so. It is [ErrClosed] where the
// node is closed; without a cluster Leave is Close.
func (n *Node) Leave(ctx context.Context) error {
	if n.closed.Load() {
		return ErrClosed
	}
	if n.member == nil {
		return n.Close()
	}
	mine, err := n.member.handOver(ctx)
	switch {
	case errors.Is(err, ErrClosed):
		return err
	case !mine && ctx.Err() == nil:
		err = nil // HandOver has said it
	}
	if goodbye := n.member.gossip.Leave(goodbyeWithin); goodbye != nil && !errors.Is(goodbye, gossip.ErrClosed) {
		// As where all leave at once. Nothing is lost by it: the state was seen to
		// be leaving, and what was kept is handed over.
		n.member.log.Info("not all members have heard the goodbye", "reason", goodbye)
	}
	if n.closed.Swap(true) {
		return ErrClosed
	}
	return errors.Join(err, n.member.close(true))
}

// Members returns the members of the cluster as this node sees them, by name;
// nil without a cluster. Of itself it tells more than of the others.
func (n *Node) Members() []MemberInfo {
	if n.member == nil {
		return nil
	}
	return n.member.infos(n)
}

func (m *member) infos(n *Node) []MemberInfo {
	m.mu.Lock()
	members := m.members()
	m.mu.Unlock()
	self := m.membership.Self().Name
	shares := m.core.View().Shares()
	out := make([]MemberInfo, len(members))
	for i := range members {
		o := &members[i]
		info := MemberInfo{
			Name: o.Name, Address: o.GossipAddr, Instance: o.Instance.String(), State: o.State.String(),
			GRPCAddr: o.GRPCAddr, HTTPAddr: o.HTTPAddr, AdminAddr: o.AdminAddr, Version: o.Version, RulesHash: o.RulesHash,
		}
		if o.State != peer.Dead {
			info.Share = shares[o.Instance]
		}
		info.Unreachable = m.unreachable(o, self)
		if o.Name == self {
			s := m.core.Summary()
			info.Self, info.Keys, info.Checks, info.ChecksPerSecond = true, n.table.Stats().Keys, m.checks.Load(), m.rate.Load()
			info.Lag, info.Unacknowledged = s.Lag.Duration(), s.Unacknowledged
		}
		out[i] = info
	}
	return out
}

// unreachable tells whether a member gossips and has no connection to this node.
func (m *member) unreachable(o *peer.Member, self string) bool {
	return o.Name != self && o.State != peer.Dead && !m.core.Reaches(o.Instance)
}

// worry says what keeps this node from holding what it should.
func (m *member) worry(w cluster.Worry) {
	whom := []any{"state", w.State.String(), "unsettled", w.Unsettled, "members", w.Others, "unreached", len(w.Unreached)}
	if len(w.Unreached) > 0 {
		whom = append(whom, "which", cluster.NameMembers(w.Unreached))
	}
	switch {
	case !w.Ready:
		m.log.Warn("this node sees others by gossip and has no connection to any, so it does not become ready: "+cluster.CheckPeerAddr, whom...)
	case w.Minority:
		m.log.Warn("this node is ready although not all partitions are settled, as it sees no more than half of the members: "+
			"policies answer until it sees more, or those that do not come back are forgotten (weir members forget)", whom...)
	case len(w.Unreached) > 0:
		m.log.Warn("this node is ready although not all partitions are settled, as it has no connection to some members: "+cluster.CheckPeerAddr, whom...)
	default:
		m.log.Warn("this node is ready although not all partitions are settled: members may have too little CPU, or not reach each other", whom...)
	}
}

// Forget has a dead member count no more, for whatever asks for every member or
// a majority: for one that will never come back. The others hear of it. If it
// does come back it is a member again. The error wraps [ErrUnknownMember] or
// [ErrInvalid], the latter for a live member, or is [ErrNoCluster] or
// [ErrClosed].
func (n *Node) Forget(name string) error {
	switch {
	case n.closed.Load():
		return ErrClosed
	case n.member == nil:
		return ErrNoCluster
	}
	m := n.member
	err := m.gossip.Forget(name)
	known := m.membership.Forget(name)
	switch {
	case err == nil || errors.Is(err, gossip.ErrUnknown) && known:
		return nil
	case errors.Is(err, gossip.ErrAlive):
		return fmt.Errorf("%w: member %q is alive: have it leave, by ending it with SIGTERM", ErrInvalid, name)
	case errors.Is(err, gossip.ErrUnknown):
		return fmt.Errorf("%w: %q", ErrUnknownMember, name)
	}
	return err
}

// ClusterStats returns what the node is to the cluster; false without one.
func (n *Node) ClusterStats() (ClusterStats, bool) {
	if n.member == nil {
		return ClusterStats{}, false
	}
	m := n.member
	s := ClusterStats{Members: map[string]int{}, Summary: m.core.Summary(), Events: map[string]uint64{}}
	m.mu.Lock()
	members := m.members()
	s.RulesDiffer = m.differ != ""
	m.mu.Unlock()
	self := m.membership.Self()
	for i := range members {
		s.Members[members[i].State.String()]++
		if m.unreachable(&members[i], self.Name) {
			s.Unreachable++
		}
	}
	s.Share = m.core.View().Shares()[self.Instance]
	for e := range cluster.Events {
		s.Events[e.String()] = m.core.Count(e)
	}
	return s, true
}

package gossip

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
)

// delegate implements memberlist's callbacks. Memberlist calls the methods about nodes
// under its own lock, so they copy what they are given, update the roster and return.
// None of them calls memberlist.
type delegate struct{ g *Gossip }

// NodeMeta returns this node's metadata.
func (d delegate) NodeMeta(int) []byte {
	defer d.g.cfg.Panicked.catch()
	self := d.g.own()
	meta, _ := self.encode() // it was encoded as it was set
	return meta
}

// GetBroadcasts returns messages about members that left or were forgotten, while they
// are news.
func (d delegate) GetBroadcasts(overhead, limit int) [][]byte {
	defer d.g.cfg.Panicked.catch()
	return d.g.news.GetBroadcasts(overhead, limit)
}

// NotifyMsg processes a message that members left or were forgotten.
func (d delegate) NotifyMsg(b []byte) {
	defer d.g.cfg.Panicked.catch()
	d.g.hear(b)
}

// LocalState returns the list of members that are gone.
func (d delegate) LocalState(bool) []byte {
	defer d.g.cfg.Panicked.catch()
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	return encodeGone(d.g.roster.departed(), time.Now())
}

// MergeRemoteState processes another node's list of members that are gone.
func (d delegate) MergeRemoteState(b []byte, _ bool) {
	defer d.g.cfg.Panicked.catch()
	d.g.hear(b)
}

// hear processes a list of members that are gone.
func (g *Gossip) hear(b []byte) {
	now := time.Now()
	list, err := decodeGone(b, now)
	if err != nil {
		g.log.write(slog.LevelWarn, "list", "another node sent a list that cannot be read: it may be of another version",
			slog.Any("error", err))
		return
	}
	for i := range list {
		g.claims.doubt(&list[i], now)
	}
	list = slices.DeleteFunc(list, func(r gone) bool { return !g.cfg.vouched(&r) })
	for _, r := range g.merge(list, now) {
		g.spread(r, now)
	}
}

// vouched reports whether to believe a record of a member that is gone.
func (c *Config) vouched(r *gone) bool {
	return c.Vouched == nil || c.Vouched(r.known())
}

// merge adds a list to the roster. It returns the records that others should get without
// waiting for an exchange of views. Memberlist itself spreads deaths.
func (g *Gossip) merge(list []gone, now time.Time) (news []gone) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range list {
		if g.roster.merge(r, now) {
			signal(g.wake)
			if r.fate != dead {
				news = append(news, r)
			}
		}
	}
	return news
}

// spread puts a record of a member that is gone into the packets of the next rounds. mu
// must not be held: the queue takes it.
func (g *Gossip) spread(r gone, now time.Time) {
	g.news.QueueBroadcast(news{r.Name, encodeGone([]gone{r}, now)})
	g.news.Prune(maxGone)
}

// news is a message about one member that spreads from node to node.
type news struct {
	about   string
	message []byte
}

// Invalidates reports whether other is about the same member, so that n replaces it.
func (n news) Invalidates(other memberlist.Broadcast) bool {
	o, ok := other.(news)
	return ok && o.about == n.about
}

// Message returns the bytes to send.
func (n news) Message() []byte { return n.message }

// Finished is called after the message was sent often enough. It does nothing.
func (n news) Finished() {}

// NotifyJoin adds a node to the roster.
func (d delegate) NotifyJoin(n *memberlist.Node) {
	defer d.g.cfg.Panicked.catch()
	d.g.seen(n)
}

// NotifyUpdate is called when a node's metadata changed, or a later run of it was seen.
func (d delegate) NotifyUpdate(n *memberlist.Node) {
	defer d.g.cfg.Panicked.catch()
	d.g.seen(n)
}

// NotifyLeave is called when a node died or left; memberlist does not say which.
func (d delegate) NotifyLeave(n *memberlist.Node) {
	defer d.g.cfg.Panicked.catch()
	if d.g.guard.sources.of(goneClaim(n.Name)) != "" {
		d.g.claims.doubtDeparture(n)
	}
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	if d.g.roster.lost(n.Name, time.Now(), d.g.cfg.vouched) {
		signal(d.g.wake)
	}
}

func (g *Gossip) seen(n *memberlist.Node) {
	a, err := aboutNode(n)
	if err != nil {
		return // NotifyAlive has refused such a node
	}
	g.claims.doubt(&gone{about: a}, time.Now())
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.roster.alive(a) {
		signal(g.wake)
	}
	if len(g.roster.live) > 0 {
		g.join.meet()
	}
}

// aboutNode decodes and copies what a node tells about itself.
func aboutNode(n *memberlist.Node) (about, error) {
	a, err := decode(n.Meta)
	a.Name, a.GossipAddr = strings.Clone(n.Name), addrOf(n)
	return a, err
}

func addrOf(n *memberlist.Node) string {
	return net.JoinHostPort(n.Addr.String(), strconv.Itoa(int(n.Port)))
}

// NotifyAlive refuses nodes that do not belong here, however they were heard of.
func (d delegate) NotifyAlive(n *memberlist.Node) (err error) {
	defer d.g.cfg.Panicked.catchErr(&err)
	r := d.g.judge(n)
	if r == nil && d.g.strange(n.Name) {
		r = &refusal{kind: ErrFull, name: "", addr: addrOf(n), text: fmt.Sprintf(
			"node %q comes after %d others in a minute that no member knows: something invents members, and a gossip key "+
				"keeps it out", clip(n.Name), maxNames)}
	}
	if r == nil {
		return nil
	}
	d.g.note(*r)
	return r
}

func (g *Gossip) strange(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.roster.strange(name, time.Now())
}

// NotifyMerge is called on both sides of a join, with the nodes that the other side
// knows. It refuses a node that must not join, and prevents this node from joining the
// wrong cluster. It is not called under memberlist's lock.
func (d delegate) NotifyMerge(nodes []*memberlist.Node) (err error) {
	defer d.g.cfg.Panicked.catchErr(&err)
	d.g.join.mirror(nodes)
	var kept *refusal // of a node that is kept out
	welcome := false  // whether another is not
	for _, n := range nodes {
		if n.State == memberlist.StateLeft {
			d.g.claims.doubtDeparture(n)
		}
		if n.State == memberlist.StateDead || n.State == memberlist.StateLeft {
			if n.Name != d.g.cfg.Name {
				continue
			}
		}
		r := d.g.judge(n)
		if r == nil {
			if r = d.g.namesakes.conflict(n, nodes); r != nil {
				d.g.namesakes.suspect(r.addr)
			}
		}
		if r != nil && breaksMerge(r) {
			d.g.note(*r)
			return r
		}
		if r != nil {
			kept = r
		}
		welcome = welcome || r == nil && n.Name != d.g.cfg.Name
	}
	if kept != nil && !welcome {
		d.g.note(*kept)
		return kept
	}
	return nil
}

// NotifyConflict is called if a node has the name of another one, at another address,
// that is alive or has been dead for less than reclaimAfter. Memberlist ignores the
// newcomer.
func (d delegate) NotifyConflict(existing, other *memberlist.Node) {
	defer d.g.cfg.Panicked.catch()
	if other.Name == d.g.cfg.Name {
		d.g.namesakes.suspect(addrOf(other))
	}
	d.g.note(refusal{kind: ErrNameTaken, name: other.Name, addr: addrOf(existing), claimed: addrOf(other),
		text: fmt.Sprintf(
			"node %q at %s is kept out: a node of that name is at %s, alive or dead for less than %v; give one of them another "+
				"name, or wait",
			other.Name, addrOf(other), addrOf(existing), reclaimAfter)})
}

// refusal is the reason why a node is refused. Its text is searched for in memberlist's
// errors, which keep nothing else of it.
type refusal struct {
	kind error
	// name and addr are those of the other node.
	name, addr string
	// claimed is the address at which the refused node says it is, if that is not addr.
	claimed string
	text    string
	// older and moved are set for a taken name: whether the other run was started before
	// this one, and whether another member is at its address by now.
	older, moved bool
}

func (r refusal) Error() string { return r.kind.Error() + ": " + r.text }
func (r refusal) Unwrap() error { return r.kind }

// judge returns the reason why a node does not belong here; nil if it does.
func (g *Gossip) judge(n *memberlist.Node) *refusal {
	addr := addrOf(n)
	say := func(kind error, format string, args ...any) *refusal {
		return &refusal{kind: kind, name: n.Name, addr: addr,
			text: fmt.Sprintf("node %q at %s ", clip(n.Name), addr) + fmt.Sprintf(format, args...)}
	}
	a, err := decode(n.Meta)
	if len(n.Meta) > memberlist.MetaMaxSize {
		err = errMeta
	}
	switch {
	case err != nil:
		return say(ErrForeign, "cannot be understood: %v", err)
	case !isAddr(addr) || n.Port == 0:
		return say(ErrForeign, "has an impossible address")
	case CheckName(n.Name) != nil:
		return say(ErrForeign, "has an impossible name: %v", CheckName(n.Name))
	case a.cluster != g.cfg.ClusterName:
		return say(ErrOtherCluster,
			"belongs to the cluster %q, this one to %q: join nodes of one cluster, or give both the same cluster name",
			a.cluster, g.cfg.ClusterName)
	case a.ring != g.cfg.RingConfig:
		return say(ErrOtherRing, "has the ring configuration %016x, this one %016x: they need one version of Weir", a.ring,
			g.cfg.RingConfig)
	case a.secret != g.cfg.SecretMark && (a.secret == 0 || a.secret != g.cfg.SecondMark):
		return say(ErrOtherSecret, "%s: give all members the same, or none", g.cfg.secrets(a.secret))
	}
	if r := g.atItself(n.Name, addr); r != nil {
		return r
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.roster.live[n.Name]; !known && n.Name != g.cfg.Name && g.full(n.Name) {
		return say(ErrFull, "would be one more than the %d that a cluster can have", MaxMembers)
	}
	return nil
}

// full reports whether there is no room for a node that is not live. A member that was
// here before has room as long as the live ones that are members too leave it: without a
// key strangers can invent live nodes, and must not keep it out. g.mu is held.
func (g *Gossip) full(name string) bool {
	if len(g.roster.live)+1 < MaxMembers {
		return false
	}
	if _, was := g.roster.gone[name]; !was {
		return true
	}
	members := 0
	for _, a := range g.roster.live {
		if g.cfg.vouched(&gone{about: a}) {
			members++
		}
	}
	return members+1 >= MaxMembers
}

// secrets tells how another node's secret differs from this node's.
func (c *Config) secrets(mark uint64) string {
	switch {
	case mark == 0:
		return "has no secret, and this one has"
	case c.SecretMark == 0:
		return "has a secret, and this one has none"
	default:
		return "has another secret than this one"
	}
}

// note logs and remembers that a node was refused.
func (g *Gossip) note(r refusal) {
	from := cmp.Or(r.claimed, r.addr)
	if g.ring == nil && g.guard != nil {
		from = g.guard.whence(aliveClaim(r.name, from), from)
	}
	g.refusals.log(func() {
		g.log.write(slog.LevelWarn, "refused "+r.kind.Error()+r.name, "a node is kept out", slog.Any("reason", r))
		g.log.reportRefused(r.kind.Error()+r.name, from, r.Error())
	})
	g.refusals.keep(r)
}

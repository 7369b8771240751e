package cluster

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	core "github.com/weirlimit/weir/internal/cluster"
	"github.com/weirlimit/weir/internal/cluster/gossip"
	"github.com/weirlimit/weir/internal/cluster/members"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/internal/peerlink"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
)

// Bounds of the parts of an orderly end.
const (
	goodbyeWithin  = 2 * time.Second
	hangUpWithin   = 2 * time.Second // more than a link takes to say farewell to a node that does not answer
	preparedAlways = 64              // members for which successors are computed when the ring is built
)

// member is a node's membership of a cluster: the core, gossip, the links, and what
// connects them.
type member struct {
	*engine.Node
	config     Config
	network    network
	log        *slog.Logger
	sched      *scheduler
	core       *core.Core
	gossip     *gossip.Gossip
	links      *peerlink.Links
	membership *members.Membership
	decider    *decider
	census     *census
	reports    *reports
	protection *protection
	announcer  *announcer
	handover   *handover

	guard   *guard.Guard // recovers from panics that other members can cause
	placed  atomic.Pointer[placed]
	keeper  *keeper       // writes to the store; nil without one
	ended   chan struct{} // closed when the member begins to close
	serving sync.WaitGroup
}

func (c *Config) open(ctx context.Context, n *engine.Node, on network) (_ *member, err error) {
	m := &member{Node: n, network: on, ended: make(chan struct{})}
	m.decider, m.census, m.reports = &decider{member: m}, &census{member: m}, &reports{member: m}
	m.protection, m.announcer = &protection{member: m}, &announcer{member: m}
	m.handover = &handover{member: m, ended: make(chan struct{})}
	if m.config, err = c.withDefaults(); err != nil {
		return nil, err
	}
	if err := m.config.loadGossipKeys(); err != nil {
		return nil, err
	}
	m.log = cmp.Or(m.config.Logger, n.Log)
	if err := m.protection.load(ctx); err != nil {
		return nil, err
	}
	m.guard = guard.New(m.log, n.Observer.Panicked)
	if m.keeper, err = openKeeper(m); err != nil {
		return nil, err
	}
	defer func() { err = m.keeper.unless(err) }()
	m.sched = &scheduler{opened: n.Opened, start: limiter.TickOf(n.Opened) + on.skew, guard: m.guard}
	listen := m.network.listen
	if listen == nil {
		listen = func(ctx context.Context, addr string) (net.Listener, error) {
			return new(net.ListenConfig).Listen(ctx, "tcp", addr)
		}
	}
	peers, err := listen(ctx, m.config.PeerAddr)
	if err != nil {
		return nil, fmt.Errorf("weir: cannot listen for other members on Cluster.PeerAddr %q: %w", m.config.PeerAddr, err)
	}
	w := &wire{}
	self, err := m.startGossip(ctx, peers.Addr().String(), w)
	if err != nil {
		return nil, errors.Join(err, peers.Close())
	}
	if err := m.assemble(self, peers, w); err != nil {
		return nil, errors.Join(err, m.gossip.Close(), peers.Close())
	}
	return m, nil
}

// startGossip starts gossip and returns this node's description of itself. Other members reach it at addr.
func (m *member) startGossip(ctx context.Context, addr string, w *wire) (peer.Member, error) {
	host := m.config.Advertise
	if h, _, err := net.SplitHostPort(addr); err == nil && host == "" {
		if ip := net.ParseIP(h); ip != nil && !ip.IsUnspecified() {
			host = h
		}
	}
	instance, err := newInstance()
	if err != nil {
		return peer.Member{}, err
	}
	self := peer.Member{
		Name: m.config.Name, Instance: instance, State: peer.Active,
		PeerAddr: addr, GRPCAddr: m.config.GRPCAddr, HTTPAddr: m.config.HTTPAddr,
		AdminAddr: m.config.AdminAddr,
		RulesHash: m.Rules.Load().Hash(), Wire: peerlink.Wire, Version: m.config.Version, ZoneData: limiter.ZoneDataVersion(),
	}
	if len(m.config.Join) > 0 {
		self.State = peer.Joining
		m.announcer.joining.Store(true)
	}
	meta := func(gossips string) peer.Member {
		m.advertise(&self, cmp.Or(host, gossips))
		return self
	}
	m.gossip, err = gossip.Open(ctx, gossip.Config{
		Name: self.Name, Instance: instance, ClusterName: m.clusterName(), RingConfig: ring.ConfigHash(),
		SecretMark: gossip.SecretMark(m.Secret, m.clusterName()),
		SecondMark: gossip.SecretMark(m.SecondSecret, m.clusterName()), BindAddr: m.config.GossipAddr,
		Advertise: m.config.Advertise, Join: m.config.Join, Keys: m.config.GossipKeys,
		Meta: meta, Logger: m.log, OnMembers: m.census.take, Refused: m.config.PeerRefused,
		Vouched:  func(k peer.Known) bool { c := w.core.Load(); return c != nil && c.Vouched(k) },
		Panicked: func(v any) { m.guard.Caught(guard.Gossip, v) },
		Listen:   m.network.gossip, Resolve: m.network.resolve,
	})
	return self, err
}

// clusterName returns the name that keys the hash of counters together with the secret.
func (m *member) clusterName() string { return cmp.Or(m.ClusterName, rules.DefaultClusterName) }

// advertise completes the addresses that others are told.
func (m *member) advertise(self *peer.Member, host string) {
	if m.config.Advertise != "" {
		_, port, _ := net.SplitHostPort(self.PeerAddr) // the address of a listener is valid
		self.PeerAddr = net.JoinHostPort(host, port)
	}
	self.PeerAddr = reachable(self.PeerAddr, host)
	self.GRPCAddr, self.HTTPAddr = reachable(self.GRPCAddr, host), reachable(self.HTTPAddr, host)
	self.AdminAddr = reachableAdmin(self.AdminAddr, host)
}

func newInstance() (peer.Instance, error) {
	var b [8]byte
	if _, err := crand.Read(b[:]); err != nil {
		return 0, fmt.Errorf("weir: cannot draw a random instance number: %w", err)
	}
	return peer.Instance(binary.BigEndian.Uint64(b[:]) | 1), nil // 0 is not an instance
}

// assemble makes and starts the core, the links and the membership.
func (m *member) assemble(self peer.Member, peers net.Listener, w *wire) error {
	var clock func(limiter.Tick) limiter.Tick
	if m.Clock != nil {
		clock = func(limiter.Tick) limiter.Tick { return m.Now() } // for counters only: the protocol waits in real time
	}
	config := core.Config{
		Self: self, Table: m.Table, Fallback: table.New(m.Tables), Scheduler: m.sched, Network: w,
		Rand:     rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		Rule:     func(name string) *limiter.Rule { return m.Rules.Load().Rule(name) },
		Deadline: limiter.Tick(m.config.Deadline / limiter.TickDuration), Seeds: m.seeds(), Observer: m.reports,
		Clock:         clock,
		CachedDenials: m.config.CachedDenials, RefuseResets: m.config.RefuseResets,
		Panicked: func(v any) { m.guard.Caught(guard.Cluster, v) },
		Tracer:   m.config.Tracer, Note: m.config.Notes.take,
	}
	m.keeper.configure(&config)
	m.core = core.New(config)
	m.keeper.restore(m.core)
	w.core.Store(m.core)
	var err error
	m.links, err = peerlink.New(peerlink.Config{
		Self: self, ClusterName: m.clusterName(), RingConfig: ring.ConfigHash(), Secret: m.Secret,
		SecondSecret: m.SecondSecret, Frames: m.core, Logger: m.log,
		Certificates: m.protection.certificates, TLSOptional: m.config.PeerTLSOptional, Refused: m.config.PeerRefused,
		Expelled: m.core.Registry().Expelled,
		Panicked: func(v any) { m.guard.Caught(guard.Link, v) }, Dial: m.network.dial,
	})
	if err != nil {
		return err
	}
	w.links.Store(m.links)
	about := members.Config{
		Core: m.core, Self: self, Scheduler: m.sched, Ring: newRing,
		Expels: m.links.Expels, Publish: m.announcer.publish, Report: m.logProblem, Changed: m.census.list,
		RingFailed: func(err error) { m.log.Error("the ring of the members cannot be built", "error", err) },
	}
	if len(m.config.Join) > 0 {
		about.Seeds, about.Expect, about.Mute = m.gossip.JoinAddresses, m.config.Expect, m.gossip.Mute
	}
	m.serving.Go(func() {
		if err := m.links.Serve(peers); err != nil {
			m.log.Error("the peer listener failed: other members cannot reach this node", "error", err)
		}
	})
	m.protection.watchCertificates()
	m.protection.watchGossipKeys()
	m.membership = members.New(about)
	m.census.begin()
	if n := m.config.Notes; n != nil {
		if err := n.open(m); err != nil {
			return err
		}
		m.serving.Go(func() { n.watch(m) })
	}
	m.sched.After(reportEvery, m.reports.write)
	m.keeper.begin()
	if m.protection.lacks != nil {
		m.protection.warnInsecure()
	}
	return nil
}

// seeds returns the number of members that a joining node must take to exist: the
// addresses to join by, or Expect if that is more; 0 for a node that joins no cluster.
func (m *member) seeds() int {
	if len(m.config.Join) == 0 {
		return 0
	}
	return max(m.gossip.JoinAddresses(), m.config.Expect)
}

// newRing builds a ring and computes the successors for up to preparedAlways members.
func newRing(names []string) (view.Ring, error) {
	r, err := ring.New(names)
	if err != nil {
		return nil, err
	}
	for i := range names[:min(len(names), preparedAlways)] {
		r.Prepare(i)
	}
	return r, nil
}

// wire has what is called by parts that begin before it: the core tells the links that it has something to send,
// and gossip asks the core whom other members vouch for.
type wire struct {
	links atomic.Pointer[peerlink.Links]
	core  atomic.Pointer[core.Core]
}

// Wake implements core.Network.
func (w *wire) Wake(to peer.Instance) {
	if l := w.links.Load(); l != nil {
		l.Wake(to)
	}
}

// end closes the member. If orderly, frames that wait for other members are sent first.
func (m *member) end(orderly bool) error {
	close(m.ended)
	m.decider.close()
	m.membership.Close()
	err := m.gossip.Close()
	if orderly {
		ctx, cancel := context.WithTimeout(context.Background(), hangUpWithin)
		defer cancel()
		err = errors.Join(err, m.links.Shutdown(ctx))
	}
	m.links.Close()
	m.keeper.end()
	m.core.Close()
	m.sched.close()
	m.serving.Wait()
	return err
}

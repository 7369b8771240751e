package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/weirlimit/weir/internal/peer"
)

// Gossip is one node's part in gossip. It is safe for concurrent use.
type Gossip struct {
	cfg  Config
	log  *throttledLog
	news *memberlist.TransmitLimitedQueue
	ring *keyring // nil if gossip is not encrypted
	ml   *memberlist.Memberlist
	// guard is memberlist's transport.
	guard *guard

	// mu is taken by the delegate's methods under memberlist's own lock. So nothing of
	// memberlist is called while mu is held.
	mu      sync.Mutex
	self    about
	roster  *roster
	leaving bool

	wake      chan struct{} // holds one token if members may have changed
	changed   chan struct{} // holds one token if self changed
	refusals  *refusals
	claims    *claims
	namesakes *namesakes
	join      *joiner

	life   sync.Mutex // held by Leave and Close
	closed bool
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// Open starts to listen and to join. It returns when each address to join by has been
// tried once, but after 2 s at most. It is no error if none answers, because this node
// may be the first. It is an error, one of this package's, wrapped, if nodes refuse this
// node for a lasting reason and none lets it in, or if one refuses it because a live
// node that was started earlier has its name. ctx bounds only the opening.
//
// The caller must call [Gossip.Close].
func Open(ctx context.Context, cfg Config) (*Gossip, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	g := &Gossip{
		cfg: cfg, wake: make(chan struct{}, 1), changed: make(chan struct{}, 1), roster: newRoster(cfg.Name),
		refusals: &refusals{opening: true},
	}
	g.join, g.claims, g.namesakes = &joiner{g: g}, &claims{g: g}, &namesakes{g: g, at: map[string]bool{}}
	g.news = &memberlist.TransmitLimitedQueue{NumNodes: g.size, RetransmitMult: profile().RetransmitMult}
	g.self = about{cluster: cfg.ClusterName, ring: cfg.RingConfig, secret: cfg.SecretMark,
		started: uint64(time.Now().UnixMilli())}
	g.log = newThrottledLog(cfg.Logger, time.Now)
	g.log.refused = cfg.Refused
	g.wg.Go(g.log.run)
	if err := g.start(ctx); err != nil {
		g.log.close()
		g.wg.Wait()
		return nil, err
	}
	if err := g.join.begin(ctx); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	g.refusals.release()
	return g, nil
}

// size returns the number of live members, this node included.
func (g *Gossip) size() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.roster.live) + 1
}

func (g *Gossip) start(ctx context.Context) error {
	conf := profile()
	conf.Name = g.cfg.Name
	conf.Logger = slog.NewLogLogger(lines{g.log}, slog.LevelInfo)
	d := delegate{g}
	conf.Delegate, conf.Events, conf.Alive, conf.Merge, conf.Conflict = d, d, d, d, d
	if len(g.cfg.Keys) > 0 {
		g.ring = new(keyring)
		if err := g.ring.set(g.cfg.Keys); err != nil {
			return err
		}
		conf.Keyring = &g.ring.Keyring
	}
	ip, port, err := g.cfg.advertised(ctx)
	if err != nil {
		return err
	}
	transport, bound, err := g.cfg.listen(ctx, conf)
	if err != nil {
		return err
	}
	conf.BindPort = bound
	conf.AdvertiseAddr, conf.AdvertisePort = ip, port
	if port == 0 {
		conf.AdvertisePort = conf.BindPort
	}
	guarded := newGuard(transport, g.ring == nil, g.log, g.cfg.Panicked)
	g.guard = guarded
	conf.Transport = guarded
	if g.cfg.wrap != nil {
		conf.Transport = g.cfg.wrap(guarded)
	}
	addr, err := ownAddr(transport, conf)
	if err == nil {
		g.self.GossipAddr = addr
		err = g.describe(g.cfg.tells(addr))
	}
	if err == nil {
		g.join.init(g.cfg.Join, addr, g.cfg.ownAddrs(conf.BindPort))
		g.ml, err = memberlist.Create(conf)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("gossip: cannot start on %q: %w", g.cfg.BindAddr, err), abandon(guarded))
	}
	run, cancel := context.WithCancel(context.Background())
	g.cancel = cancel
	g.wg.Go(func() { g.deliver(run) })
	g.wg.Go(func() { g.announce(run) })
	signal(g.wake)
	return nil
}

// abandon closes a transport that has no reader: its shutdown waits until everything
// that has arrived is read.
func abandon(t memberlist.Transport) error {
	done := make(chan error, 1)
	go func() { done <- t.Shutdown() }()
	for {
		select {
		case <-t.PacketCh():
		case c := <-t.StreamCh():
			_ = c.Close() // it was never used
		case err := <-done:
			return err
		}
	}
}

// ownAddr returns the address that memberlist will advertise.
func ownAddr(t memberlist.Transport, conf *memberlist.Config) (string, error) {
	ip, port, err := t.FinalAdvertiseAddr(conf.AdvertiseAddr, conf.AdvertisePort)
	if err != nil {
		return "", fmt.Errorf("%w: say which address others reach this node by, as the address to advertise", err)
	}
	if ip.IsUnspecified() {
		return "", errors.New("it is bound to every address: say which one others reach it by, as the address to advertise")
	}
	return net.JoinHostPort(ip.String(), strconv.Itoa(port)), nil
}

// ownAddrs returns the addresses of this node on this machine, so that an address to
// join by that means this node is recognised.
func (c *Config) ownAddrs(port int) []string {
	host, _, err := net.SplitHostPort(c.BindAddr)
	if err == nil && host != "" && host != "0.0.0.0" && host != "::" {
		return []string{net.JoinHostPort(host, strconv.Itoa(port))}
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil // then it joins itself, which is detected
	}
	var out []string
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			out = append(out, net.JoinHostPort(n.IP.String(), strconv.Itoa(port)))
		}
	}
	return out
}

// own returns what this node tells of itself.
func (g *Gossip) own() about {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.self
}

// describe sets what this node tells the others about itself.
func (g *Gossip) describe(m peer.Member) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.self
	a.Member = m
	a.Name, a.Instance, a.GossipAddr = g.cfg.Name, g.cfg.Instance, g.self.GossipAddr
	if m.State > peer.Leaving {
		return fmt.Errorf("gossip: no node says of itself that it is %s", m.State)
	}
	if _, err := a.encode(); err != nil {
		return err
	}
	g.self = a
	return nil
}

// Update changes what this node tells the others about itself: state, hash of the rules,
// addresses. Name, Instance and GossipAddr stay. It returns at once; the others know
// after a few rounds of gossip, usually within 0.2 s. The error is [ErrMeta] or
// [ErrClosed].
func (g *Gossip) Update(meta peer.Member) error {
	g.mu.Lock()
	over := g.leaving
	g.mu.Unlock()
	if over {
		return ErrClosed
	}
	if err := g.describe(meta); err != nil {
		return err
	}
	signal(g.changed)
	signal(g.wake)
	return nil
}

// announce spreads changes of this node's metadata.
func (g *Gossip) announce(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.changed:
		}
		g.mu.Lock()
		over := g.leaving
		g.mu.Unlock()
		if over {
			return // memberlist must not be called after it was told to leave
		}
		// The error means that the update has not spread within the time. Nothing waits
		// for that, and the next update must not wait for this one.
		_ = g.ml.UpdateNode(time.Nanosecond)
	}
}

// deliver reports changes of members to OnMembers and the log.
func (g *Gossip) deliver(ctx context.Context) {
	var last []peer.Member
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.wake:
		}
		last = g.deliverSince(last)
	}
}

// deliverSince reports what changed since the members were last, and returns the present
// members.
func (g *Gossip) deliverSince(last []peer.Member) (now []peer.Member) {
	defer g.cfg.Panicked.catch()
	now = g.Members()
	if slices.Equal(now, last) {
		return now
	}
	g.logChanges(last, now)
	if g.cfg.OnMembers != nil {
		g.cfg.OnMembers(slices.Clone(now))
	}
	return now
}

func (g *Gossip) logChanges(before, after []peer.Member) {
	was := make(map[string]peer.Member, len(before))
	for _, m := range before {
		was[m.Name] = m
	}
	say := func(text string, m peer.Member) {
		g.log.writeNews(text, slog.String("member", m.Name), slog.String("address", m.GossipAddr),
			slog.String("instance", m.Instance.String()))
	}
	for _, m := range after {
		old, known := was[m.Name]
		delete(was, m.Name)
		switch {
		case m.Name == g.cfg.Name:
		case m.State == peer.Dead && (!known || old.State != peer.Dead):
			say("a member died", m)
		case m.State != peer.Dead && (!known || old.State == peer.Dead):
			say("a member joined", m)
		case known && old.Instance != m.Instance:
			say("a member restarted", m)
		}
	}
	for _, m := range was {
		say("a member left, or is forgotten", m)
	}
}

// Members returns the live members and the dead that are not forgotten, this node
// included, sorted by name. Members that left are not included. The caller owns the
// slice.
func (g *Gossip) Members() []peer.Member {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.roster.members(g.self.Member)
}

// SeedAnswered reports whether this node has ever been in contact with another node, by
// an address to join by or because that node joined it.
func (g *Gossip) SeedAnswered() bool { return g.join.met() }

// Silence returns the error of the address to join by that was the last one not to
// answer; nil if none has failed to.
func (g *Gossip) Silence() error {
	g.join.mu.Lock()
	defer g.join.mu.Unlock()
	return g.join.silence
}

// JoinAddresses returns the number of distinct addresses that those to join by resolve
// to, this node's own included: at least 1. A name that cannot be resolved counts as
// when it last could, and as one address before that.
func (g *Gossip) JoinAddresses() int { return g.join.count() }

// Forget stops counting a dead member, here and, through gossip, on all nodes. If it
// comes back it is a member again. The errors are [ErrAlive], [ErrUnknown] and
// [ErrClosed].
func (g *Gossip) Forget(name string) error {
	g.life.Lock()
	defer g.life.Unlock()
	if g.closed {
		return ErrClosed
	}
	now := time.Now()
	g.mu.Lock()
	r, err := g.roster.forget(name, now)
	g.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%w: %q", err, name)
	}
	signal(g.wake)
	g.spread(r, now)
	g.wg.Go(func() { g.sendToAll(encodeGone([]gone{r}, now), time.Now().Add(2*streamTimeout)) })
	return nil
}

// Leave tells the others that this node leaves, so that they remove it instead of
// counting it as dead. It returns when they were told, or after timeout with an error.
// Then they learn it from each other; if none was reached, they count it as dead. The
// node still gossips, as one that has left, until [Gossip.Close]. The error may be
// [ErrClosed].
func (g *Gossip) Leave(timeout time.Duration) error {
	g.life.Lock()
	defer g.life.Unlock()
	g.mu.Lock()
	again := g.leaving
	g.leaving = true
	self := g.self
	g.mu.Unlock()
	if g.closed || again {
		return ErrClosed
	}
	now := time.Now()
	deadline := now.Add(timeout)
	r := gone{about: self, fate: left, since: now}
	g.spread(r, now) // for nodes that this node does not know yet
	g.sendToAll(encodeGone([]gone{r}, now), deadline)
	if err := g.ml.Leave(max(time.Until(deadline), time.Millisecond)); err != nil {
		return fmt.Errorf("gossip: leaving %q: %w", g.cfg.ClusterName, err)
	}
	return nil
}

// Close ends gossip. It returns when no callback is running, which takes some seconds at
// most. Without an earlier [Gossip.Leave], the others count this node as dead. Further
// calls do nothing.
func (g *Gossip) Close() error {
	g.life.Lock()
	defer g.life.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	g.mu.Lock()
	g.leaving = true
	g.mu.Unlock()
	g.cancel()
	err := g.ml.Shutdown()
	g.log.close()
	g.wg.Wait()
	return err
}

// signal puts a token into a channel that holds one. It does not block.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// each calls f for every item, at most atOnce at a time, and waits for all.
func each[T any](atOnce int, items []T, f func(T)) {
	var wg sync.WaitGroup
	room := make(chan struct{}, atOnce)
	for _, item := range items {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			f(item)
		})
	}
	wg.Wait()
}

//go:build linux

package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/chaos/netlab"
)

// The ports of a node in a namespace.
const (
	PortHTTP   = 8080
	PortGRPC   = 8081
	PortGossip = 7946
	PortPeers  = 7947
	PortRedis  = 6379
)

// Config says what a fleet is.
type Config struct {
	// Nodes is how many places there are; the last Spare of them are not started,
	// for those who join later.
	Nodes, Spare int
	// Seed is what the network draws from.
	Seed uint64
	// Binary is the node program, Dir an existing directory for rules and logs.
	Binary, Dir string
	// Rules is the contents of the rules file.
	Rules string
	// Loopback: all nodes are in this process's own network, on loopback.
	Loopback bool
	// Redis: counters are kept in a redis-server, which is one more place.
	Redis bool
	// Clock is how far each node's clock is off; those that are missing are right.
	Clock []time.Duration
}

// Fleet is a cluster of processes. Its methods are safe for concurrent use, those
// of one node by one goroutine at a time.
type Fleet struct {
	// Lab is the network; nil on loopback.
	Lab *netlab.Lab

	config Config
	keeper *netlab.Keeper
	client *http.Client
	nodes  []*Node
	redis  *process
}

// New makes the network and starts the nodes. Close ends all of it.
func New(ctx context.Context, c Config) (_ *Fleet, err error) {
	f := &Fleet{config: c, keeper: netlab.NewKeeper()}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	dial := new(net.Dialer).DialContext
	if !c.Loopback {
		places := c.Nodes
		if c.Redis {
			places++
		}
		if f.Lab, err = netlab.New(ctx, places, c.Seed); err != nil {
			return nil, err
		}
		dial = f.Lab.Clients().Dial
	}
	f.client = &http.Client{Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute}}
	if err := f.SetRules(c.Rules); err != nil {
		return nil, err
	}
	if c.Redis {
		if err := f.StartRedis(ctx); err != nil {
			return nil, err
		}
	}
	for i := range c.Nodes {
		n, err := f.place(ctx, i)
		if err != nil {
			return nil, err
		}
		f.nodes = append(f.nodes, n)
	}
	for i := range c.Nodes - c.Spare {
		if err := f.nodes[i].Start(); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// place gives a node its addresses.
func (f *Fleet) place(ctx context.Context, i int) (*Node, error) {
	n := &Node{Index: i, Name: "node-" + strconv.Itoa(i+1), fleet: f}
	if f.Lab != nil {
		n.http = net.JoinHostPort(f.Lab.ClientHost(i), strconv.Itoa(PortHTTP))
		n.grpc = net.JoinHostPort(f.Lab.ClientHost(i), strconv.Itoa(PortGRPC))
		n.gossip = net.JoinHostPort(f.Lab.PeerHost(i), strconv.Itoa(PortGossip))
		n.peers = net.JoinHostPort(f.Lab.PeerHost(i), strconv.Itoa(PortPeers))
		return n, nil
	}
	for _, at := range []*string{&n.http, &n.grpc, &n.gossip, &n.peers} {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // not before all four are found
		*at = l.Addr().String()
	}
	return n, nil
}

// Nodes returns all places, in order.
func (f *Fleet) Nodes() []*Node { return f.nodes }

// rulesFile is what the nodes follow.
func (f *Fleet) rulesFile() string { return filepath.Join(f.config.Dir, "rules.yaml") }

// SetRules replaces the rules file, which the nodes notice.
func (f *Fleet) SetRules(rules string) error {
	next := f.rulesFile() + ".next"
	if err := os.WriteFile(next, []byte(rules), 0o600); err != nil {
		return err
	}
	return os.Rename(next, f.rulesFile())
}

// join is where the gossip of all places is.
func (f *Fleet) join() string {
	var out []string
	for i := range f.config.Nodes {
		if f.Lab != nil {
			out = append(out, net.JoinHostPort(f.Lab.PeerHost(i), strconv.Itoa(PortGossip)))
		} else {
			out = append(out, f.nodes[i].gossip)
		}
	}
	return strings.Join(out, ",")
}

// RedisPlace is the station of the redis-server.
func (f *Fleet) RedisPlace() int { return f.config.Nodes }

// StartRedis starts the redis-server, empty.
func (f *Fleet) StartRedis(ctx context.Context) error {
	if f.Lab == nil {
		return errors.New("on loopback there is no place for Redis")
	}
	place := f.config.Nodes
	p, err := start(f.keeper, f.Lab.Node(place), filepath.Join(f.config.Dir, "redis.log"), "redis-server",
		"--bind", f.Lab.PeerHost(place), "--port", strconv.Itoa(PortRedis), "--save", "", "--appendonly", "no", "--protected-mode", "no")
	if err != nil {
		return err
	}
	f.redis = p
	return until(ctx, 10*time.Second, "redis-server did not start", func() error {
		c, err := f.Lab.Node(place).Dial(ctx, "tcp", net.JoinHostPort(f.Lab.PeerHost(place), strconv.Itoa(PortRedis)))
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// KillRedis kills the redis-server, with all that it counted.
func (f *Fleet) KillRedis() error { return f.redis.kill() }

// Settled waits until the nodes given see each other and hold what they should,
// and all of those that were not started or have ended are gone. A node that has
// ended by itself is an error, see [Node.EndedByItself].
func (f *Fleet) Settled(ctx context.Context, within time.Duration) error {
	var live []*Node
	for _, n := range f.nodes {
		if err := n.EndedByItself(); err != nil {
			return err
		}
		if n.Alive() {
			live = append(live, n)
		}
	}
	return until(ctx, within, fmt.Sprintf("the %d nodes did not settle", len(live)), func() error {
		errs := make([]error, len(live))
		var asking sync.WaitGroup
		for i, n := range live {
			asking.Go(func() { errs[i] = n.settled(ctx, len(live)) })
		}
		asking.Wait()
		return errors.Join(errs...)
	})
}

// Close kills whatever still runs and takes the network away.
func (f *Fleet) Close() error {
	var err error
	for _, n := range f.nodes {
		if n.Alive() {
			err = errors.Join(err, n.Kill())
		}
	}
	if f.redis != nil {
		err = errors.Join(err, f.redis.kill())
	}
	if f.client != nil {
		f.client.CloseIdleConnections()
	}
	if f.Lab != nil {
		err = errors.Join(err, f.Lab.Close())
	}
	f.keeper.Close()
	return err
}

// get asks a node for a page.
func (f *Fleet) get(ctx context.Context, url string) (int, string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, string(body), err
}

// until tries again, 20 ms apart, until there is no error. After the time given
// it returns the last.
func until(ctx context.Context, within time.Duration, what string, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s within %v: %w", what, within, err)
		}
	}
}

//go:build linux

package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/weirlimit/weir/chaos/netlab"
)

// Config says what a fleet is.
type Config struct {
	// Ground is where the nodes run.
	Ground Ground
	// Nodes is how many places there are; the last Spare of them are not started,
	// for those who join later.
	Nodes, Spare int
	// Seed is what the network draws from.
	Seed uint64
	// Dir is an existing directory for rules and logs.
	Dir string
	// Rules is the contents of the rules file.
	Rules string
	// Redis: counters are kept in a redis-server, which is one more place.
	Redis bool
	// Disks: each node keeps its counters on a disk of its own.
	Disks bool
	// Clock is how far each node's clock is off; those that are missing are right.
	Clock []time.Duration
	// Keyless: the nodes have neither secret nor gossip key, as on loopback they may.
	Keyless bool
	// Plain: processes use no TLS, neither with each other nor with clients. Containers use it
	// with each other as docker-compose.yaml says, and not with clients.
	Plain bool
	// Args are more arguments of the node program.
	Args []string
}

// rulesFile is what a node follows. It has a directory to itself, which a container
// mounts.
func (c *Config) rulesFile(node int) string {
	return filepath.Join(c.Dir, "rules-"+strconv.Itoa(node+1), "rules.yaml")
}

// TurnClocks turns the clocks of nodes that start from now on.
func (f *Fleet) TurnClocks(by time.Duration) {
	clock := make([]time.Duration, f.config.Nodes)
	copy(clock, f.config.Clock)
	for i := range clock {
		clock[i] += by
	}
	f.config.Clock = clock
}

// more is the flags of a node beyond those that all fleets have.
func (c *Config) more(node int) []string {
	if node >= len(c.Clock) || c.Clock[node] == 0 {
		return c.Args
	}
	return append([]string{"--test-clock-offset", c.Clock[node].String()}, c.Args...)
}

// Fleet is a cluster of nodes. Its methods are safe for concurrent use, those of
// one node by one goroutine at a time.
type Fleet struct {
	config Config
	site   site
	client *http.Client
	nodes  []*Node
	notes  notes
}

// New makes the network and starts the nodes. Close ends all of it.
func New(ctx context.Context, c Config) (_ *Fleet, err error) {
	f := &Fleet{config: c}
	if err := f.SetRules(c.Rules); err != nil {
		return nil, err
	}
	if f.site, err = c.Ground.open(ctx, &f.config); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	f.client = &http.Client{Transport: &http.Transport{DialContext: f.site.dial, TLSClientConfig: f.site.trusted(),
		MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute}}
	for i := range c.Nodes {
		n := &Node{Index: i, Name: nodeName(i), fleet: f}
		if err := f.site.place(ctx, n); err != nil {
			return nil, err
		}
		f.nodes = append(f.nodes, n)
	}
	for i := range c.Nodes - c.Spare {
		if err := f.nodes[i].Start(ctx); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// nodeName is the name of a place.
func nodeName(i int) string { return "node-" + strconv.Itoa(i+1) }

// Lacks says why the fleet's ground has not all of what is needed, "" where it
// has.
func (f *Fleet) Lacks(n Need) string { return f.config.Ground.Lacks(n) }

// Nodes returns all places, in order.
func (f *Fleet) Nodes() []*Node { return f.nodes }

// SetRules replaces the rules files of all nodes, which notice.
func (f *Fleet) SetRules(rules string) error {
	for i := range f.config.Nodes {
		if err := f.SetRulesOf(i, rules); err != nil {
			return err
		}
	}
	return nil
}

// SetRulesOf replaces the rules file of one node. Containers read it as a user of
// their own.
func (f *Fleet) SetRulesOf(node int, rules string) error {
	file := f.config.rulesFile(node)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	next := file + ".next"
	if err := os.WriteFile(next, []byte(rules), 0o644); err != nil {
		return err
	}
	return os.Rename(next, file)
}

// Set says what happens from now on to what one node sends another.
func (f *Fleet) Set(ctx context.Context, from, to int, l netlab.Link) error {
	f.said(from, to, l)
	return f.site.set(ctx, from, to, l)
}

// Heal makes all links whole.
func (f *Fleet) Heal(ctx context.Context) error {
	f.notes.mu.Lock()
	clear(f.notes.links)
	f.notes.mu.Unlock()
	return f.site.heal(ctx)
}

// errNoRedis: only processes in namespaces have one.
var errNoRedis = errors.New("the fleet has no Redis")

// SetRedis says what happens to what Redis and the nodes send each other.
func (f *Fleet) SetRedis(ctx context.Context, l netlab.Link) error {
	s, ok := f.site.(*processes)
	if !ok || s.redis == nil {
		return errNoRedis
	}
	var err error
	for i := range f.nodes {
		err = errors.Join(err, f.Set(ctx, i, s.redisPlace(), l), f.Set(ctx, s.redisPlace(), i, l))
	}
	return err
}

// RedisPlace is the number that Redis has among the links.
func (f *Fleet) RedisPlace() int { return f.config.Nodes }

// StartRedis starts the redis-server again, empty.
func (f *Fleet) StartRedis(ctx context.Context) error {
	if s, ok := f.site.(*processes); ok && s.redis != nil {
		return s.startRedis(ctx)
	}
	return errNoRedis
}

// KillRedis kills the redis-server, with all that it counted.
func (f *Fleet) KillRedis() error {
	if s, ok := f.site.(*processes); ok && s.redis != nil {
		return s.redis.kill()
	}
	return errNoRedis
}

// Keep sees to it that the nodes' logs so far are in the fleet's directory.
func (f *Fleet) Keep(ctx context.Context) error { return f.site.keep(ctx) }

// ErrUnsettled is the error where nodes did not become one cluster in time.
var ErrUnsettled = errors.New("the nodes did not settle")

// Settled waits until the nodes given see each other and hold what they should,
// and all of those that were not started or have ended are gone. A node that has
// ended by itself is an error, see [Node.EndedByItself].
func (f *Fleet) Settled(ctx context.Context, within time.Duration) error {
	return f.SettledWithout(ctx, within, nil)
}

// SettledWithout is Settled where one node runs and is out of reach, so that the
// others must have given it up; nil: none is.
func (f *Fleet) SettledWithout(ctx context.Context, within time.Duration, away *Node) error {
	var live []*Node
	for _, n := range f.nodes {
		if err := n.EndedByItself(ctx); err != nil {
			return err
		}
		if n.Alive() && n != away {
			live = append(live, n)
		}
	}
	err := until(ctx, within, fmt.Sprintf("all %d of them", len(live)), func() error {
		errs := make([]error, len(live))
		var asking sync.WaitGroup
		for i, n := range live {
			asking.Go(func() { errs[i] = n.settled(ctx, len(live)) })
		}
		asking.Wait()
		return errors.Join(errs...)
	})
	if err == nil || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnsettled, err)
}

// Close kills whatever still runs and takes the network away.
func (f *Fleet) Close() error {
	if f.client != nil {
		f.client.CloseIdleConnections()
	}
	return f.site.close()
}

// get asks a node for a page.
func (f *Fleet) get(ctx context.Context, url string) (int, string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	status, text, err := f.do(ctx, http.MethodGet, url, nil)
	return status, string(text), err
}

// do asks a node once, over the way that clients have: neither is a POST repeated by the
// library, nor is any answer followed by more than its status and 1 MB of text.
func (f *Fleet) do(ctx context.Context, method, url string, body []byte) (status int, text []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err = io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, text, err
}

// until tries again, 20 ms apart, until there is no error. After the time given
// it returns the last, and that it was interrupted where the context ends before.
func until(ctx context.Context, within time.Duration, what string, try func() error) error {
	late := time.NewTimer(within)
	defer late.Stop()
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
			return interrupted(ctx)
		case <-late.C:
			return fmt.Errorf("%s within %v: %w", what, within, err)
		}
	}
}

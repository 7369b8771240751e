package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/redisstore"
)

const (
	// settleWithin bounds how long a cluster may take to be ready, and its copies to
	// be complete.
	settleWithin = 30 * time.Second
	// clusterWait is how long a check waits for a key's owner. It is long, so that
	// a busy machine makes slow answers and not answers by policy.
	clusterWait = 5 * time.Second
	// members is how many nodes the cluster has.
	members = 3
)

// verdict is what is looked at of an answer.
type verdict struct {
	allowed bool
	rule    string
	source  string
}

// target is something that decides. What it leaves out is nil.
type target struct {
	mode Mode
	// asker returns the function by which caller n asks; it is for one goroutine.
	asker func(n int) func(ctx context.Context, r *limiter.Request) (verdict, error)
	// held tells how many counters there are; copies, that each may be there several
	// times.
	copies bool
	held   func() (int, error)
	// settle waits until all that was asked for is also where it is copied to.
	settle func(ctx context.Context) error
	redis  *redisConn
	inHeap bool // counters are in this process
	close  func() error
}

// openTarget opens what a mode stands for, with nothing counted.
func openTarget(ctx context.Context, c *Config, m Mode) (*target, error) {
	switch m {
	case Cluster:
		return openCluster(ctx)
	case Redis:
		return openRedis(ctx, c)
	case Server:
		return serverTarget(c), nil
	}
	n, err := weir.Open(ctx, nodeConfig())
	if err != nil {
		return nil, fmt.Errorf("the table cannot be opened: %w", err)
	}
	return &target{
		mode: Table, inHeap: true, asker: func(int) func(context.Context, *limiter.Request) (verdict, error) { return nodeAsker(n) },
		held: func() (int, error) { return n.Stats().Keys, nil }, close: n.Close,
	}, nil
}

func nodeConfig() weir.Config {
	return weir.Config{Rules: []byte(Rules()), RulesFile: "rules of the benchmark"}
}

// nodeAsker asks a node in this process.
func nodeAsker(n *weir.Node) func(context.Context, *limiter.Request) (verdict, error) {
	d := new(weir.Decision)
	return func(ctx context.Context, r *limiter.Request) (verdict, error) {
		err := n.Check(ctx, r, d)
		return verdict{d.Allowed, d.Rule, d.Source.String()}, err
	}
}

// openCluster opens three nodes on free ports of loopback, and waits until each
// holds what it should.
func openCluster(ctx context.Context) (_ *target, err error) {
	var nodes []*weir.Node
	closeAll := func() error {
		var errs []error
		for _, n := range nodes {
			errs = append(errs, n.Close())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("the cluster cannot be opened: %w", err), closeAll())
		}
	}()
	name := make([]byte, 8)
	_, _ = rand.Read(name) // it never fails
	var join []string
	for i := range members {
		c := nodeConfig()
		c.ClusterName = "bench-" + hex.EncodeToString(name)
		c.Cluster = &cluster.Config{
			Name: fmt.Sprintf("bench-%d", i+1), PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0", Join: join, Deadline: clusterWait,
		}
		n, err := weir.Open(ctx, c)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
		for _, m := range nodes[0].Cluster().Members() {
			if m.Self {
				join = []string{m.Address}
			}
		}
	}
	if err := await(ctx, "three nodes that hold what they should", func() bool { return together(nodes) }); err != nil {
		return nil, err
	}
	return &target{
		mode: Cluster, inHeap: true, copies: true,
		asker: func(i int) func(context.Context, *limiter.Request) (verdict, error) {
			return nodeAsker(nodes[i%members])
		},
		held: func() (sum int, _ error) {
			for _, n := range nodes {
				sum += n.Stats().Keys
			}
			return sum, nil
		},
		settle: func(ctx context.Context) error {
			return await(ctx, "copies of all counters", func() bool { return copied(nodes) })
		},
		close: closeAll,
	}, nil
}

// together tells whether nodes see each other and hold what they should.
func together(nodes []*weir.Node) bool {
	for _, n := range nodes {
		s, _ := n.Cluster().Stats()
		if s.Members["active"] != len(nodes) || s.Unsettled != 0 || n.Ready() != nil {
			return false
		}
	}
	return true
}

// copied tells whether everything that was answered has been acknowledged by its
// heir.
func copied(nodes []*weir.Node) bool {
	for _, n := range nodes {
		if s, _ := n.Cluster().Stats(); s.Unacknowledged != 0 {
			return false
		}
	}
	return together(nodes)
}

// await waits for ok.
func await(ctx context.Context, what string, ok func() bool) error {
	deadline, tick := time.NewTimer(settleWithin), time.NewTicker(10*time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			return fmt.Errorf("after %v there are not %s; is the machine very busy?", settleWithin, what)
		}
	}
	return nil
}

// openRedis opens a node that counts in Redis, under names of this run alone.
// Closing it deletes them, whatever happened.
func openRedis(ctx context.Context, c *Config) (*target, error) {
	conn, err := dialRedis(ctx, c.RedisAddr)
	if err != nil {
		return nil, err
	}
	name := make([]byte, 8)
	_, _ = rand.Read(name) // it never fails
	prefix := "weir-bench-" + hex.EncodeToString(name) + ":"
	if _, err := conn.usage(); err != nil {
		return nil, errors.Join(err, conn.close())
	}
	redisstore.LogClientTo(slog.New(slog.DiscardHandler)) // what goes wrong is in the answers
	store, err := redisstore.Open(ctx, redisstore.Config{Addrs: []string{c.RedisAddr}, Timeout: redisWait, Prefix: prefix})
	if err != nil {
		return nil, errors.Join(err, conn.close())
	}
	config := nodeConfig()
	config.Backend = store
	n, err := weir.Open(ctx, config)
	if err != nil {
		return nil, errors.Join(err, store.Close(), conn.close())
	}
	return &target{
		mode: Redis, redis: conn,
		asker: func(int) func(context.Context, *limiter.Request) (verdict, error) { return nodeAsker(n) },
		held:  func() (int, error) { return conn.count(prefix + "{bench-") }, // the store has a key of its own besides
		close: func() error { return errors.Join(n.Close(), conn.forget(prefix), conn.close()) },
	}, nil
}

// serverTarget asks a node in another process.
func serverTarget(c *Config) *target {
	ask := func(ctx context.Context, r *limiter.Request) (verdict, error) {
		a, err := c.Server(ctx, r)
		return verdict{a.Allowed, a.Rule, a.Source}, err
	}
	return &target{
		mode: Server, asker: func(int) func(context.Context, *limiter.Request) (verdict, error) { return ask },
		close: func() error { return nil },
	}
}

// check says what is wrong with an answer, which is that of a rule's policy where
// whoever counts could not be asked.
func (t *target) check(v verdict, rule string, allowed bool) error {
	switch {
	case strings.HasPrefix(v.source, "fallback"):
		return fmt.Errorf("the policy of a rule answered (%s), since who counts did not in time", v.source)
	case v.rule != rule && t.mode == Server:
		return fmt.Errorf("rule %q decided and not %q: the node needs the rules that weir bench --print-rules prints", v.rule, rule)
	case v.rule != rule:
		return fmt.Errorf("rule %q decided and not %q", v.rule, rule)
	case v.allowed != allowed:
		return fmt.Errorf("allowed is %v and should be %v", v.allowed, allowed)
	}
	return nil
}

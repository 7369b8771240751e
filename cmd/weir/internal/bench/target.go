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
	// settleWithin bounds how long a cluster may take to become ready, and to complete
	// its copies.
	settleWithin = 30 * time.Second
	// clusterWait is how long a check waits for a key's owner. It is long, so that on a
	// busy machine answers are slow and not made by policy.
	clusterWait = 5 * time.Second
	// members is the number of nodes in the cluster.
	members = 3
)

// verdict is the part of an answer that is verified.
type verdict struct {
	allowed bool
	rule    string
	source  string
}

// target is an open decider. Functions that it does not have are nil.
type target struct {
	mode Mode
	// asker returns the function by which caller n checks. It is for one goroutine.
	asker func(n int) func(ctx context.Context, r *limiter.Request) (verdict, error)
	// held returns the number of counters. copies reports that each may be counted
	// several times.
	copies bool
	held   func() (int, error)
	// settle waits until everything that was counted has been copied.
	settle func(ctx context.Context) error
	redis  *redisConn
	inHeap bool // the counters are in this process
	close  func() error
}

// openTarget opens a decider of a mode, without counts.
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
		mode: Table, inHeap: true, asker: func(int) func(context.Context, *limiter.Request) (verdict, error) {
			return nodeAsker(n)
		},
		held: func() (int, error) { return n.Stats().Keys, nil }, close: n.Close,
	}, nil
}

func nodeConfig() weir.Config {
	return weir.Config{Rules: []byte(Rules()), RulesName: "rules of the benchmark"}
}

// nodeAsker returns a function that asks a node in this process.
func nodeAsker(n *weir.Node) func(context.Context, *limiter.Request) (verdict, error) {
	d := new(weir.Decision)
	return func(ctx context.Context, r *limiter.Request) (verdict, error) {
		err := n.CheckInto(ctx, r, d)
		return verdict{d.Allowed, d.Rule, d.Source.String()}, err
	}
}

// openCluster opens three nodes on free loopback ports, and waits until each holds the
// partitions that it should.
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
			Name: fmt.Sprintf("bench-%d", i+1), PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0", Join: join,
			Deadline: clusterWait,
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

// together reports whether the nodes see each other and hold the partitions that they
// should.
func together(nodes []*weir.Node) bool {
	for _, n := range nodes {
		s, _ := n.Cluster().Stats()
		if s.Members["active"] != len(nodes) || s.Unsettled != 0 || n.Ready() != nil {
			return false
		}
	}
	return true
}

// copied reports whether heirs have acknowledged everything that was answered.
func copied(nodes []*weir.Node) bool {
	for _, n := range nodes {
		if s, _ := n.Cluster().Stats(); s.Unacknowledged != 0 {
			return false
		}
	}
	return together(nodes)
}

// await waits until ok returns true.
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

// openRedis opens a node that counts in Redis, under key names of this run. Closing it
// deletes these keys in any case.
func openRedis(ctx context.Context, c *Config) (*target, error) {
	redisstore.LogClientTo(slog.New(slog.DiscardHandler)) // errors are in the answers
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
		held:  func() (int, error) { return conn.count(prefix + "{bench-") }, // excludes the store's own key
		close: func() error { return errors.Join(n.Close(), conn.forget(prefix), conn.close()) },
	}, nil
}

// serverTarget returns a target for a node in another process.
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

// check returns an error for a wrong answer. An answer by a rule's policy is wrong: the
// owner of the counters could not be reached.
func (t *target) check(v verdict, rule string, allowed bool) error {
	switch {
	case strings.HasPrefix(v.source, "fallback"):
		return fmt.Errorf("the policy of a rule answered (%s), because the owner did not answer in time", v.source)
	case v.rule != rule && t.mode == Server:
		return fmt.Errorf("rule %q decided instead of %q: the node needs the rules that weir bench --print-rules prints",
			v.rule, rule)
	case v.rule != rule:
		return fmt.Errorf("rule %q decided instead of %q", v.rule, rule)
	case v.allowed != allowed:
		return fmt.Errorf("allowed is %v and should be %v", v.allowed, allowed)
	}
	return nil
}

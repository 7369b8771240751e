package client

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/lease"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/rules"
)

const (
	// learnEvery is the shortest interval between requests for the ring, however often
	// replies report a new view.
	learnEvery = 100 * time.Millisecond
	// learnRefused is the interval after a node said that the caller may not have the ring.
	learnRefused = time.Minute
	// maxRing bounds the size of the answer in bytes. Rules are far smaller.
	maxRing = 16 << 20
)

// ring maps counters to the nodes that own them. It is immutable.
type ring struct {
	view   uint64
	set    *rules.Set
	rules  string // the text that set was parsed from
	seeds  string
	owners [table.Partitions]*node // nil: there is no node that can be asked
}

// resolved is what the client knows of a request by the ring. The zero value is nothing.
type resolved struct {
	ring   *ring
	charge *arith.Charge
	rule   string // the name of the rule that decides
	lends  bool   // units of its key may be lent
	warm   bool   // the key may be worth a lease
}

// owner returns the node that should own the first counter, nil if there is none or it is not known. A wrong owner
// costs one hop.
func (of *resolved) owner() *node {
	if of.charge == nil {
		return nil
	}
	return of.ring.owners[table.PartitionOf(of.charge.Key(0))%table.Partitions]
}

// resolve finds the counters of a request. The caller forgets it.
func (c *Client) resolve(r *limiter.Request) (of resolved) {
	known := c.ring.Load()
	if known == nil {
		return of
	}
	charge, _ := c.charges.Get().(*arith.Charge)
	match, err := known.set.Resolve(r, charge)
	if err != nil || charge.Len() == 0 {
		c.charges.Put(charge)
		return of // the node will return the error
	}
	of = resolved{ring: known, charge: charge, rule: match.Rule}
	// Nodes lend nothing by a rule with "any", which takes no ids.
	of.lends = c.leases != nil && match.Unzoned == nil && match.Outcome <= rules.Unlimited && match.Count == 1 &&
		lease.Single(charge) && known.set.Alternatives(&limiter.Request{Rule: match.Rule}) == nil
	return of
}

// forget gives the memory of the counters back.
func (of *resolved) forget(c *Client) {
	if of.charge != nil {
		c.charges.Put(of.charge)
		of.charge = nil
	}
}

// told receives the view in a node's reply and requests the ring if that view is not
// the known one.
func (c *Client) told(n *node, view uint64) {
	if view == 0 || c.config.IgnoreRing {
		return
	}
	if known := c.ring.Load(); known != nil && known.view == view {
		return
	}
	select {
	case c.learns <- n:
	default: // a request is under way
	}
}

// learn fetches the ring when it has changed, until the context ends.
func (c *Client) learn(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		next := learnEvery
		select {
		case n := <-c.learns:
			if err := c.fetchSafely(ctx, n); err != nil {
				c.mu.Lock()
				c.ringErr = err
				c.mu.Unlock()
				if status.Code(err) == codes.PermissionDenied {
					next = learnRefused
				}
			}
		case <-ctx.Done():
			return
		}
		pause.Reset(next)
	}
}

// fetchSafely is fetch; it returns a panic as an error.
func (c *Client) fetchSafely(ctx context.Context, n *node) (err error) {
	defer catch(func(defect error) { err = defect })
	return c.fetch(ctx, n)
}

// fetch asks a node for the ring and puts it into use.
func (c *Client) fetch(ctx context.Context, n *node) error {
	within, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	m, err := n.latest().Ring(within, &weirv1.RingRequest{}, grpc.MaxCallRecvMsgSize(maxRing))
	if err != nil {
		return fmt.Errorf("node %s did not return the ring: %w", n.addr, err)
	}
	next, err := c.newRing(m)
	if err != nil {
		return fmt.Errorf("node %s returned a ring that is not valid: %w", n.addr, err)
	}
	members, err := c.meet(ctx, m.GetMembers())
	if err != nil {
		return err
	}
	for p, owner := range m.GetOwners() {
		if owner > 0 {
			next.owners[p] = members[owner-1]
		}
	}
	c.mu.Lock()
	c.ringErr = nil
	c.mu.Unlock()
	c.ring.Store(next)
	return nil
}

// newRing makes a ring, still without owners, from a node's answer. It parses the rules
// only if they differ from the known ones.
func (c *Client) newRing(m *weirv1.RingResponse) (*ring, error) {
	if len(m.GetOwners()) != table.Partitions || len(m.GetMembers()) > MaxAddrs {
		return nil, fmt.Errorf("it has %d partitions and %d members", len(m.GetOwners()), len(m.GetMembers()))
	}
	for _, owner := range m.GetOwners() {
		if int64(owner) > int64(len(m.GetMembers())) {
			return nil, fmt.Errorf("member %d of %d owns a partition", owner, len(m.GetMembers()))
		}
	}
	next := &ring{view: m.GetView(), rules: string(m.GetRules()), seeds: string(m.GetSeeds())}
	if known := c.ring.Load(); known != nil && known.rules == next.rules && known.seeds == next.seeds {
		next.set = known.set
		return next, nil
	}
	var err error
	next.set, err = rules.Parse("rules", m.GetRules(), rules.Options{Seeds: append([]byte{}, m.GetSeeds()...)})
	return next, err
}

// meet returns the nodes of members, nil for those without an address, and connects to
// new ones. It stops nodes that are no longer members and not in Config.Addrs.
func (c *Client) meet(ctx context.Context, members []*weirv1.RingMember) ([]*node, error) {
	out := make([]*node, len(members))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	for i, m := range members {
		addr := m.GetGrpcAddr()
		if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
			continue
		}
		at := slices.IndexFunc(c.nodes, func(n *node) bool { return n.addr == addr })
		if at < 0 {
			n, err := c.connect(addr)
			if err != nil {
				continue // other members relay what it owns
			}
			c.start(ctx, n)
			at = len(c.nodes) - 1
		}
		out[i] = c.nodes[at]
	}
	c.nodes = slices.DeleteFunc(c.nodes, func(n *node) bool {
		gone := n.learned && !slices.Contains(out, n)
		if gone {
			n.condition, n.why = down, errLetGo
			n.end()
		}
		return gone
	})
	return out, nil
}

//go:build linux

// Package attack is what strangers who can reach the ports of a cluster may send it:
// keys that collide, messages that grow when they are read, forged gossip and forged
// frames, connections that are never used, limits without number.
// Everything is paced and bounded, goes to the addresses it is given, and ends with
// the context.
package attack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Target is one node under attack: its name and the addresses of its listeners.
type Target struct {
	Name, HTTP, GRPC, Gossip, Peer string
}

// Cluster is what an attacker knows of the nodes: all of it is public.
type Cluster struct {
	Targets []Target
	// Rules is the contents of the rules file, ClusterName the cluster's name: together
	// they give the hash of every counter of a cluster that has no secret.
	Rules, ClusterName string
}

// check refuses addresses that are not on loopback: this package is a test.
func (c *Cluster) check() error {
	if len(c.Targets) == 0 {
		return errors.New("there is no node to attack: give its addresses")
	}
	for _, t := range c.Targets {
		for _, address := range []string{t.HTTP, t.GRPC, t.Gossip, t.Peer} {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				return fmt.Errorf("address %q of %s is not valid: %w", address, t.Name, err)
			}
			if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
				return fmt.Errorf("address %q of %s is not a loopback address: attacks stay on this machine", address, t.Name)
			}
		}
	}
	return nil
}

// Tally counts what one attack did.
type Tally struct {
	// Sent counts the hostile messages, connections or checks, Refused those that
	// the nodes answered with an error or cut off.
	Sent, Refused uint64
}

// tally is a Tally that goroutines add to.
type tally struct{ sent, refused atomic.Uint64 }

// add counts one message, refused if there was an error.
func (t *tally) add(err error) {
	t.sent.Add(1)
	if err != nil {
		t.refused.Add(1)
	}
}

// attack is one way to do harm. It runs until the context ends.
type attack struct {
	name string
	run  func(ctx context.Context, c *Cluster, t *tally) error
}

// all returns every attack.
func all() []attack {
	return []attack{
		{"crowded keys", crowd},
		{"empty limits", emptyLimits},
		{"attribute columns", attributeColumns},
		{"request limits", distinctLimits},
		{"silent connections", silentConnections},
		{"half messages", halfMessages},
		{"unread replies", unreadReplies},
		{"long paths", longPaths},
		{"rules in steps", stepped},
		{"forged gossip", forgedGossip},
		{"gossip bombs", gossipBombs},
		{"forged frames", forgedFrames},
	}
}

// Names returns the names of all attacks, in the order in which they start.
func Names() []string {
	var names []string
	for _, a := range all() {
		names = append(names, a.name)
	}
	return names
}

// Run attacks a cluster in every way at once until the context ends, and returns what
// was done, by the name of the attack. It returns an error if an attack could not be
// made at all; that a node refuses one is no error.
func Run(ctx context.Context, c *Cluster) (map[string]Tally, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	attacks := all()
	tallies := make([]tally, len(attacks))
	errs := make([]error, len(attacks))
	var running sync.WaitGroup
	for i, a := range attacks {
		running.Go(func() { errs[i] = a.run(ctx, c, &tallies[i]) })
	}
	running.Wait()
	done := make(map[string]Tally)
	var failed []string
	for i, a := range attacks {
		done[a.name] = Tally{Sent: tallies[i].sent.Load(), Refused: tallies[i].refused.Load()}
		if errs[i] != nil {
			failed = append(failed, fmt.Sprintf("%s: %v", a.name, errs[i]))
		}
	}
	if len(failed) > 0 {
		return done, fmt.Errorf("attacks that could not be made: %s", strings.Join(failed, "; "))
	}
	return done, nil
}

// Text shows tallies, one attack a line, by name.
func Text(done map[string]Tally) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(done)) {
		fmt.Fprintf(&b, "  %-20s %9d sent, %9d refused\n", name, done[name].Sent, done[name].Refused)
	}
	return b.String()
}

// every calls do once in each period until the context ends.
func every(ctx context.Context, period time.Duration, do func(n int)) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do(n)
		}
	}
}

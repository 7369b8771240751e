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
	"time"
)

// Target is one node under attack: its name and the addresses of its listeners.
type Target struct {
	Name, HTTP, GRPC, Gossip, Peer, Admin, Health string
}

// addresses returns those of all listeners.
func (t *Target) addresses() []string {
	return []string{t.HTTP, t.GRPC, t.Gossip, t.Peer, t.Admin, t.Health}
}

// Cluster is what an attacker knows of the nodes: all of it is public.
type Cluster struct {
	Targets []Target
	// Rules is the contents of the rules file, ClusterName the cluster's name: together
	// they give the hash of every counter of a cluster that has no secret.
	Rules, ClusterName string
	// Keyed: the cluster has a secret and a key for gossip, which the attacker has not.
	Keyed bool
}

// check refuses addresses that are not on loopback: this package is a test.
func (c *Cluster) check() error {
	if len(c.Targets) == 0 {
		return errors.New("there is no node to attack: give its addresses")
	}
	for _, t := range c.Targets {
		for _, address := range t.addresses() {
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

// Run attacks a cluster in every way at once until the context ends, and returns what
// was done, by the name of the attack. It writes what was done so far to each channel
// that it receives. It returns an error if an attack could not be made at all; that a
// node refuses one is no error.
func Run(ctx context.Context, c *Cluster, asked <-chan chan<- map[string]Tally) (map[string]Tally, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	attacks := of(c.Keyed)
	tallies := make([]tally, len(attacks))
	errs := make([]error, len(attacks))
	var running sync.WaitGroup
	for i, a := range attacks {
		running.Go(func() { errs[i] = a.run(ctx, c, &tallies[i]) })
	}
	so := func() map[string]Tally {
		done := make(map[string]Tally)
		for i, a := range attacks {
			done[a.name] = tallies[i].now()
		}
		return done
	}
	for ended := false; !ended; {
		select {
		case to := <-asked:
			to <- so()
		case <-ctx.Done():
			ended = true
		}
	}
	running.Wait()
	var failed []string
	for i, a := range attacks {
		if errs[i] != nil {
			failed = append(failed, fmt.Sprintf("%s: %v", a.name, errs[i]))
		}
	}
	if len(failed) > 0 {
		return so(), fmt.Errorf("attacks that could not be made: %s", strings.Join(failed, "; "))
	}
	return so(), nil
}

// Text shows tallies, one attack a line, by name.
func Text(done map[string]Tally) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(done)) {
		t := done[name]
		fmt.Fprintf(&b, "  %-20s %9d sent, %9d refused, %6d lost, %5d held\n", name, t.Sent, t.Refused, t.Lost, t.Held)
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

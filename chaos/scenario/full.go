//go:build linux

package scenario

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/weirlimit/weir/chaos/fleet"
)

const (
	// fullKeys is how many counters a node of the scenario holds at most: a trial's own
	// are a few hundred, so that a few dozen trials find room.
	fullKeys = 5000
	// fresh is the rule of the flood, freshWindow its window, so that there is room
	// again soon.
	fresh       = "fresh"
	freshWindow = 3 * time.Second
	// freshBatch is how many fresh keys come at once, and freshClients how many
	// clients ask each node for them.
	freshBatch   = 100
	freshClients = 2
	// turnedAway is how many fresh keys each node must have found no room for.
	turnedAway = 1000
	// fullWithin is how long the flood may need for that.
	fullWithin = 30 * time.Second
)

// full is a flood of fresh keys, for which there is no room in the end, while others
// are used up whose limits never recover: none of those may make room.
func (s *stage) full() fault {
	var before []float64
	run := time.Now().UnixNano() // the keys of no other trial
	nodes := s.Nodes()[:s.size]
	allows := exactly()
	allows.Full = true
	return fault{
		what: fmt.Sprintf("a flood of fresh keys, at nodes that hold %d", fullKeys), allows: allows, nodes: s.everyone(),
		cold: true,
		first: func(ctx context.Context) (err error) {
			before, err = s.turned(ctx, nodes)
			return err
		},
		breaks: func(ctx context.Context) error {
			flooding, stop := context.WithCancel(ctx)
			var clients sync.WaitGroup
			for i, n := range nodes {
				for c := range freshClients {
					clients.Go(func() { flood(flooding, n, fmt.Sprintf("%d-%d-%d", run, i, c)) })
				}
			}
			defer func() { stop(); clients.Wait() }()
			err := s.untilFull(ctx, nodes, before)
			s.cold.Ask(ctx, 3, nodes...)
			return err
		},
		// Until there is room again for the keys of all clients.
		mends: func(ctx context.Context) error { return fleet.Wait(ctx, freshWindow+freshWindow/2) },
	}
}

// flood asks a node about fresh keys only, until the context ends.
func flood(ctx context.Context, n *fleet.Node, prefix string) {
	for made := 0; ctx.Err() == nil; {
		var batch struct {
			Checks []check `json:"checks"`
		}
		for range freshBatch {
			made++
			batch.Checks = append(batch.Checks, check{"/" + fresh, prefix + "-" + strconv.Itoa(made)})
		}
		// What comes of them shows in the nodes' metrics, and untilFull says so if none comes.
		if _, _, err := n.Post(ctx, "/v1/check/batch", &batch); err != nil {
			_ = fleet.Wait(ctx, 10*time.Millisecond) // which ends early as the flood does
		}
	}
}

// overflow is the metric of the keys that found no room in a node's table.
const overflow = `weir_table_overflow_total{bound="table"}`

// turned is how many keys each node has found no room for.
func (s *stage) turned(ctx context.Context, nodes []*fleet.Node) (out []float64, err error) {
	for _, n := range nodes {
		m, err := n.Metrics(ctx)
		if err != nil {
			return nil, err
		}
		v, said := m[overflow]
		if !said {
			return nil, fmt.Errorf("%s says no %s", n.Name, overflow)
		}
		out = append(out, v)
	}
	return out, nil
}

// untilFull waits until each node has turned away enough; that it did not is a doubt.
func (s *stage) untilFull(ctx context.Context, nodes []*fleet.Node, before []float64) error {
	for began := time.Now(); ; {
		now, err := s.turned(ctx, nodes)
		least := float64(turnedAway)
		for i := range now {
			least = min(least, now[i]-before[i])
		}
		switch {
		case err == nil && least >= turnedAway:
			return nil
		case time.Since(began) > fullWithin:
			if err == nil {
				err = fmt.Errorf("one of the nodes found room for all but %.0f keys within %v", least, fullWithin)
			}
			s.Doubt(err)
			return nil
		}
		if err := fleet.Wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

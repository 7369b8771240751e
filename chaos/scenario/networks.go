//go:build linux

package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/history"
	"github.com/weirlimit/weir/chaos/netlab"
)

// networks returns what is done to the network between nodes.
func networks() []Scenario {
	return []Scenario{
		{Name: "split", About: "one node cut off from the others, both ways, for 3 to 6 s", Needs: fleet.Cuts,
			make: (*stage).split},
		{Name: "split-30s", About: "one node cut off from the others for 30 s", Needs: fleet.Cuts, make: (*stage).longSplit},
		{Name: "shattered", About: "every link cut for 2 to 4 s", Needs: fleet.Cuts, make: (*stage).shattered},
		{Name: "one-link", About: "one link cut, both ways", Needs: fleet.Cuts, make: (*stage).oneLink},
		{Name: "one-way", About: "one direction of one link cut", Needs: fleet.Cuts, make: (*stage).oneWay},
		{Name: "deaf", About: "one node hears nothing, and is heard", Needs: fleet.Cuts, make: (*stage).deaf},
		{Name: "loss", About: "1 to 30 % of all frames lost", Needs: fleet.Shapes, make: (*stage).loss},
		{Name: "delay", About: "50 to 500 ms of delay on all links", Needs: fleet.Shapes, make: (*stage).delay},
		{Name: "disorder", About: "a fifth of the frames twice, a third in another order", Needs: fleet.Shapes,
			make: (*stage).disorder},
		{Name: "narrow", About: "20 to 100 kB/s on all links, of which nodes need 60 or so", Needs: fleet.Shapes,
			make: (*stage).narrow},
		{Name: "gossip-blocked", About: "the gossip of one node blocked, the peers' streams open", Needs: fleet.Cuts,
			make: (*stage).gossipBlocked},
		{Name: "peers-blocked", About: "the peers' streams of one node blocked, gossip open", Needs: fleet.Cuts,
			make: (*stage).peersBlocked},
	}
}

// links is a fault of the links: set is asked for each direction.
func (s *stage) links(f fault, set func(from, to int) (netlab.Link, bool)) fault {
	f.breaks = func(ctx context.Context) error { return s.breakLinks(ctx, true, set) }
	f.mends = s.heal
	return f
}

// apart cuts the links of one node.
func (s *stage) apart(n int, hold time.Duration) fault {
	allows := split()
	allows.Split = true
	return s.links(fault{
		what: fmt.Sprintf("node-%d cut off for %v", n+1, hold.Round(time.Millisecond)), allows: allows, takes: 1,
		holds: history.HoldsBack, nodes: []int{n}, hold: hold,
	}, func(from, to int) (netlab.Link, bool) { return netlab.Link{Cut: true}, from == n || to == n })
}

func (s *stage) split() fault {
	return s.apart(s.any().Index, s.between(3*time.Second, 6*time.Second))
}

func (s *stage) longSplit() fault { return s.apart(s.any().Index, 30*time.Second) }

func (s *stage) shattered() fault {
	hold := s.between(2*time.Second, 4*time.Second)
	f := fault{what: "every link cut for " + hold.Round(time.Millisecond).String(), allows: split(),
		holds: history.HoldsBack, hold: hold}
	f.allows.Open = float64(s.size)
	for i := range s.size {
		f.nodes = append(f.nodes, i)
	}
	return s.links(f, func(int, int) (netlab.Link, bool) { return netlab.Link{Cut: true}, true })
}

// kept is a broken link whose nodes hear each other through a third: it changes nothing of
// who decides.
func kept() history.Allows {
	allows := found()
	allows.NoTakeover = true
	return allows
}

func (s *stage) oneLink() fault {
	a, b := s.two()
	return s.links(fault{
		what: fmt.Sprintf("node-%d and node-%d cut off from each other", a+1, b+1), allows: kept(), holds: history.HoldsBack,
		nodes: []int{a, b},
		hold:  s.between(2*time.Second, 5*time.Second),
	}, func(from, to int) (netlab.Link, bool) {
		return netlab.Link{Cut: true}, from == a && to == b || from == b && to == a
	})
}

func (s *stage) oneWay() fault {
	a, b := s.two()
	return s.links(fault{
		what: fmt.Sprintf("nothing from node-%d reaches node-%d", a+1, b+1), allows: found(), nodes: []int{a, b},
		hold: s.between(2*time.Second, 5*time.Second),
	}, func(from, to int) (netlab.Link, bool) { return netlab.Link{Cut: true}, from == a && to == b })
}

func (s *stage) deaf() fault {
	n := s.any().Index
	return s.links(fault{
		what: fmt.Sprintf("node-%d hears nothing", n+1), allows: split(), nodes: []int{n},
		hold: s.between(2*time.Second, 5*time.Second),
	}, func(_, to int) (netlab.Link, bool) { return netlab.Link{Cut: true}, to == n })
}

// everywhere is a fault of all links alike.
func (s *stage) everywhere(l netlab.Link) fault {
	f := fault{what: "all links: " + l.String(), allows: split(), shaky: true,
		hold: s.between(3*time.Second, 5*time.Second)}
	for i := range s.size {
		f.nodes = append(f.nodes, i)
	}
	return s.links(f, func(int, int) (netlab.Link, bool) { return l, true })
}

func (s *stage) loss() fault {
	return s.everywhere(netlab.Link{Loss: 0.01 + 0.29*s.rng.Float64()})
}

func (s *stage) delay() fault {
	d := s.between(50*time.Millisecond, 500*time.Millisecond).Round(time.Millisecond)
	return s.everywhere(netlab.Link{Delay: d, Jitter: d / 4})
}

// unfelt is a fault of links that carry what owners and heirs say soon enough: no policy
// answers, and no check is lost.
func unfelt(f fault) fault {
	f.allows.Unfelt = true
	return f
}

func (s *stage) disorder() fault {
	return unfelt(s.everywhere(netlab.Link{
		Delay: time.Millisecond, Jitter: 2 * time.Millisecond, Duplicate: 0.2, Reorder: 0.3, ReorderBy: 20 * time.Millisecond,
	}))
}

func (s *stage) narrow() fault {
	return s.everywhere(netlab.Link{Bandwidth: 20_000 + s.rng.IntN(80_001)})
}

// blocked blocks a port of one node.
func (s *stage) blocked(port uint16, what string) fault {
	n := s.any().Index
	return s.links(fault{
		what: fmt.Sprintf("%s of node-%d blocked", what, n+1), allows: split(), nodes: []int{n},
		hold: s.between(3*time.Second, 6*time.Second),
	}, func(from, to int) (netlab.Link, bool) {
		return netlab.Link{Blocked: []uint16{port}}, from == n || to == n
	})
}

func (s *stage) gossipBlocked() fault { return unfelt(s.blocked(fleet.PortGossip, "gossip")) }

func (s *stage) peersBlocked() fault { return s.blocked(fleet.PortPeers, "the peers' streams") }

//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/history"
	"github.com/weirlimit/weir/chaos/netlab"
)

// mixSpan is in which time the faults of a mix begin.
const mixSpan = 5 * time.Second

// single is one fault of a mix.
type single struct {
	what   string
	node   int  // whose process is touched; -1: none
	shaky  bool // nodes fall silent again and again while it lasts
	holds  history.Holds
	loses  bool // the node takes what it counted with it, where its heir is away too
	after  time.Duration
	hold   time.Duration
	breaks func(context.Context) error
	mends  func(context.Context) error
}

// mix draws two to five faults that overlap as they will. A process is touched
// by one fault at a time.
func (s *stage) mix() fault {
	var all []single
	var what []string
	leaves, cuts, losses := 0, 0, 0
	busy := make([]sync.Mutex, s.size)
	for range 2 + s.rng.IntN(4) {
		f := s.single()
		switch {
		case f.node < 0:
			cuts++
		case strings.HasPrefix(f.what, "leave"):
			leaves++
			f.loses = leaves > 1
		}
		if f.loses {
			losses++
		}
		all = append(all, f)
		what = append(what, f.what)
	}
	gone := min(leaves, 1)
	return fault{
		what: strings.Join(what, "; "), allows: mixed(s.size, cuts, losses), gone: gone, nodes: s.everyone(), mends: nothing,
		breaks: func(ctx context.Context) error {
			errs := make([]error, len(all))
			var doing sync.WaitGroup
			for i, f := range all {
				doing.Go(func() { errs[i] = s.do(ctx, f, busy) })
			}
			doing.Wait()
			// Two faults of one link may have mended each other's.
			return errors.Join(errors.Join(errs...), s.Heal(ctx))
		},
	}
}

// mixed is what a mix may admit. Each fault of links may leave one counter more, but
// there are no more of them than members that can own. When a process ends its heir may
// be away, or cut off; and who leaves when the others have left too has nobody to hand
// over to: then a counter begins anew. An owner whose heir is paused or cut off answers
// up to its share without it, which a takeover then forgets.
func mixed(size, cuts, losses int) history.Allows {
	times := float64(min(1+cuts, size) + losses)
	return history.Allows{Closed: float64(1 + losses), Local: times, Open: times, Losses: losses, Raised: true}
}

// do does one fault of a mix.
func (s *stage) do(ctx context.Context, f single, busy []sync.Mutex) error {
	if err := fleet.Wait(ctx, f.after); err != nil {
		return err
	}
	if f.node >= 0 {
		busy[f.node].Lock()
		defer busy[f.node].Unlock()
	}
	part := history.Fault{Name: "mix", What: f.what, At: s.now(), Nodes: s.everyone(), Holds: f.holds}
	err := errors.Join(f.breaks(ctx), fleet.Wait(ctx, f.hold))
	err = errors.Join(err, f.mends(ctx)) // also when interrupted: nobody stays paused
	part.Until = s.now()
	part.Takeovers, part.Loses = (&fault{shaky: f.shaky}).takeovers(part.Until-part.At), f.loses
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts = append(s.parts, part)
	return err
}

// single draws a fault.
func (s *stage) single() single {
	n := s.any()
	f := single{node: n.Index, after: s.between(0, mixSpan), hold: s.between(100*time.Millisecond, 3*time.Second)}
	draw := s.rng.IntN(7)
	if n.Index == s.spared && (draw == 0 || draw == 2) {
		draw = 1
	}
	if (draw == 4 || draw == 5) && s.Lacks(fleet.Shapes) != "" {
		draw = 3
	}
	switch draw {
	case 0:
		f.what, f.breaks, f.mends, f.loses, f.holds = "kill "+n.Name, n.Kill, n.Start, true, history.HoldsNothing
	case 1:
		f.what, f.breaks, f.mends, f.holds = "pause "+n.Name, n.Pause, n.Resume, history.HoldsBack
	case 2:
		f.what, f.breaks, f.mends, f.holds = "leave "+n.Name, n.Leave, n.Start, history.HoldsNothing
	case 3:
		f.holds = history.HoldsBack
		return s.mixLinks(f, "cut off "+n.Name, netlab.Link{Cut: true}, n)
	case 4:
		f.shaky = true
		l := netlab.Link{Loss: 0.01 + 0.29*s.rng.Float64(), Duplicate: 0.1, Reorder: 0.2}
		return s.mixLinks(f, n.Name+" with "+l.String(), l, n)
	case 5:
		f.shaky = true
		d := s.between(10*time.Millisecond, 200*time.Millisecond).Round(time.Millisecond)
		l := netlab.Link{Delay: d, Jitter: d / 2}
		return s.mixLinks(f, n.Name+" with "+l.String(), l, n)
	default:
		to := (n.Index + 1 + s.rng.IntN(s.size-1)) % s.size
		f.what = fmt.Sprintf("nothing from %s reaches node-%d", n.Name, to+1)
		return s.setAndBack(f, netlab.Link{Cut: true}, func(a, b int) bool { return a == n.Index && b == to })
	}
	return f
}

// mixLinks is a fault of all links of one node.
func (s *stage) mixLinks(f single, what string, l netlab.Link, n *fleet.Node) single {
	f.what = what
	return s.setAndBack(f, l, func(from, to int) bool { return from == n.Index || to == n.Index })
}

// setAndBack is a fault of some links, which touches no process.
func (s *stage) setAndBack(f single, l netlab.Link, which func(from, to int) bool) single {
	f.node = -1
	var w *watch
	f.breaks = func(ctx context.Context) (err error) {
		w, err = s.set(ctx, false, func(from, to int) (netlab.Link, bool) { return l, which(from, to) })
		return err
	}
	f.mends = func(ctx context.Context) error {
		if w != nil {
			s.Doubt(s.shown(ctx, w))
		}
		_, err := s.set(ctx, false, func(from, to int) (netlab.Link, bool) { return netlab.Link{}, which(from, to) })
		return err
	}
	return f
}

// rngOf draws for one scenario and one seed.
func rngOf(name string, seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, hash(name))) }

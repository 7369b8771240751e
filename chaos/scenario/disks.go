//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/history"
)

const (
	// saveEvery is how often nodes with disks save what has changed, and saveWithin how long a save may
	// take on a busy machine.
	saveEvery, saveWithin = time.Second, 2 * time.Second
	// clockBack is how far clocks are behind after a power cut.
	clockBack = time.Hour
)

// disks returns what is done to nodes whose counters are to outlast them.
func disks() []Scenario {
	args := []string{"--persist-interval", saveEvery.String(), "--restore-wait", "20s"}
	return []Scenario{
		{Name: "power-cut", About: "kill -9 of all nodes at once, which have their counters on disk, and start",
			Needs: fleet.Disks, Args: args, make: (*stage).powerCut},
		{Name: "power-cut-two", About: "the same of two of three", Needs: fleet.Disks, Args: args,
			make: (*stage).powerCutOfMost},
		{Name: "power-cut-clock", About: "the same of all, whose clocks are an hour behind when they start",
			Needs: fleet.Disks, Args: args, make: (*stage).powerCutAndClock},
		{Name: "disk-full", About: "the disk of one node is full for 3 s, and then kill -9 of all", Needs: fleet.Disks,
			Args: args, make: (*stage).fullDisk},
	}
}

// lasting is a fault that ends nodes whose counters outlast them: keys that never recover are used up before
// and after it, and what was granted since the last save may be granted once more.
func (s *stage) lasting(nodes []*fleet.Node) fault {
	f := s.ends(nodes)
	f.cold, f.allows.Lasts = true, history.Micros((saveEvery + saveWithin).Microseconds())
	breaks := f.breaks
	f.breaks = func(ctx context.Context) error {
		s.cold.Ask(ctx, 20, s.but(nil)...)
		return errors.Join(fleet.Wait(ctx, saveEvery+saveWithin), breaks(ctx))
	}
	return f
}

func (s *stage) powerCut() fault { return s.lasting(s.but(nil)) }

func (s *stage) powerCutOfMost() fault {
	f := s.lasting(s.but(s.any()))
	f.takes = 2 // of a key whose owner and heir end, by who is left, and by who comes back
	return f
}

func (s *stage) powerCutAndClock() fault {
	f := s.lasting(s.but(nil))
	f.what += fmt.Sprintf(", and clocks %v behind", clockBack)
	f.allows.Slow = 10 // what is ahead of the machine's clock loses a tenth until that has caught up
	mends := f.mends
	f.mends = func(ctx context.Context) error {
		s.TurnClocks(-clockBack)
		return mends(ctx)
	}
	return f
}

// fullDisk has one node that cannot save: its counters are on the disks of the others' copies, or are saved
// when there is room again.
func (s *stage) fullDisk() fault {
	n := s.any()
	f := s.lasting(s.but(nil))
	f.what = "the disk of " + n.Name + " is full; then " + f.what
	breaks := f.breaks
	f.breaks = func(ctx context.Context) error {
		if err := n.FillDisk(ctx); err != nil {
			return err
		}
		s.cold.Ask(ctx, 5, s.but(nil)...)
		if err := fleet.Wait(ctx, 3*time.Second); err != nil {
			return errors.Join(err, n.FreeDisk(ctx))
		}
		m, err := n.Metrics(ctx)
		if err == nil && m["weir_store_failing"] != 1 {
			s.broken = append(s.broken, fmt.Errorf("%s does not say that its disk is full", n.Name))
		}
		if err := errors.Join(err, n.FreeDisk(ctx), s.untilSaved(ctx, n)); err != nil {
			return err
		}
		return breaks(ctx)
	}
	return f
}

// savedWithin is how soon a node saves again after its disk has room.
const savedWithin = 10 * time.Second

// untilSaved waits until a node says that it can save.
func (s *stage) untilSaved(ctx context.Context, n *fleet.Node) error {
	for range int(savedWithin / (100 * time.Millisecond)) {
		if m, err := n.Metrics(ctx); err == nil && m["weir_store_failing"] == 0 {
			return nil
		}
		if err := fleet.Wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	s.broken = append(s.broken, fmt.Errorf("%s does not save %v after its disk had room again", n.Name, savedWithin))
	return nil
}

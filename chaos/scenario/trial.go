//go:build linux

package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/history"
	"github.com/weirlimit/weir/chaos/load"
)

// apart is how long after the mending keys that were left alone are asked about: what is
// asked sooner may have been counted twice.
const apart = history.Micros(600 * time.Millisecond / time.Microsecond)

const (
	warm   = time.Second             // clients ask before anything is broken
	tail   = 2500 * time.Millisecond // and after all is mended: a window, and more
	pause  = 8 * time.Millisecond    // between the checks of one client
	size   = 3                       // nodes that run, unless a scenario says otherwise
	places = size + 1                // one is free to join
)

// size is how many nodes run.
func (s *Scenario) size() int { return cmp.Or(s.Size, size) }

// Fleet starts the processes that a scenario needs, and waits until they are one
// cluster.
func (s *Scenario) Fleet(ctx context.Context, c fleet.Config) (*fleet.Fleet, error) {
	c.Nodes, c.Spare, c.Redis, c.Clock = s.size()+places-size, places-size, s.Needs&fleet.Redis != 0, s.Clock
	c.Disks, c.Args = s.Needs&fleet.Disks != 0, s.Args
	c.Rules = yaml(served(), unaskedLimit, "rules of "+s.Name)
	f, err := fleet.New(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := f.Settled(ctx, settleWithin); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Try breaks a fleet once, as the seed says, and judges what clients saw. An
// error says that the trial itself could not be made. Nodes that do not become one
// cluster, or end by themselves, break a promise, or the trial is void: then the fleet
// is of no more use.
func (s *Scenario) Try(ctx context.Context, f *fleet.Fleet, seed uint64) (*history.Result, error) {
	st := &stage{Fleet: f, rng: rngOf(s.Name, seed), size: s.size(), spared: -1, rules: rules(), clock: s.Clock}
	broken := s.make(st)
	broken.allows.Converged = convergedWithin
	if f.Lacks(fleet.Shapes) != "" { // only in namespaces is it known how soon a fault has an effect
		broken.allows.ByPolicy, broken.allows.Within, broken.allows.Unfelt, broken.allows.Converged = 0, 0, false, 0
	}
	h := &history.History{Scenario: s.Name, Seed: seed, Nodes: s.size(), Left: broken.gone, Allows: broken.allows,
		Rules: st.rules, Wants: broken.wants, Again: broken.again, Joins: broken.joins}
	f.Notes() // what was noted before is of another trial
	if broken.first != nil {
		if err := broken.first(ctx); err != nil {
			return nil, err
		}
	}
	l := load.Start(ctx, f, st.rules, fmt.Sprintf("%s-%d", s.Name, seed), seed, cmp.Or(broken.pause, pause))
	if broken.hot {
		l.Heat(ctx)
	}
	st.now, st.load = l.Now, l
	fault := history.Fault{Name: s.Name, What: broken.what, Nodes: broken.nodes, Holds: broken.holds}
	var unsettled error
	err := func() error {
		if err := fleet.Wait(ctx, warm); err != nil {
			return err
		}
		if broken.cold {
			st.cold = l.Cold(ctx, st.but(broken.away))
		}
		fault.At = l.Now()
		err := broken.breaks(ctx)
		fault.Broken = l.Now()
		if err := errors.Join(err, fleet.Wait(ctx, broken.hold)); err != nil {
			return err
		}
		if broken.shown != nil {
			f.Doubt(broken.shown(ctx))
		}
		err = broken.mends(ctx)
		fault.Until = l.Now()
		if err != nil {
			return err
		}
		if err := f.Settled(ctx, settleWithin); ctx.Err() != nil {
			return err // which says nothing of the nodes
		} else if unsettled = err; err == nil {
			fault.Settled = l.Now()
		} else {
			h.Unsettled = unsettled.Error()
		}
		if broken.cold {
			if err := fleet.Wait(ctx, (fault.Until + apart - l.Now()).Duration()); err != nil {
				return err
			}
			st.cold.UseUp(ctx, st.but(nil))
		}
		return fleet.Wait(ctx, tail)
	}()
	l.Stop(h)
	h.Allows.Cut = st.severed
	st.noted(h)            // after the last check: who is still down then was so for all of them
	if len(st.parts) > 0 { // the last of a mix is followed by peace
		last := &st.parts[len(st.parts)-1]
		last.Settled = fault.Settled
		h.Faults = st.parts
	} else {
		fault.Takeovers, fault.Loses = broken.takeovers(fault.Until-fault.At), broken.allows.Losses > 0
		h.Faults = append(h.Faults, fault)
	}
	if err != nil {
		h.Interrupted = err.Error()
	}
	if errors.Is(err, fleet.ErrUnsettled) || errors.Is(err, fleet.ErrEnded) {
		// So it was in the middle: the nodes' doing, and no fault of the trial.
		h.Unsettled, unsettled, err = err.Error(), err, nil
	}
	if errors.Is(unsettled, fleet.ErrUnsettled) {
		h.Waited = history.Micros(settleWithin.Microseconds())
	}
	r := history.Judge(h)
	r.Violations = append(r.Violations, st.broken...)
	for i, v := range r.Violations {
		if errors.Is(v, history.ErrUnsettled) { // with what is behind its text
			r.Violations[i] = fmt.Errorf("%w: %w", history.ErrUnsettled, unsettled)
		}
	}
	return r, err
}

// Spent tells that the fleet of a trial is of no more use: its nodes are not one cluster.
func Spent(r *history.Result) bool {
	return r.Void != "" || slices.ContainsFunc(r.Violations, func(v error) bool {
		return errors.Is(v, history.ErrUnsettled)
	})
}

// noted puts into a history what the fleet remembers of what was done to it.
func (s *stage) noted(h *history.History) {
	start := time.Now().Add(-s.now().Duration())
	at := func(t time.Time) history.Micros { return history.Micros(t.Sub(start).Microseconds()) }
	noted := s.Notes()
	for _, d := range noted.Downs {
		h.Downs = append(h.Downs, history.Down{Node: d.Node, How: d.How, Told: at(d.Told), From: at(d.From),
			Until: at(d.Until)})
	}
	for _, n := range noted.Starts {
		h.Starts = append(h.Starts, history.Start{Node: n.Node, Run: n.Run, At: at(n.At)})
	}
	if noted.Doubts != nil {
		h.Doubts = append(h.Doubts, noted.Doubts.Error())
	}
}

// hash makes seeds of different scenarios differ.
func hash(name string) uint64 {
	sum := uint64(14695981039346656037)
	for _, c := range []byte(name) {
		sum = (sum ^ uint64(c)) * 1099511628211
	}
	return sum
}

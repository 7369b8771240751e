//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/weirlimit/weir/chaos/netlab"
)

// watch is links that were set, and what they had done before: what they do from then
// on must be what they were told.
type watch struct {
	links  map[[2]int]netlab.Link
	before map[[2]int]netlab.Counts
	// each: all of their nodes run, so that frames come over every one of them.
	each bool
}

// watch begins to watch links, which have just been set.
func (s *stage) watch(ctx context.Context, links map[[2]int]netlab.Link, each bool) (*watch, error) {
	w := &watch{links: links, before: make(map[[2]int]netlab.Counts), each: each}
	for at := range links {
		c, err := s.Counts(ctx, at[0], at[1])
		if err != nil {
			return nil, err
		}
		w.before[at] = c
	}
	return w, nil
}

// shown returns why the links did not do what they were told, as far as they have not
// been told otherwise since.
func (s *stage) shown(ctx context.Context, w *watch) error {
	var sum netlab.Counts
	var told netlab.Link
	var errs []error
	for at, l := range w.links {
		now, err := s.Counts(ctx, at[0], at[1])
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(s.Link(at[0], at[1]), l) {
			continue
		}
		did := now
		if before := w.before[at]; now.Carried >= before.Carried && now.Dropped >= before.Dropped {
			did = now.Since(before) // else a container has started again, and counts anew
		}
		if w.each {
			if err := eachDid(l, did); err != nil {
				errs = append(errs, fmt.Errorf("from node-%d to node-%d: %w", at[0]+1, at[1]+1, err))
			}
		}
		told = l
		sum.Carried += did.Carried
		sum.Dropped += did.Dropped
		sum.Twice += did.Twice
		sum.Overtaken += did.Overtaken
		sum.Bytes += did.Bytes
		sum.Held += did.Held
	}
	return errors.Join(errors.Join(errs...), allDid(told, sum))
}

// eachDid returns why one direction did not do what it was told, where frames come over
// each: one that loses or doubles a few may lose none of so few.
func eachDid(l netlab.Link, did netlab.Counts) error {
	switch {
	case l.Cut && did.Carried > 0:
		return fmt.Errorf("it was cut, and carried %d frames", did.Carried)
	case (l.Cut || len(l.Blocked) > 0) && did.Dropped == 0:
		return fmt.Errorf("it was to be %s, and dropped none of its frames", l.String())
	case len(l.Blocked) > 0 && did.Carried == 0:
		return fmt.Errorf("it was to be %s, and carried nothing at all", l.String())
	case l.Delay > 0 && did.Carried == 0:
		return fmt.Errorf("it was to be %s, and carried nothing", l.String())
	}
	return nil
}

// someFrames is how many of those that were to be lost, doubled or reordered, there
// must have been for one of them at least to be so: none of so many is one chance in
// five hundred million.
const someFrames = 20

// allDid returns why directions did not do what they were told, to judge by what they
// did together. Where no frames came, nothing can be said of them.
func allDid(l netlab.Link, did netlab.Counts) error {
	of := float64(did.Carried + did.Dropped)
	switch {
	case of == 0:
		return nil
	case (l.Cut || len(l.Blocked) > 0) && did.Dropped == 0:
		return fmt.Errorf("links were to be %s, and dropped none of %.0f frames", l.String(), of)
	case l.Loss*of >= someFrames && did.Dropped == 0:
		return fmt.Errorf("links were to be %s, and lost none of %.0f frames", l.String(), of)
	case l.Duplicate*of >= someFrames && did.Twice == 0:
		return fmt.Errorf("links were to be %s, and carried none of %.0f frames twice", l.String(), of)
	case l.Reorder*of >= someFrames && did.Overtaken == 0:
		return fmt.Errorf("links were to be %s, and %.0f frames came in their order", l.String(), of)
	case l.Delay > 0 && did.Carried >= someFrames && did.Held < time.Duration(did.Carried)*l.Delay*9/10:
		return fmt.Errorf("links were to be %s, and %d frames were under way for %v on average", l.String(), did.Carried,
			did.Held/time.Duration(did.Carried))
	case l.Bandwidth > 0 && did.Held.Seconds() < 0.9*float64(did.Bytes)/float64(l.Bandwidth):
		return fmt.Errorf("links were to carry %s, and needed %v for %d bytes", l.String(), did.Held, did.Bytes)
	}
	return nil
}

// seen judges what is watched, and watches it no more.
func (s *stage) seen(ctx context.Context) {
	s.mu.Lock()
	watches := s.watches
	s.watches = nil
	s.mu.Unlock()
	for _, w := range watches {
		s.Doubt(s.shown(ctx, w))
	}
}

// heal judges what the links did, and makes them whole.
func (s *stage) heal(ctx context.Context) error {
	s.seen(ctx)
	return s.Heal(ctx)
}

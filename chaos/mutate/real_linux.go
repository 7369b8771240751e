package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/history"
	"github.com/weirlimit/weir/chaos/netlab"
	"github.com/weirlimit/weir/chaos/scenario"
	"github.com/weirlimit/weir/chaos/tool"
)

const (
	// mostTrials is how many seeds are tried until one notices: processes run as
	// they will.
	mostTrials = 3
	// trialWithin bounds one trial.
	trialWithin = 4 * time.Minute
)

// run tries the protections on real processes.
func (r *reality) run(ctx context.Context) (err error) {
	wanted, err := r.wanted()
	if err != nil {
		return err
	}
	if err := netlab.Usable(); err != nil {
		return fmt.Errorf("real processes need namespaces: %w", err)
	}
	netlab.BeEager()
	scratch, err := tool.NewDir()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scratch.Remove()) }()
	if r.out != "" {
		if err := os.MkdirAll(r.out, 0o755); err != nil {
			return err
		}
	}
	b := &bench{reality: r, scratch: scratch, dir: scratch.Path, whole: make(map[string]error),
		sound: filepath.Join(scratch.Path, "node")}
	if err := b.build(ctx, b.sound); err != nil {
		return err
	}
	var survived, left []string
	known := showings()
	for _, m := range mutations() {
		s := known[m.name]
		if !wanted.MatchString(m.name) {
			continue
		}
		if s.scenario == "" && r.scenarios == "" {
			left = append(left, fmt.Sprintf("%-46s %s", m.name, s.why))
			continue
		}
		noticed, err := b.show(ctx, &m, s)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if !noticed && s.scenario != "" {
			survived = append(survived, m.name)
		}
	}
	if len(left) > 0 {
		fmt.Printf("\nWhat real processes do not show, and why:\n%s\n", strings.Join(left, "\n"))
	}
	if len(survived) > 0 {
		err = fmt.Errorf("not noticed on real processes: %s", strings.Join(survived, "; "))
	}
	if len(b.flawed) > 0 {
		err = errors.Join(err, fmt.Errorf("the program as it is does not pass %s", strings.Join(b.flawed, "; ")))
	}
	return err
}

// wanted returns which protections are to be tried, of which there must be one, and
// looks whether the scenarios exist.
func (r *reality) wanted() (*regexp.Regexp, error) {
	wanted, err := regexp.Compile(r.only)
	if err != nil {
		return nil, fmt.Errorf("-only is a regular expression with -real: %w", err)
	}
	if !slices.ContainsFunc(mutations(), func(m mutation) bool { return wanted.MatchString(m.name) }) {
		return nil, fmt.Errorf("no protection has a name that %q matches", r.only)
	}
	for _, name := range strings.Split(r.scenarios, ",") {
		if r.scenarios != "" && !slices.ContainsFunc(scenario.All(), func(s scenario.Scenario) bool {
			return s.Name == name
		}) {
			return nil, fmt.Errorf("there is no scenario %q", name)
		}
	}
	return wanted, nil
}

// bench is where builds are tried.
type bench struct {
	*reality
	scratch    *tool.Dir
	dir, sound string
	// whole is what became of the trials of the program as it is.
	whole map[string]error
	// flawed are those that it did not pass.
	flawed []string
	// stood is in how many trials the machine or a node stood still: then less is
	// held against the nodes.
	stood int
}

// show tries a mutation, and prints what came of it. Trials that the program as it is
// does not pass show nothing; others are tried instead of them.
func (b *bench) show(ctx context.Context, m *mutation, s showing) (noticed bool, err error) {
	overlay, err := m.overlay(b.dir)
	if err != nil {
		return false, err
	}
	broken := filepath.Join(b.dir, "mutated")
	if err := b.build(ctx, broken, "-overlay", overlay); err != nil {
		return false, err
	}
	names, seed, most := []string{s.scenario}, max(s.seed, 1), mostTrials
	if b.scenarios != "" {
		names = strings.Split(b.scenarios, ",")
	}
	if b.seed > 0 {
		seed = b.seed
	}
	if b.trials > 0 {
		most = b.trials
	}
	for _, name := range names {
		all := scenario.All()
		i := slices.IndexFunc(all, func(s scenario.Scenario) bool { return s.Name == name })
		if i < 0 {
			return noticed, fmt.Errorf("there is no scenario %q", name)
		}
		b.stood = 0
		times, tried, first := 0, 0, ""
		for at := seed; tried < most && at < seed+uint64(2*most) && (times == 0 || b.trials > 0); at++ {
			if err := b.premise(ctx, &all[i], at); ctx.Err() != nil {
				return noticed, ctx.Err()
			} else if err != nil {
				continue // what is seen then says nothing of the mutation
			}
			tried++
			seen, stood, err := b.try(ctx, &all[i], broken, at)
			if stood {
				b.stood++
			}
			if ctx.Err() != nil {
				return noticed, ctx.Err()
			}
			if err != nil {
				fmt.Printf("%-46s %s, seed %d: the trial did not end: %v\n", m.name, name, at, err)
			}
			if seen == "" {
				continue
			}
			if times++; times == 1 {
				first = fmt.Sprintf("seed %d: %s", at, seen)
			}
		}
		if times == 0 {
			first = "SURVIVED"
		}
		fmt.Printf("%-46s %s, %d of %d, %s\n", m.name, name, times, tried, first)
		if times < tried && b.stood > 0 {
			fmt.Printf("%-46s the machine or a node stood still in %d of these trials\n", "", b.stood)
		}
		noticed = noticed || times > 0
	}
	return noticed, nil
}

// premise has the program as it is pass a trial, once. Where it does not, the trial is
// told of, and the run ends with an error.
func (b *bench) premise(ctx context.Context, s *scenario.Scenario, seed uint64) error {
	name := fmt.Sprintf("%s-%d", s.Name, seed)
	err, done := b.whole[name]
	if !done {
		var seen string
		if seen, _, err = b.try(ctx, s, b.sound, seed); err == nil && seen != "" {
			err = errors.New(seen)
		}
		b.whole[name] = err
		if err != nil && ctx.Err() == nil {
			fmt.Printf("the program as it is does not pass %s, seed %d: %v\n", s.Name, seed, err)
			b.flawed = append(b.flawed, fmt.Sprintf("%s, seed %d", s.Name, seed))
		}
	}
	return err
}

// try puts a program to one trial, on a fleet of its own, and returns the first
// promise that clients saw broken, "" if there was none, and whether something
// stood still that nobody had paused.
func (b *bench) try(ctx context.Context, s *scenario.Scenario, binary string, seed uint64) (seen string, stood bool,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, trialWithin)
	defer cancel()
	dir, err := os.MkdirTemp(b.dir, s.Name)
	if err != nil {
		return "", false, err
	}
	f, err := s.Fleet(ctx, fleet.Config{Seed: seed, Ground: fleet.Namespaces{Binary: binary}, Dir: dir})
	if err != nil {
		return "", false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	r, err := s.Try(ctx, f, seed)
	if r == nil {
		return "", false, err
	}
	stood = r.Stood()
	for _, v := range r.Violations {
		if errors.Is(v, history.ErrFaultUnseen) { // so nothing else shows anything either
			return "", stood, v
		}
		if !errors.Is(v, history.ErrUnsettled) && !errors.Is(v, history.ErrInterrupted) {
			seen = v.Error()
			if n := len(r.Violations); n > 1 {
				seen += fmt.Sprintf(" (and %d more)", n-1)
			}
			return seen, stood, b.keep(r, filepath.Base(binary))
		}
	}
	return "", stood, err
}

// keep keeps a history.
func (b *bench) keep(r *history.Result, of string) error {
	if b.out == "" {
		return nil
	}
	file, err := os.Create(filepath.Join(b.out, fmt.Sprintf("%s-%s-%d.history", of, r.Scenario, r.Seed)))
	if err != nil {
		return err
	}
	return errors.Join(r.Write(file), file.Close())
}

// build builds the node program.
func (b *bench) build(ctx context.Context, to string, flags ...string) error {
	args := append(append([]string{"build"}, flags...), "-o", to, "./cmd/node")
	if out, err := b.scratch.Go(ctx, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("it does not build: %w\n%s", err, out)
	}
	return nil
}

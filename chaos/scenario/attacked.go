//go:build linux

package scenario

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirlimit/weir/chaos/attack"
	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/history"
)

const (
	// attackedHold is how long clients ask in one trial under attack.
	attackedHold = 20 * time.Second
	// stepPause is how long two nodes follow different rules while rules are rolled out.
	stepPause = 2 * time.Second
	// attackWithin is how long the attackers may need until every attack is under way.
	// One of them looks for keys among millions first.
	attackWithin = 2 * time.Minute
)

// calmTrials is how many trials without attacks there are before, and after.
func calmTrials(span time.Duration) int {
	if span < 5*time.Minute {
		return 2
	}
	return 6
}

// Attack has a cluster on loopback attacked in every way for so long, while clients ask
// as ever, and judges each span of 20 s as a trial in which nothing may be broken. With
// keys the cluster has a secret and a key for gossip. What nodes take in calm trials
// before and after is compared.
func Attack(ctx context.Context, c fleet.Config, keyed bool, seed uint64, span time.Duration,
	each func(*history.Result)) (a *Attacked, err error) {
	a = &Attacked{Keyed: keyed}
	c.Nodes, c.Spare = size, 0
	c.Keyless, c.Plain = !keyed, true // attackers speak as if there was no TLS
	c.Rules = attackedRules(1_000_000)
	c.Args = []string{"--allow-request-limits"}
	f, err := fleet.New(ctx, c)
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Settled(ctx, settleWithin); err != nil {
		return a, err
	}
	stop := a.probe(ctx, f)
	defer stop()
	r := &raid{Attacked: a, fleet: f, scenario: Scenario{Name: a.Name(), make: (*stage).attacked}, seed: seed, each: each,
		began: time.Now()}
	calm := func(to *[]Needs) error {
		for range calmTrials(span) {
			if err := r.trial(ctx, nil); err != nil {
				return err
			}
			*to = append(*to, r.now...)
		}
		return nil
	}
	if err := calm(&a.Before); err != nil {
		return a, err
	}
	quiet := r.waits
	r.waits = nil
	a.Trials[0], r.p99 = r.p99, nil
	if err := r.under(ctx, span); err != nil {
		return a, err
	}
	a.Under = [2]history.Micros{quantile(r.waits, 0.5), quantile(r.waits, 0.99)}
	r.waits = quiet
	a.Trials[1], r.p99 = r.p99, nil
	if err := calm(&a.After); err != nil {
		return a, err
	}
	a.Calm = [2]history.Micros{quantile(r.waits, 0.5), quantile(r.waits, 0.99)}
	a.Trials[2] = r.p99
	stop()
	return a, a.judge(span)
}

// attacked is a span in which nothing is broken and nothing may change for clients.
func (s *stage) attacked() fault {
	f := s.nothing()
	f.what, f.hold = "attacked", attackedHold
	return f
}

// raid is a cluster under attack.
type raid struct {
	*Attacked
	fleet    *fleet.Fleet
	scenario Scenario
	seed     uint64
	each     func(*history.Result)
	began    time.Time
	waits    []history.Micros // of honest clients
	p99      []history.Micros // of them, in each trial
	now      []Needs          // of each node, after the last trial
}

// trial lets clients ask once more, and looks at the nodes afterwards. done, if it is not
// nil, returns what the attackers did so far.
func (r *raid) trial(ctx context.Context, done func() (map[string]attack.Tally, error)) error {
	before, err := tallies(done)
	if err != nil {
		return err
	}
	result, err := r.scenario.Try(ctx, r.fleet, r.seed)
	r.seed++
	if result == nil || ctx.Err() != nil {
		return err
	}
	after, ended := tallies(done)
	spent := Spent(result)
	if done != nil && ended == nil {
		if idle := attack.Idle(before, after, r.Keyed); idle != nil {
			result.Void = idle.Error()
		}
	}
	r.each(result)
	if len(result.Violations) > 0 {
		r.wrong = append(r.wrong, result.Seed)
	} else if result.Void != "" {
		r.void = append(r.void, result.Seed)
	}
	from := len(r.waits)
	for i := range result.Ops {
		if o := &result.Ops[i]; o.Counted() && !overlaps(o, result.Stalls) {
			r.waits = append(r.waits, o.Return-o.Call)
		}
	}
	r.p99 = append(r.p99, quantile(slices.Clone(r.waits[from:]), 0.99))
	looked := r.look(ctx)
	if looked == nil && spent {
		looked = errors.New("the nodes are no cluster any more")
	}
	return errors.Join(err, ended, looked)
}

// overlaps reports whether the machine let the clients themselves wait during a check:
// what it took says nothing of the nodes.
func overlaps(o *history.Op, stalls []history.Span) bool {
	return slices.ContainsFunc(stalls, func(s history.Span) bool { return o.Call < s.Until && s.From < o.Return })
}

// tallies returns what the attackers did so far.
func tallies(done func() (map[string]attack.Tally, error)) (map[string]attack.Tally, error) {
	if done == nil {
		return nil, nil
	}
	return done()
}

// under makes trials for so long while the cluster is attacked and rules are rolled out
// node by node.
func (r *raid) under(ctx context.Context, span time.Duration) error {
	c := attack.Cluster{Rules: attackedRules(1_000_000), ClusterName: "weir", Keyed: r.Keyed}
	for _, n := range r.fleet.Nodes() {
		t, err := n.Target()
		if err != nil {
			return err
		}
		c.Targets = append(c.Targets, t)
		if err := n.ForgetPeak(); err != nil {
			return err
		}
	}
	attacker, err := attack.Start(ctx, &c)
	if err != nil {
		return err
	}
	rolling, stop := context.WithCancel(ctx)
	rolled := make(chan error, 1)
	go func() { rolled <- rollOut(rolling, r.fleet) }()
	err = underWay(ctx, attacker, r.Keyed)
	for began := time.Now(); err == nil && time.Since(began) < span; {
		err = r.trial(ctx, attacker.Done)
	}
	for i, n := range r.fleet.Nodes() {
		u, looked := n.Usage()
		err = errors.Join(err, looked)
		r.Peak = append(r.Peak, u.Peak)
		r.Logged = append(r.Logged, u.Logged-r.Before[i].Logged)
	}
	stop()
	done, ended := attacker.End()
	r.Done = done
	return errors.Join(err, <-rolled, ended)
}

// underWay waits until every attack has begun.
func underWay(ctx context.Context, attacker *attack.Attacker, keyed bool) error {
	for began := time.Now(); ; {
		done, err := attacker.Done()
		if err != nil {
			return err
		}
		idle := attack.Idle(nil, done, keyed)
		if idle == nil || time.Since(began) > attackWithin {
			return idle
		}
		if err := fleet.Wait(ctx, time.Second); err != nil {
			return err
		}
	}
}

// rollOut gives the nodes another version of one rule, one node after the other, again
// and again until the context ends, and then all the first version.
func rollOut(ctx context.Context, f *fleet.Fleet) error {
	for n := 0; ; n++ {
		limit := 1_000_000 + (n/size)%2
		if fleet.Wait(ctx, stepPause) != nil {
			return f.SetRules(attackedRules(1_000_000))
		}
		if err := f.SetRulesOf(n%size, attackedRules(limit)); err != nil {
			return err
		}
	}
}

// quantile is the q-quantile of the waits, which it sorts.
func quantile(waits []history.Micros, q float64) history.Micros {
	if len(waits) == 0 {
		return 0
	}
	slices.Sort(waits)
	return waits[min(len(waits)-1, int(q*float64(len(waits))))]
}

// TrialsP99 returns the median of the p99 of the trials before (0), under (1) and after (2)
// the attacks.
func (a *Attacked) TrialsP99(when int) history.Micros {
	return quantile(slices.Clone(a.Trials[when]), 0.5)
}

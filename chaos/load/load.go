//go:build linux

// Package load is the clients of a run: they ask the nodes of a fleet about a few
// keys, more than the limits admit, and write down what each of them saw.
package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/history"
	"github.com/weirlimit/weir/internal/loadgen"
)

const (
	// clientsPerNode is how many clients each node has: those of a node that does
	// not answer wait, the others go on.
	clientsPerNode = 3
	// giveUp is how long a client waits; a node's deadline is 300 ms.
	giveUp = time.Second
	// mostOps bounds what one run records.
	mostOps = 2_000_000
)

// Load is clients at work. Its methods are safe for concurrent use.
type Load struct {
	fleet  *fleet.Fleet
	plan   *plan
	pause  time.Duration
	start  time.Time
	cancel context.CancelFunc
	asking sync.WaitGroup

	mu     sync.Mutex
	ops    []history.Op
	stalls []history.Span
	late   []history.Late
}

// Start has clients ask, each about once in every pause. Keys are new ones of
// this run, as prefix is.
func Start(ctx context.Context, f *fleet.Fleet, rules []history.Rule, prefix string, seed uint64,
	pause time.Duration) *Load {
	ctx, cancel := context.WithCancel(ctx)
	l := &Load{fleet: f, plan: newPlan(rules, prefix), pause: pause, start: time.Now(), cancel: cancel}
	for _, n := range f.Nodes() {
		for c := range clientsPerNode {
			rng := rand.New(rand.NewPCG(seed, uint64(n.Index*clientsPerNode+c)))
			l.client(ctx, n, func() time.Duration { return l.pause/2 + time.Duration(rng.Int64N(int64(l.pause))) },
				func() { l.ask(ctx, n, l.plan.pick(rng)) })
		}
	}
	l.lend(ctx)
	l.asking.Go(func() { l.watch(ctx) })
	for _, n := range f.Nodes() {
		l.asking.Go(func() { l.watchNode(ctx, n) })
	}
	return l
}

// watchNode notes when a node finds its own timers late.
func (l *Load) watchNode(ctx context.Context, n *fleet.Node) {
	const every = 200 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	var seen lateness
	for {
		if run := n.Run(); run > 0 {
			asked := l.Now()
			times, err := n.Late(ctx)
			if span, late := seen.heard(run, times, asked, l.Now(), err); late {
				l.mu.Lock()
				l.late = append(l.late, history.Late{Node: n.Index, Span: span})
				l.mu.Unlock()
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// lateness is what a node has said of how often it was late.
type lateness struct {
	run, times int
	at         history.Micros // when it was asked for that
}

// heard takes what a node said in its run when it was asked, and returns the time within
// which it was late since it was asked before. A node that does not answer says nothing;
// one that was late before it was first asked may have been since that was tried.
func (s *lateness) heard(run, times int, asked, answered history.Micros, err error) (span history.Span, late bool) {
	if run != s.run {
		*s = lateness{run: run, at: asked}
	}
	if err != nil {
		return span, false
	}
	span, late = history.Span{From: s.at, Until: answered}, times > s.times
	s.times, s.at = times, asked
	return span, late
}

// watch notes when the machine lets this process wait.
func (l *Load) watch(ctx context.Context) {
	const every, stall = 5 * time.Millisecond, 50 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for last := l.Now(); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := l.Now()
		if (now - last).Duration() >= stall {
			l.mu.Lock()
			l.stalls = append(l.stalls, history.Span{From: last, Until: now})
			l.mu.Unlock()
		}
		last = now
	}
}

// Now is the present instant of the history.
func (l *Load) Now() history.Micros { return history.Micros(time.Since(l.start).Microseconds()) }

// Stop ends the clients and puts what they saw into a history.
func (l *Load) Stop(h *history.History) {
	l.cancel()
	l.asking.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	h.Ops, h.Stalls, h.Late, h.End = l.ops, l.stalls, l.late, l.Now()
}

// client has a node asked after each pause while it runs, until the context ends.
func (l *Load) client(ctx context.Context, n *fleet.Node, pause func() time.Duration, ask func()) {
	l.asking.Go(func() {
		plan := loadgen.Plan{Long: math.MaxInt64, Pause: func(int) time.Duration { return pause() }}
		_, _ = plan.Run(ctx, []loadgen.Call{func(_ context.Context, c loadgen.Clock, _ time.Duration) (time.Duration, error) {
			if n.Run() > 0 {
				ask()
			}
			return c.Now(), nil
		}}) // it ends with the context alone
	})
}

// question is a check as it is asked for over HTTP.
type question struct {
	Path string `json:"path"`
	User string `json:"user,omitempty"`
	IP   string `json:"ip,omitempty"`
}

// answer is what of a node's answer counts here. Without a Source it is a problem,
// whose Detail says why.
type answer struct {
	Detail  string
	Allowed bool
	Source  string
	Limits  []struct {
		Owner    string
		Overflow bool // there was no room for the counter: nothing was counted
	}
}

// ask asks once and records what came of it.
func (l *Load) ask(ctx context.Context, n *fleet.Node, t target) {
	op := history.Op{Node: n.Index, Run: n.Run(), Rule: t.rule, Keys: t.keys, Call: l.Now()}
	// What has begun is awaited when the run ends, too.
	a, err := post(context.WithoutCancel(ctx), n, t.question)
	op.Return = l.Now()
	record(&op, a, err)
	l.plan.answered(&op)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ops) < mostOps {
		l.ops = append(l.ops, op)
	}
}

// record notes what came of a check.
func record(op *history.Op, a answer, err error) {
	switch {
	case err == nil && a.Allowed:
		op.Outcome = history.Allowed
	case err == nil:
		op.Outcome = history.Denied
	case errors.As(err, new(refusal)):
		op.Outcome, op.Says = history.Refused, err.Error()
	case errors.Is(err, errWrong):
		op.Outcome, op.Says = history.Error, err.Error()
	default:
		op.Outcome = history.Unknown
	}
	op.Source = a.Source
	for _, limit := range a.Limits {
		op.Owners = append(op.Owners, limit.Owner)
		if limit.Overflow {
			op.Outcome, op.Says = history.Refused, history.NoRoom
		}
	}
}

// refusal is why a node did not take a check. There are few, and many checks of each.
type refusal string

func (r refusal) Error() string { return string(r) }

// errWrong: the node answered what it never should.
var errWrong = errors.New("no decision, and no refusal")

// problem is the error of an answer without a decision: only a node that says that it
// comes or goes has refused the check.
func problem(status int, says string) error {
	// What a node says that takes no checks.
	for _, r := range []refusal{"the node is joining", "partitions are not settled", "the node is leaving",
		"the node is stopping", "is closed"} {
		if status == http.StatusServiceUnavailable && strings.Contains(says, string(r)) {
			return r
		}
	}
	return fmt.Errorf("%w: %d %s", errWrong, status, says[:min(len(says), mostSays)])
}

// mostSays is how many bytes of a wrong answer are kept.
const mostSays = 200

// post asks a node once.
func post(ctx context.Context, n *fleet.Node, q question) (a answer, err error) {
	status, text, err := send(ctx, n, "/v1/check", q)
	if err != nil {
		return a, err
	}
	return answerOf(status, text)
}

// answerOf reads what a node answered to one check.
func answerOf(status int, text []byte) (a answer, err error) {
	if err := json.Unmarshal(text, &a); err != nil {
		return answer{}, problem(http.StatusOK, fmt.Sprintf("with status %d, %v: %s", status, err, text))
	}
	if a.Source == "" {
		return a, problem(status, a.Detail)
	}
	return a, nil
}

// send posts to a node, and gives up after a while.
func send(ctx context.Context, n *fleet.Node, path string, what any) (status int, text []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, giveUp)
	defer cancel()
	status, text, err = n.Post(ctx, path, what)
	if errors.Is(err, fleet.ErrAway) {
		err = refusal(fleet.ErrAway.Error())
	}
	return status, text, err
}

//go:build linux

package load

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/history"
)

const (
	// hotBatch is how many checks of one key come at once, from each node: a few of
	// them use a key up sooner than a copy can be told.
	hotBatch = 20
	hotPause = 5 * time.Millisecond
)

// lentPause is between batches about a key whose units owners lend: 1,000 checks a second at each node, where 32 in
// 100 ms are enough for a lease.
const lentPause = 20 * time.Millisecond

// hot is keys that are asked about so much that whatever an owner answers before
// its heir knows of it shows when it dies.
type hot struct {
	mu   sync.Mutex
	made int
	key  string
}

// Heat has each node asked for one key after the other, in batches, each until it
// is used up, of each rule that never recovers.
func (l *Load) Heat(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	stop := l.cancel
	l.cancel = func() { cancel(); stop() }
	for i := range l.plan.rules {
		r := &l.plan.rules[i]
		if r.Once && !r.Lent {
			l.heat(ctx, r, hotPause, 1)
		}
	}
}

// lend has each node asked for one key of each rule whose units owners lend: of one that never recovers, for another
// when a whole batch is denied.
func (l *Load) lend(ctx context.Context) {
	for i := range l.plan.rules {
		if r := &l.plan.rules[i]; r.Lent {
			l.heat(ctx, r, lentPause, hotBatch)
		}
	}
}

// heat has each node asked for one key of a rule, and for another once so many of a batch are denied, if units never
// come back.
func (l *Load) heat(ctx context.Context, r *history.Rule, pause time.Duration, denials int) {
	h := new(hot)
	h.next(r.Name, l.plan.prefix, "")
	for _, n := range l.fleet.Nodes() {
		var begins time.Time
		wait := func() time.Duration { // also where the node does not run, and is not asked
			rest := max(0, pause-time.Since(begins))
			begins = time.Now().Add(rest)
			return rest
		}
		l.client(ctx, n, wait, func() {
			key := h.now()
			if denied := l.batch(ctx, n, r.Name, key); denied >= denials && r.Once {
				h.next(r.Name, l.plan.prefix, key)
			}
		})
	}
}

// next makes another key, unless somebody did.
func (h *hot) next(rule, prefix, after string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.key == after {
		h.made++
		h.key = fmt.Sprintf("%s-hot-%s-%d", prefix, rule, h.made)
	}
}

// now is the key that is asked about.
func (h *hot) now() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.key
}

// batch asks a node for one key, often, and records each answer. It returns how
// many were denials.
func (l *Load) batch(ctx context.Context, n *fleet.Node, rule, key string) (denied int) {
	for _, o := range l.many(ctx, n, rule, []string{key}, question{User: key}) {
		if o.Counted() && o.Outcome == history.Denied {
			denied++
		}
	}
	return denied
}

// many asks a node the same question of a rule, often, and records each answer.
func (l *Load) many(ctx context.Context, n *fleet.Node, rule string, keys []string, q question) []history.Op {
	paths := l.plan.pathsOf(rule)
	q.Path = paths[n.Index%len(paths)] // each node about another path of a quota
	op := history.Op{Node: n.Index, Run: n.Run(), Rule: rule, Keys: keys, Call: l.Now()}
	answers, err := postBatch(context.WithoutCancel(ctx), n, q)
	op.Return = l.Now()
	out := make([]history.Op, hotBatch)
	for i := range out {
		out[i] = op
		if err != nil {
			record(&out[i], answer{}, err)
		} else {
			record(&out[i], answers[i].answer, answers[i].err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ops = append(l.ops, out[:min(len(out), max(0, mostOps-len(l.ops)))]...)
	return out
}

// one is what a node answered to one check of a batch.
type one struct {
	answer answer
	err    error
}

// postBatch asks a node often at once.
func postBatch(ctx context.Context, n *fleet.Node, q question) ([]one, error) {
	var batch struct {
		Checks []question `json:"checks"`
	}
	for range hotBatch {
		batch.Checks = append(batch.Checks, q)
	}
	status, text, err := send(ctx, n, "/v1/check/batch", &batch)
	if err != nil {
		return nil, err
	}
	return answersOf(status, text)
}

// answersOf reads what a node answered to a batch. It may have begun to stop in the
// middle of it.
func answersOf(status int, text []byte) ([]one, error) {
	var got struct {
		Detail  string
		Results []struct {
			Answer answer
			Error  struct {
				Status int
				Detail string
			}
		}
	}
	if err := json.Unmarshal(text, &got); err != nil {
		return nil, problem(http.StatusOK, fmt.Sprintf("with status %d, %v: %s", status, err, text))
	}
	if len(got.Results) != hotBatch {
		return nil, problem(status, got.Detail)
	}
	out := make([]one, hotBatch)
	for i := range got.Results {
		r := &got.Results[i]
		if out[i].answer = r.Answer; r.Answer.Source == "" {
			out[i].err = problem(r.Error.Status, r.Error.Detail)
		}
	}
	return out, nil
}

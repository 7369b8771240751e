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
		if !r.Once {
			continue
		}
		h := new(hot)
		h.next(r.Name, l.plan.prefix, "")
		for _, n := range l.fleet.Nodes() {
			l.asking.Go(func() {
				tick := time.NewTicker(hotPause)
				defer tick.Stop()
				for {
					select {
					case <-tick.C:
					case <-ctx.Done():
						return
					}
					if n.Run() > 0 {
						l.burst(ctx, n, r.Name, h)
					}
				}
			})
		}
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

// burst asks a node for the key of the moment, and goes on to another when that
// is used up.
func (l *Load) burst(ctx context.Context, n *fleet.Node, rule string, h *hot) {
	key := h.now()
	if l.batch(ctx, n, rule, key) > 0 {
		h.next(rule, l.plan.prefix, key)
	}
}

// batch asks a node for one key, often, and records each answer. It returns how
// many were denials.
func (l *Load) batch(ctx context.Context, n *fleet.Node, rule, key string) (denied int) {
	op := history.Op{Node: n.Index, Run: n.Run(), Rule: rule, Keys: []string{key}, Call: l.Now()}
	answers, err := l.postBatch(context.WithoutCancel(ctx), n, question{Path: "/" + rule, User: key})
	op.Return = l.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range hotBatch {
		o := op
		if err != nil {
			record(&o, answer{}, err)
		} else {
			record(&o, answers[i].answer, answers[i].err)
		}
		if o.Counted() && o.Outcome == history.Denied {
			denied++
		}
		if len(l.ops) < mostOps {
			l.ops = append(l.ops, o)
		}
	}
	return denied
}

// one is what a node answered to one check of a batch.
type one struct {
	answer answer
	err    error
}

// postBatch asks a node often at once.
func (l *Load) postBatch(ctx context.Context, n *fleet.Node, q question) ([]one, error) {
	var batch struct {
		Checks []question `json:"checks"`
	}
	for range hotBatch {
		batch.Checks = append(batch.Checks, q)
	}
	status, text, err := l.send(ctx, n, "/v1/check/batch", &batch)
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

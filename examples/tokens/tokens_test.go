package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/weirtest"
)

// watched is a budget of which the test learns what was settled.
type watched struct {
	*weir.Node
	settled chan string
	extends atomic.Int64
	spent   atomic.Int64 // of the money
}

func (w *watched) Settle(ctx context.Context, r limiter.Request, actual int64,
	opts ...limiter.SettleOption) (limiter.Amended, error) {
	a, err := w.Node.Settle(ctx, r, actual, opts...)
	used := limiter.Settlement(opts...).Actual
	w.settled <- fmt.Sprintf("settled %d of %d, %s, %v", used["tokens"], a.Estimate, a.State, err)
	if err == nil {
		w.spent.Add(used["udollars"])
	}
	return a, err
}

func (w *watched) Cancel(ctx context.Context, r limiter.Request) (limiter.Amended, error) {
	a, err := w.Node.Cancel(ctx, r)
	w.settled <- fmt.Sprintf("cancelled %d, %s, %v", a.Estimate, a.State, err)
	return a, err
}

func (w *watched) Extend(ctx context.Context, r limiter.Request) (limiter.Amended, error) {
	defer w.extends.Add(1)
	return w.Node.Extend(ctx, r)
}

// world is a proxy and a model that the test has under control.
type world struct {
	t      *testing.T
	node   *weirtest.Node
	budget *watched
	third  chan struct{} // receives where a third of a hold passes for the proxy
	url    string
	client *http.Client
}

func newWorld(t *testing.T, ahead int64, m *model) *world {
	t.Helper()
	n := weirtest.New(t, rules)
	w := &world{t: t, node: n, budget: &watched{Node: n.Node, settled: make(chan string, 10)}, third: make(chan struct{})}
	wait := func(ctx context.Context, _ time.Duration) error {
		select {
		case <-w.third:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	behind := httptest.NewServer(m)
	t.Cleanup(behind.Close)
	front := httptest.NewServer(&proxy{budget: w.budget, model: behind.URL, ahead: ahead, sleep: wait})
	t.Cleanup(front.Close)
	w.url, w.client = front.URL, front.Client()
	return w
}

// ask asks for an answer of at most so many tokens to a question of three.
func (w *world) ask(ctx context.Context, most int64) (*http.Response, error) {
	body := fmt.Sprintf(`{"prompt": "how are you", "max_tokens": %d}`, most)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("X-User", "ada")
	return w.client.Do(r)
}

// answer asks, and returns the status and the events of the answer.
func (w *world) answer(most int64) (int, []chunk) {
	w.t.Helper()
	resp, err := w.ask(w.t.Context(), most)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	var out []chunk
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			var c chunk
			if err := json.Unmarshal([]byte(data), &c); err != nil {
				w.t.Fatal(err)
			}
			out = append(out, c)
		}
	}
	return resp.StatusCode, out
}

// did awaits what was done with a reservation, and says what is left then.
func (w *world) did(want string, left uint64) {
	w.t.Helper()
	if got := <-w.budget.settled; got != want {
		w.t.Errorf("%s, want %s", got, want)
	}
	w.left(left)
}

func (w *world) left(want uint64) {
	w.t.Helper()
	d, err := w.budget.Peek(context.Background(), limiter.Request{Path: "/chat", User: "ada"})
	if err != nil || d.Limit(0).Remaining != want {
		w.t.Errorf("%d tokens are left, want %d, %v", d.Limit(0).Remaining, want, err)
	}
}

func never(*http.Request, int64) error { return nil }

// Of five concurrent questions that take 663 tokens each one is answered out of 700: what is
// charged only after the answer would let all five through.
func TestFiveAtOnce(t *testing.T) {
	decided := make(chan struct{})
	w := newWorld(t, 0, &model{words: 1000, wait: func(*http.Request, int64) error { <-decided; return nil }})
	var asking sync.WaitGroup
	statuses := make(chan int, 5)
	for range 5 {
		asking.Go(func() {
			resp, err := w.ask(t.Context(), 660)
			if err != nil {
				t.Error(err)
				statuses <- 0
				return
			}
			defer resp.Body.Close()
			statuses <- resp.StatusCode
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Error(err)
			}
		})
	}
	for range 4 { // the model has not said a word yet
		if got := <-statuses; got != http.StatusTooManyRequests {
			t.Errorf("status %d while an answer is held back", got)
		}
	}
	w.left(37)
	close(decided)
	if got := <-statuses; got != http.StatusOK {
		t.Errorf("status %d", got)
	}
	asking.Wait()
	w.did("settled 663 of 663, done, <nil>", 37)
}

// An answer that is shorter than it might be gives the rest back.
func TestUsageSettles(t *testing.T) {
	w := newWorld(t, 0, &model{words: 5, wait: never})
	if status, all := w.answer(600); status != http.StatusOK || len(all) != 6 || *all[5].Usage != (usage{3, 5}) {
		t.Errorf("%d %+v", status, all)
	}
	w.did("settled 8 of 603, done, <nil>", 692)
	if d, err := w.budget.Peek(t.Context(), limiter.Request{Path: "/chat", User: "ada"}); err != nil ||
		d.Limit(1).Remaining != 500_000-84 || w.budget.spent.Load() != 84 { // 3 of the question, and 5 of the answer
		t.Errorf("%d of the money is left, %d was spent (%v)", d.Limit(1).Remaining, w.budget.spent.Load(), err)
	}
}

// A client that hangs up has its tokens back, also if the model never ends.
func TestHangUp(t *testing.T) {
	w := newWorld(t, 20, &model{words: 1 << 30, wait: func(r *http.Request, said int64) error {
		if said < 2 {
			return nil
		}
		<-r.Context().Done() // the proxy ends the model's answer
		return r.Context().Err()
	}})
	for range 50 {
		ctx, hangUp := context.WithCancel(t.Context())
		resp, err := w.ask(ctx, 600)
		if err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || !strings.Contains(line, "word0") {
			t.Fatal(line, err)
		}
		w.left(677)
		hangUp()
		resp.Body.Close()
		w.did("cancelled 23, done, <nil>", 700)
	}
}

// While an answer streams more is reserved, and an answer for which too little is left ends.
func TestTopUp(t *testing.T) {
	w := newWorld(t, 1, &model{words: 650, wait: never})
	if status, all := w.answer(1000); status != http.StatusOK || len(all) != 651 {
		t.Errorf("%d, %d events", status, len(all))
	}
	w.did("settled 653 of 653, done, <nil>", 47)
	if got := w.budget.extends.Load(); got != 30 {
		t.Errorf("%d extensions", got)
	}
	status, all := w.answer(1000)
	if last := all[len(all)-1]; status != http.StatusOK || !strings.Contains(last.Error, "too little of the budget") ||
		last.Usage != nil {
		t.Errorf("%d, %+v", status, last)
	}
	said := int64(len(all)-1) + 3
	if got := <-w.budget.settled; !strings.HasPrefix(got, fmt.Sprintf("settled %d of ", said)) || said > 47 {
		t.Error(got, said)
	}
	w.left(uint64(47 - said))
}

// A reservation lasts as long as its answer, whatever is reserved of it at first, and also while the
// model says nothing.
func TestLongAnswer(t *testing.T) {
	for _, ahead := range []int64{0, 20} {
		var w *world
		w = newWorld(t, ahead, &model{words: 3, wait: func(_ *http.Request, said int64) error {
			for range 4 {
				w.node.Advance(hold / 3)
				before := w.budget.extends.Load()
				w.third <- struct{}{}
				for w.budget.extends.Load() == before {
					runtime.Gosched()
				}
			}
			return nil
		}})
		if status, all := w.answer(600); status != http.StatusOK || len(all) != 4 {
			t.Errorf("%d %+v", status, all)
		}
		estimate := int64(603)
		if ahead > 0 {
			estimate = 3 + ahead
		}
		w.did(fmt.Sprintf("settled 6 of %d, done, <nil>", estimate), 700)
	}
}

// A model that breaks off is paid for what it said, and one that does not answer for the question.
func TestModelFails(t *testing.T) {
	broken := errors.New("it breaks")
	w := newWorld(t, 0, &model{words: 100, wait: func(_ *http.Request, said int64) error {
		if said == 4 {
			return broken
		}
		return nil
	}})
	if status, all := w.answer(600); status != http.StatusOK || len(all) != 4 {
		t.Errorf("%d %+v", status, all)
	}
	w.did("settled 7 of 603, done, <nil>", 693)
}

func TestBadQuestions(t *testing.T) {
	w := newWorld(t, 0, &model{words: 1, wait: never})
	for _, most := range []int64{0, -1, limiter.MaxUnits + 1} {
		if status, _ := w.answer(most); status != http.StatusBadRequest {
			t.Errorf("max_tokens %d: %d", most, status)
		}
	}
	if status, _ := w.answer(698); status != http.StatusTooManyRequests {
		t.Error(status)
	}
	w.left(700)
}

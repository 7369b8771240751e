package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/weirlimit/weir/limiter"
)

const (
	// maxBody bounds a question in bytes, maxEvent an event of an answer.
	maxBody, maxEvent = 1 << 20, 64 << 10
	// hold is how long a reservation lasts if nothing is heard of it. It begins anew with each
	// top-up, and every third of it, however long an answer takes and whatever its model says.
	hold = time.Minute
	// settleWithin bounds a settlement.
	settleWithin = 5 * time.Second
	// topUps is how often more is reserved for an answer, at most. A reservation can be raised 63
	// times, so long answers have longer steps.
	topUps = 50
	// askedCosts and saidCosts are what a token of a question costs, and one of an answer, in millionths of a dollar.
	askedCosts, saidCosts = 3, 15
)

// budget has the tokens of the users; a *weir.Node and a *client.Client are ones.
type budget interface {
	CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error
	Extend(ctx context.Context, r limiter.Request) (limiter.Amended, error)
	Settle(ctx context.Context, r limiter.Request, actual int64, opts ...limiter.SettleOption) (limiter.Amended, error)
	Cancel(ctx context.Context, r limiter.Request) (limiter.Amended, error)
}

// proxy passes questions on to a model, as far as their user has tokens for them.
type proxy struct {
	budget budget
	model  string // its URL
	// ahead is how many tokens of an answer are reserved before they are said, at least; 0: as
	// many as the question allows, so that no answer is cut off.
	ahead int64
	// sleep waits so long, or returns the error of the context if that ends first.
	sleep func(ctx context.Context, d time.Duration) error
}

// sleep waits for some time, or until a context ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ServeHTTP answers a question of the user in X-User, which is believed: what is in front of the
// proxy must set it.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var q question
	if err == nil {
		err = json.Unmarshal(body, &q)
	}
	if err != nil || q.MaxTokens < 1 || q.MaxTokens > limiter.MaxUnits/2/saidCosts {
		http.Error(w, "the question must be JSON with a prompt and max_tokens, from 1", http.StatusBadRequest)
		return
	}
	a := &answer{budget: p.budget, most: tokensOf(q.Prompt) + q.MaxTokens, asked: tokensOf(q.Prompt),
		said: tokensOf(q.Prompt)}
	if p.ahead > 0 {
		a.ahead = max(p.ahead, a.most/topUps)
	}
	a.reserved = a.want()
	a.request = limiter.Request{Path: "/chat", User: r.Header.Get("X-User"), ID: rand.Text(), Hold: hold}
	a.reserves(a.reserved)
	var d limiter.Decision
	switch err := p.budget.CheckInto(r.Context(), &a.request, &d); {
	case errors.Is(err, limiter.ErrInvalid):
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	case err != nil:
		http.Error(w, "the budget cannot be looked up now", http.StatusServiceUnavailable)
		return
	case !d.Allowed:
		if !d.Never {
			w.Header().Set("Retry-After", strconv.FormatInt(limiter.Seconds(d.RetryAfter), 10))
		}
		http.Error(w, "there is too little of the budget left for this question", http.StatusTooManyRequests)
		return
	}
	defer a.settle(r.Context()) // however it ends
	ctx, stop := context.WithCancel(r.Context())
	var keeping sync.WaitGroup
	keeping.Go(func() {
		for p.sleep(ctx, hold/3) == nil {
			a.keep(ctx)
		}
	})
	defer keeping.Wait()
	defer stop()
	p.stream(w, r, body, a)
}

// stream has the model answer and passes its events on.
func (p *proxy) stream(w http.ResponseWriter, r *http.Request, body []byte, a *answer) {
	ctx, stop := context.WithCancel(r.Context())
	defer stop() // the model too, if the budget ends before it
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, p.model, bytes.NewReader(body))
	var resp *http.Response
	if err == nil {
		resp, err = http.DefaultClient.Do(q)
	}
	if err != nil {
		http.Error(w, "the model does not answer", http.StatusBadGateway)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		http.Error(w, "the model refuses the question", http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	events := bufio.NewScanner(resp.Body)
	events.Buffer(nil, maxEvent)
	for events.Scan() {
		data, ok := bytes.CutPrefix(events.Bytes(), []byte("data: "))
		var c chunk
		if !ok || json.Unmarshal(data, &c) != nil {
			continue
		}
		if !a.hear(ctx, &c) {
			send(w, chunk{Error: "there is too little of the budget left for the rest of the answer"})
			return
		}
		send(w, c)
	}
}

// answer is an answer that is under way, and its reservation.
type answer struct {
	budget budget
	ahead  int64
	most   int64 // tokens that it can have, with the question

	mu       sync.Mutex // of request and reserved, while the answer is under way
	request  limiter.Request
	reserved int64 // tokens

	asked int64  // tokens of the question
	said  int64  // tokens of question and answer so far
	usage *usage // what the model says in the end
}

// reserves lets the request say that the answer takes so many tokens with its question, from which each rule takes
// its cost. What is reserved of the money is as if all of them were said by the model.
func (a *answer) reserves(tokens int64) {
	a.request.Attributes = map[string]string{"tokens": fmt.Sprint(tokens), "udollars": fmt.Sprint(tokens * saidCosts)}
}

// want returns how many tokens should be reserved.
func (a *answer) want() int64 {
	if a.ahead == 0 {
		return a.most
	}
	return min(a.most, a.said+a.ahead)
}

// hear takes an event of the model, and reserves more before the reservation is used up. It
// reports whether there are tokens for what the event says.
func (a *answer) hear(ctx context.Context, c *chunk) bool {
	if c.Usage != nil {
		a.usage = c.Usage
		return true
	}
	n := tokensOf(c.Text)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.said+n > a.reserved {
		a.reserves(a.want() + n)
		out, err := a.budget.Extend(ctx, a.request)
		if err != nil || out.State != limiter.AmendDone {
			return false
		}
		a.reserved = int64(out.Estimate)
	}
	a.said += n
	return true
}

// keep lets the reservation last for another hold, with as many tokens as it has. If that fails it
// is tried again before the hold ends, and the settlement tells what became of it.
func (a *answer) keep(ctx context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reserves(a.reserved)
	if _, err := a.budget.Extend(ctx, a.request); err != nil && ctx.Err() == nil {
		log.Printf("a reservation was not extended, and is tried again in %v: %v", hold/3, err)
	}
}

// settle says what was used: what the model says, or what was heard of it. A client that hung
// up uses nothing here; whoever pays the model for what it said until then settles with a.said.
func (a *answer) settle(ctx context.Context) {
	gone := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleWithin)
	defer cancel()
	asked := min(a.asked, a.said)
	used, costs := a.said, asked*askedCosts+(a.said-asked)*saidCosts
	if a.usage != nil {
		asked, said := max(a.usage.Prompt, 0), max(a.usage.Completion, 0)
		used, costs = asked+said, asked*askedCosts+said*saidCosts
	}
	var err error
	if gone && a.usage == nil {
		_, err = a.budget.Cancel(ctx, a.request)
	} else {
		_, err = a.budget.Settle(ctx, a.request, 0, limiter.Actual(map[string]int64{"tokens": used, "udollars": costs}))
	}
	if err != nil {
		log.Printf("a reservation was not settled, and ends within %v: %v", hold, err)
	}
}

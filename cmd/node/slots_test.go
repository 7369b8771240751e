//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"
)

const (
	slotRules = `version: 1
rules:
  - {name: slots, key: [user], hold: 3s, on_unreachable: closed, limits: [{limit: 10, algorithm: concurrency}]}
`
	slotHold = 3 * time.Second
	// slotMargin is how much earlier than the caller thinks a slot may be free: the nodes' clocks
	// are one here, and each takeover shifts an end by less than a tick of the protocol.
	slotMargin = 100 * time.Millisecond
)

// slot is one slot of a caller: it was asked for, granted, and given back at these instants. A
// caller that abandons it gives it back at none.
type slot struct{ asked, granted, back time.Time }

// holdsAt reports whether the slot is certainly held all the time from an instant to another.
func (s *slot) holdsAt(from, to time.Time) bool {
	return !s.granted.After(from) && to.Before(s.asked.Add(slotHold-slotMargin)) && (s.back.IsZero() || to.Before(s.back))
}

// callers ask for slots of one user until a context ends.
type callers struct {
	nodes  []*seat
	client *http.Client
	mu     sync.Mutex
	slots  []*slot
	odd    []string // answers that are neither a decision nor one of a node that is killed
}

// ask asks a node, and returns the answer to a check: false if there is none.
func (c *callers) ask(node *seat, call, body string) (allowed bool) {
	resp, err := c.client.Post("http://"+node.http+"/v1/"+call, "application/json", bytes.NewReader([]byte(body)))
	if err != nil {
		return false // it is killed
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusGatewayTimeout {
		return false
	}
	var out struct {
		Allowed bool   `json:"allowed"`
		Source  string `json:"source"`
	}
	if err := json.Unmarshal(text, &out); err != nil || resp.StatusCode != http.StatusOK &&
		resp.StatusCode != http.StatusTooManyRequests {
		c.mu.Lock()
		c.odd = append(c.odd, fmt.Sprint(call, " ", resp.StatusCode, " ", string(text)))
		c.mu.Unlock()
	}
	return out.Allowed
}

// call is one caller, which asks again and again.
func (c *callers) call(ctx context.Context, n int) {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	for i := 0; ctx.Err() == nil; i++ {
		body := fmt.Sprintf(`{"user": "ada", "id": "%d-%d"`, n, i)
		s := &slot{asked: time.Now()}
		if !c.ask(c.nodes[rng.IntN(len(c.nodes))], "check", body+"}") {
			pause(ctx, time.Second+time.Duration(rng.Int64N(int64(time.Second))))
			continue
		}
		s.granted = time.Now()
		c.mu.Lock()
		c.slots = append(c.slots, s)
		c.mu.Unlock()
		pause(ctx, 50*time.Millisecond)
		if rng.IntN(8) == 0 {
			continue // abandoned
		}
		c.mu.Lock()
		s.back = time.Now()
		c.mu.Unlock()
		for range 3 {
			if c.ask(c.nodes[rng.IntN(len(c.nodes))], "cancel", body+"}"); ctx.Err() != nil {
				break
			}
		}
	}
}

// TestKilledOwnerOfSlots: a thousand callers share ten slots, at three nodes that are killed one
// after the other. By the callers' own count never more are held than ten, and one for each
// takeover; and a slot that nobody gives back is free after its hold.
func TestKilledOwnerOfSlots(t *testing.T) {
	all := places(t, 3, slotRules, "--allow-refunds")
	for _, s := range all {
		s.start(t)
	}
	settle(t, all)
	c := &callers{nodes: all, client: &http.Client{Timeout: 5 * time.Second,
		Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}}
	defer c.client.CloseIdleConnections()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for n := range 1000 {
		wg.Go(func() { c.call(ctx, n) })
	}
	for _, s := range all {
		pause(ctx, time.Second)
		s.kill(t)
		pause(ctx, 2*time.Second)
		s.start(t)
		settle(t, all)
	}
	cancel()
	wg.Wait()
	for i, s := range c.slots {
		held := 1
		for j, o := range c.slots {
			if i != j && o.holdsAt(s.asked, s.granted) {
				held++
			}
		}
		if held > 10+len(all) {
			t.Errorf("%d slots are held when slot %d is granted, at most 10 and one for each of %d takeovers", held, i, len(all))
		}
	}
	if len(c.slots) < 100 {
		t.Errorf("%d slots were granted: it shows too little", len(c.slots))
	}
	for _, text := range c.odd {
		t.Error(text)
	}
	pause(t.Context(), slotHold+slotMargin)
	for _, s := range all {
		if left := leaves(t, s, "ada"); left != 10 {
			t.Errorf("%s: %d slots are free after the last hold, want 10", s.name, left)
		}
	}
	t.Logf("%d slots were granted", len(c.slots))
}

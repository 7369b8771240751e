package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/weirlimit/weir/internal/waiting"
	"github.com/weirlimit/weir/limiter"
)

// Victim is a member of the cluster that the demo kills.
type Victim struct {
	// Name is its name in the cluster.
	Name string
	// Kill ends its process at once, so that it can tell no other member anything.
	Kill func() error
}

// What the story asks for.
const (
	storyLimit  = 20 // of rule reports
	storyBefore = 12 // checks before the kill
	storyUsers  = 2000
	storyPatch  = 10 * time.Second // how long the others have to take over
)

// kill shows that what a member has counted stays when it is killed: it spends a part of a limit that the
// victim owns, kills it, and spends the rest.
func (c *Config) kill(ctx context.Context, s *scene) error {
	say := func(format string, args ...any) error {
		_, err := fmt.Fprintf(c.Out, format+"\n", args...)
		return err
	}
	r, d, err := c.owned(ctx, s)
	if err != nil || r == nil {
		return err
	}
	ask := func() bool {
		for begun := time.Now(); ctx.Err() == nil && time.Since(begun) < storyPatch; {
			if err := s.nodes[0].CheckInto(ctx, r, d); err == nil {
				return true
			}
			_ = waiting.Sleep(ctx, 10*time.Millisecond)
		}
		return false
	}
	allowed := 0
	for range storyBefore {
		if ask() && d.Allowed {
			allowed++
		}
	}
	if err := say("%s owns the counter of user %s, who may have %d reports an hour. He has %d; the last answer:\n\n%s\n",
		c.Victim.Name, r.User, storyLimit, allowed, c.answer(r, d)); err != nil {
		return err
	}
	_ = waiting.Sleep(ctx, time.Second) // with traffic; the heir has all of it by now
	if over(ctx) {
		return nil
	}
	if err := c.Victim.Kill(); err != nil {
		return fmt.Errorf("the demo cannot kill %s: %w", c.Victim.Name, err)
	}
	begun, first := time.Now(), time.Duration(0)
	for ask() && d.Allowed && d.Len() > 0 {
		if allowed++; first == 0 {
			first = time.Since(begun)
			if err := say("%s was killed (kill -9). %v later its heir answers, %s, and knows the count:\n\n%s\n",
				c.Victim.Name, first.Round(time.Millisecond), d.Limit(0).Owner, c.answer(r, d)); err != nil {
				return err
			}
		}
	}
	if over(ctx) {
		return nil
	}
	return say("In all %d were allowed, of %d; the next is denied. The traffic of the others goes on:\n", allowed,
		storyLimit)
}

// owned returns a request for a counter that the victim owns, and memory for its decisions. The request is
// nil if the context ends before.
func (c *Config) owned(ctx context.Context, s *scene) (*limiter.Request, *limiter.Decision, error) {
	d := new(limiter.Decision)
	for i := range storyUsers {
		r := &limiter.Request{Path: "/reports", Method: "GET", User: fmt.Sprintf("kim-%d", i), Cost: limiter.Units(0)}
		err := s.nodes[0].CheckInto(ctx, r, d)
		switch {
		case over(ctx):
			return nil, nil, nil
		case err == nil && d.Len() > 0 && d.Limit(0).Owner == c.Victim.Name:
			r.Cost = limiter.Cost{}
			return r, d, nil
		}
	}
	return nil, nil, fmt.Errorf("%s owns none of %d counters: it is not a member of the cluster yet", c.Victim.Name,
		storyUsers)
}

// answer returns an answer as clients get it, indented.
func (c *Config) answer(r *limiter.Request, d *limiter.Decision) string {
	if c.Answer == nil {
		return ""
	}
	text, err := json.MarshalIndent(c.Answer(r, d), "  ", "  ")
	if err != nil {
		return "" // not reached: it is texts and numbers
	}
	return "  " + string(text)
}

// example returns an answer with its fields, as clients get it; "" if there is none.
func (c *Config) example(ctx context.Context) string {
	r, d := &limiter.Request{Path: "/towns", Method: "GET", User: "you"}, new(limiter.Decision)
	if c.Answer == nil || c.Nodes[0].CheckInto(ctx, r, d) != nil {
		return "" // the traffic will show what is wrong
	}
	return c.answer(r, d)
}

func over(ctx context.Context) bool { return ctx.Err() != nil }

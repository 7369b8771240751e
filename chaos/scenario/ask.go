//go:build linux

package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/weirlimit/weir/chaos/fleet"
)

// unasked is the rule that no client asks about: its limit changes while others stay,
// and its windows are those of the clock.
const unasked = "unasked"

// unaskedLimit is the first of its limits, for each hour.
const unaskedLimit = 1000

// noticeWithin is how long nodes may take to follow a rules file.
const noticeWithin = 10 * time.Second

// check is one as a node is asked for it.
type check struct {
	Path string `json:"path"`
	User string `json:"user"`
}

// answered is what of an answer about the unasked rule counts here.
type answered struct {
	Limits []struct {
		Owner        string `json:"owner"`
		Limit        int    `json:"limit"`
		ResetAfterMS int64  `json:"reset_after_ms"`
	} `json:"limits"`
}

// asks asks a node about the unasked rule.
func asks(ctx context.Context, n *fleet.Node, user string) (a answered, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	status, text, err := n.Post(ctx, "/v1/check", check{"/" + unasked, user})
	if err != nil {
		return a, err
	}
	if err = json.Unmarshal(text, &a); err == nil && len(a.Limits) != 1 {
		err = fmt.Errorf("%s answers %d about %d limits, where one is asked about", n.Name, status, len(a.Limits))
	}
	return a, err
}

// ruled is what nodes say of their rules.
type ruled struct {
	hash   string
	failed float64 // files that were no rules
}

func (s *stage) ruled(ctx context.Context, n *fleet.Node) (r ruled, err error) {
	m, err := n.Metrics(ctx)
	if err != nil {
		return r, err
	}
	for name := range m {
		if hash, ok := strings.CutPrefix(name, "weir_rules_info"); ok {
			r.hash = hash
		}
	}
	r.failed = m[`weir_rules_reloads_total{result="failure"}`]
	if r.hash == "" {
		err = fmt.Errorf("%s does not say which rules it has", n.Name)
	}
	return r, err
}

// serve waits until nodes serve the limit of the unasked rule, and no other rules than
// each other.
func (s *stage) serve(ctx context.Context, limit int, nodes ...*fleet.Node) error {
	return s.within(ctx, func() error {
		hash := ""
		for _, n := range nodes {
			a, err := asks(ctx, n, "reload")
			if err != nil {
				return err
			}
			if a.Limits[0].Limit != limit {
				return fmt.Errorf("%s serves a limit of %d, and the file says %d", n.Name, a.Limits[0].Limit, limit)
			}
			r, err := s.ruled(ctx, n)
			if err != nil {
				return err
			}
			if hash != "" && r.hash != hash {
				return fmt.Errorf("%s has the rules %s, and %s has %s", n.Name, r.hash, nodes[0].Name, hash)
			}
			hash = r.hash
		}
		return nil
	})
}

// refuse has nodes read a file that is no rules, and waits until each has said so and
// keeps the rules that it has.
func (s *stage) refuse(ctx context.Context, text string, nodes ...*fleet.Node) error {
	before := make(map[*fleet.Node]ruled)
	for _, n := range nodes {
		r, err := s.ruled(ctx, n)
		if err != nil {
			return err
		}
		before[n] = r
	}
	if err := s.SetRules(text); err != nil {
		return err
	}
	return s.within(ctx, func() error {
		for _, n := range nodes {
			r, err := s.ruled(ctx, n)
			if err != nil {
				return err
			}
			if r.failed <= before[n].failed {
				return fmt.Errorf("%s has not refused a file that is no rules", n.Name)
			}
			if r.hash != before[n].hash {
				return fmt.Errorf("%s had the rules %s and has %s, of a file that is no rules", n.Name, before[n].hash, r.hash)
			}
		}
		return nil
	})
}

// within tries again until there is no error; after noticeWithin it returns the last.
func (s *stage) within(ctx context.Context, try func() error) error {
	for began := time.Now(); ; {
		err := try()
		if err == nil || time.Since(began) > noticeWithin {
			return err
		}
		if err := fleet.Wait(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// clockWithin is how exactly a node's clock is known from when an hour of its is over.
const clockWithin = time.Second

// off returns why the nodes' clocks are not off by what they were to be: each owner of
// a counter tells when the hour of its clock is over.
func (s *stage) off(ctx context.Context) error {
	const hour = time.Hour
	seen := make(map[string]bool)
	for i := 0; len(seen) < s.size && i < 60*s.size; i++ {
		a, err := asks(ctx, s.Nodes()[i%s.size], fmt.Sprintf("clock-%d", i))
		if err != nil {
			return err
		}
		now := time.Duration(time.Now().UnixNano()) % hour
		is := (hour-time.Duration(a.Limits[0].ResetAfterMS)*time.Millisecond-now+3*hour/2)%hour - hour/2
		for j, n := range s.Nodes()[:s.size] {
			if n.Name != a.Limits[0].Owner {
				continue
			}
			seen[n.Name] = true
			want := time.Duration(0)
			if j < len(s.clock) {
				want = s.clock[j]
			}
			if (is - want).Abs() > clockWithin {
				return fmt.Errorf("the clock of %s was to be off by %v and is by %v", n.Name, want, is)
			}
		}
	}
	if len(seen) < s.size {
		return fmt.Errorf("only %d of %d nodes decide anything about the rule %s", len(seen), s.size, unasked)
	}
	return nil
}

//go:build unix

package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster/gossip"
)

// decides asks a cluster for keys of a group of its own, and wants each limit
// kept: whatever came in before, it decides as ever.
func decides(t *testing.T, all []*seat, group string) {
	t.Helper()
	var c counts
	c.times(t, clusterLimit+3, newAsker(t, all), group)
	if wrong := c.besides(clusterLimit-clusterD, clusterLimit+clusterD); len(wrong) > 0 {
		t.Errorf("afterwards: %v", wrong)
	}
}

// unready polls why a node is not ready, until the reason contains a text.
func (s *seat) unready(t *testing.T, text string) {
	t.Helper()
	deadline := time.After(soon)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	last := ""
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.http+"/readyz", nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			var b strings.Builder
			_ = resp.Write(&b)
			_ = resp.Body.Close()
			if last = b.String(); resp.StatusCode == http.StatusServiceUnavailable && strings.Contains(last, text) {
				cancel()
				return
			}
		}
		cancel()
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("/readyz never said %q, but\n%s\n%s", text, last, s.log)
		}
	}
}

// says requires exactly one log line that contains all of the given texts.
func (s *seat) says(t *testing.T, texts ...string) {
	t.Helper()
	s.until(s.log, texts[0])
	found := 0
	for line := range strings.Lines(s.log.String()) {
		has := true
		for _, text := range texts {
			has = has && strings.Contains(line, text)
		}
		if has {
			found++
		}
	}
	if found != 1 {
		t.Errorf("%s said %q in %d lines, want 1:\n%s", s.name, texts, found, s.log)
	}
}

// newcomer is a place for a node that joins others. More flags come last, so
// they win.
func newcomer(t *testing.T, others []*seat, name string, flags ...string) *seat {
	t.Helper()
	s := places(t, 1, clusterRules, "--join", others[0].gossip+","+others[1].gossip)[0]
	s.name = name
	s.args = append(s.args, append([]string{"--name", name}, flags...)...)
	return s
}

func secret(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func pair(t *testing.T, flags ...string) []*seat {
	t.Helper()
	all := places(t, 2, clusterRules, flags...)
	for _, s := range all {
		s.start(t)
	}
	settle(t, all)
	return all
}

// A node that does not belong to a cluster does not start, and reports why. The cluster
// logs it and continues.
func TestBadNewcomers(t *testing.T) {
	same := secret(t, "one")
	all := pair(t, "--secret-file", same)
	for name, c := range map[string]struct {
		name  string
		flags []string
		told  []string // on the newcomer's log
		tells string   // a member's
	}{
		"a name that is taken": {all[0].name, nil, []string{`"the node cannot start"`, "give one of them another name",
			all[0].gossip}, "is kept out"},
		"another cluster's": {"other", []string{"--cluster-name", "beta"},
			[]string{`"the node cannot start"`, `belongs to the cluster \"weir\", this one to \"beta\"`}, "another cluster"},
		"another secret's": {"secretive", []string{"--secret-file", secret(t, "two")},
			[]string{`"the node cannot start"`, "has another secret than this one: give all members the same"},
			"has another secret than this one"},
		"without the secret": {"secretless", []string{"--secret-file", ""},
			[]string{`"the node cannot start"`, "has a secret, and this one has none: give all members the same"},
			"has no secret, and this one has"},
		"a gossip key": {"other", []string{"--gossip-key-file", secret(t, "MDEyMzQ1Njc4OTAxMjM0NQ==\n")},
			[]string{`"the node cannot start"`, "gossip key"},
			"encrypted with another key, or not at all"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newcomer(t, all, c.name, append([]string{"--secret-file", same}, c.flags...)...)
			s.start(t)
			s.end(1)
			if got := strings.Count(s.log.String(), `"level":"WARN"`) + strings.Count(s.log.String(),
				`"level":"ERROR"`); got != 1 {
				t.Errorf("it says why in %d records, want 1:\n%s", got, s.log)
			}
			for _, text := range c.told {
				if !strings.Contains(s.log.String(), text) {
					t.Errorf("it does not say %q:\n%s", text, s.log)
				}
			}
			all[0].until(all[0].log, c.tells)
			decides(t, all, strings.ReplaceAll(name, " ", "-"))
		})
	}
	for _, s := range all {
		if _, body := get(t, http.DefaultClient, "http://"+s.admin+"/metrics"); !strings.Contains(body,
			"weir_members{state=\"active\"} 2\n") {
			t.Errorf("%s has other members than at first", s.name)
		}
	}
}

// A node that computes other owners is refused with the reason. No two versions of the
// program differ in that yet, so the test simulates one.
func TestOtherRing(t *testing.T) {
	all := pair(t)
	g, err := gossip.Open(t.Context(), gossip.Config{
		Name: "other", Instance: 1, ClusterName: "weir", RingConfig: 7, BindAddr: "127.0.0.1:0",
		Join: []string{all[0].gossip}, Logger: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		err = g.Close()
		t.Fatalf("it was let in, %v", err)
	}
	if !errors.Is(err, gossip.ErrOtherRing) || !strings.Contains(err.Error(), "0000000000000007") {
		t.Errorf("it is told %v", err)
	}
	all[0].says(t, "a node is kept out", "has the ring configuration 0000000000000007", "they need one version of Weir")
	decides(t, all, "ring")
}

// A node with another secret runs alone before a cluster begins to look for it. Each
// refuses the other, logs why, and continues.
func TestOtherSecretMeetsLater(t *testing.T) {
	all := places(t, 3, clusterRules)
	alone := all[2]
	alone.args = append(alone.args, "--secret-file", secret(t, "two"))
	alone.start(t)
	alone.until(alone.log, "the node is ready")
	for _, s := range all[:2] {
		s.args = append(s.args, "--secret-file", secret(t, "one"))
	}
	all[0].start(t)
	all[0].end(1)
	if !strings.Contains(all[0].log.String(), "has another secret than this one: give all members the same") {
		t.Errorf("it does not say why:\n%s", all[0].log)
	}
	for _, s := range all[:2] { // these know only each other
		s.args = append(s.args, "--join", all[0].gossip+","+all[1].gossip)
		s.start(t)
	}
	settle(t, all[:2])
	for _, s := range all[:2] {
		s.until(s.log, "has another secret than this one")
	}
	alone.until(alone.log, "has another secret than this one")
	alone.settled(t, 1)
	decides(t, all[:2], "secret")
}

// A node with a wrong join address reports it, first in /readyz and soon in its log,
// and then continues alone.
func TestJoinNobody(t *testing.T) {
	all := pair(t)
	free := freePorts(t, 1)[0]
	cases := []struct {
		name, join string
		told, then []string
		*seat
	}{
		{"unresolvable", "nobody.invalid:7946", []string{"an address to join by cannot be resolved", "nobody.invalid"},
			[]string{"this node starts the cluster"}, nil},
		{"http", all[0].http, []string{"cannot join", "not as the gossip port of a Weir node", all[0].http},
			[]string{"no join address has answered", all[0].http}, nil},
		{"grpc", all[0].grpc, []string{"cannot join", "not as the gossip port of a Weir node", all[0].grpc},
			[]string{"no join address has answered", all[0].grpc}, nil},
		{"peers", all[0].peers, nil, []string{"no join address has answered", all[0].peers}, nil},
		{"nothing", free, nil, []string{"no join address has answered", "refused", free}, nil},
	}
	for i := range cases {
		c := &cases[i]
		c.seat = newcomer(t, all, c.name, "--join", c.join)
		c.start(t)
		c.unready(t, "joining")
	}
	for _, c := range cases {
		c.until(c.log, "the node is ready")
		c.says(t, c.then...)
		if c.told != nil {
			c.says(t, c.told...)
		}
		if lines := strings.Count(c.log.String(), "\n"); lines > 20 {
			t.Errorf("%s: %d lines:\n%s", c.name, lines, c.log)
		}
	}
	decides(t, all, "joined")
}

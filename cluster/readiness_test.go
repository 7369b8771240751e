package cluster

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/cluster/members"
	"github.com/weirlimit/weir/internal/peer"
)

// What keeps a node from holding what it should is logged as one warning, with the
// amount, the possible cause and what to do.
func TestReadinessProblemsAreLogged(t *testing.T) {
	far := []peer.Member{{Name: "node-2", PeerAddr: "h:1"}}
	for _, c := range []struct {
		problem members.Problem
		says    []string
	}{
		{members.Problem{State: peer.Joining, Others: 1, Unreached: far},
			[]string{"does not become ready", "--advertise", "state=joining", `\"node-2\" at h:1`}},
		{members.Problem{State: peer.Active, Unsettled: 9, Others: 1, Unreached: far},
			[]string{"does not become ready", "unsettled=9"}},
		{members.Problem{State: peer.Active, Ready: true, Unsettled: 9, Minority: true},
			[]string{"is ready although", "no more than half", "weir members forget", "unsettled=9"}},
		{members.Problem{State: peer.Active, Ready: true, Unsettled: 9, Others: 2, Unreached: far},
			[]string{"is ready although", "no connection to some", "unreached=1", `\"node-2\" at h:1`}},
		{members.Problem{State: peer.Active, Ready: true, Unsettled: 9, Others: 2},
			[]string{"is ready although", "too little CPU", "unsettled=9"}},
	} {
		var log bytes.Buffer
		m := &member{log: slog.New(slog.NewTextHandler(&log, nil))}
		m.logProblem(c.problem)
		if strings.Count(log.String(), "level=WARN") != 1 {
			t.Errorf("%+v: %s", c.problem, log.String())
		}
		for _, text := range c.says {
			if !strings.Contains(log.String(), text) {
				t.Errorf("%+v does not say %q: %s", c.problem, text, log.String())
			}
		}
	}
}

// Rules are compared among members that are not dead.
func TestRulesOfTheDead(t *testing.T) {
	members := []peer.Member{
		{Name: "a", State: peer.Dead, RulesHash: 1}, {Name: "b", State: peer.Active, RulesHash: 2},
		{Name: "c", State: peer.Active, RulesHash: 2},
	}
	if got := differing(members, rulesHash); got != "" {
		t.Errorf("those that live have the same rules, and it says %q", got)
	}
	members[2].RulesHash = 3
	if got := differing(members, rulesHash); got != "b 0000000000000002, c 0000000000000003" {
		t.Errorf("got %q", got)
	}
}

package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
)

const explainable = `version: 1
rules:
  - {name: login, match: {path: ^/login}, keys: [[ip], [user]], limits: [{name: day, limit: 9, window: 1d, algorithm: fixed_window}]}
  - {name: slow, match: {path: ^/slow}, on_unreachable: closed, limits: [{name: log, limit: 3, window: 1h, algorithm: sliding_log}]}
  - {name: free, match: {path: ^/free}, unlimited: true}
`

// Any member explains any request, of one owner or of several, in the same words, names
// the owner of each key, and counts nothing.
func TestAnyMemberExplains(t *testing.T) {
	nodes := three(t, explainable)
	ctx := t.Context()
	several, owners := 0, map[string]int{}
	for u := range 20 {
		r := weir.Request{Path: "/login", IP: fmt.Sprint("192.0.2.", u), User: fmt.Sprint("user", u)}
		for range 2 {
			check(t, nodes[u%3], r)
		}
		first, err := nodes[0].Explain(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		if len(first.Limits) != 2 || first.Answer.Source != "owner" || !first.Answer.Allowed || len(first.Rules) != 1 ||
			first.Rules[0] != "login" {
			t.Fatalf("%+v", first)
		}
		for i, l := range first.Limits {
			if l.Owner == "" || l.ToldBy != l.Owner || l.Owner != first.Answer.Limits[i].Owner || l.Now == 0 ||
				l.Arithmetic != "2 counted + 1 <= 9: yes" || !strings.HasSuffix(l.Key, ":day") || l.Name != "login/day" {
				t.Errorf("user %d: %+v", u, l)
			}
			if f := l.State[len(l.State)-1]; f.Name != "copy" || !strings.HasPrefix(f.Value, "at ") || f.Value == "at "+l.Owner {
				t.Errorf("user %d: owned by %s, copy %+v", u, l.Owner, f)
			}
			owners[l.Owner]++
		}
		if first.Limits[0].Owner != first.Limits[1].Owner {
			several++
		}
		for i, n := range nodes[1:] {
			e, err := n.Explain(ctx, r)
			if err != nil {
				t.Fatal(err)
			}
			for j := range e.Limits {
				e.Limits[j].Now = first.Limits[j].Now // it is another instant
			}
			if diff := cmp.Diff(first.Limits, e.Limits); diff != "" {
				t.Errorf("node %d explains otherwise:\n%s", i+2, diff)
			}
		}
	}
	if len(owners) != 3 || several == 0 {
		t.Errorf("owners %v, %d requests of several", owners, several)
	}
	known := weir.Request{Path: "/login", IP: "198.51.100.1", User: "ada", ID: "x", Cost: weir.Units(9)}
	check(t, nodes[0], known)
	other := known // its user is new, and its address has nothing left
	other.User = "bob"
	for i, n := range nodes { // a check with the id would be told what it was told before
		if e, err := n.Explain(ctx, known); err != nil || !e.Answer.Allowed || !e.Answer.Repeated {
			t.Errorf("node %d explains a repetition as %+v, %v", i+1, e, err)
		}
		if e, err := n.Explain(ctx, other); err != nil || e.Answer.Repeated {
			t.Errorf("node %d explains what it was not asked for yet as %+v, %v", i+1, e, err)
		}
	}
	r := weir.Request{Path: "/slow", User: "ada"}
	for i := range 5 {
		check(t, nodes[i%3], r)
	}
	for i, n := range nodes {
		e, err := n.Explain(ctx, r)
		if err != nil || e.Answer.Allowed || e.Answer.BlockedBy != "slow/log" ||
			e.Limits[0].Arithmetic != "3 counted + 1 <= 3: no" || len(e.Limits[0].Counts) != 3 {
			t.Errorf("node %d: %+v, %v", i+1, e, err)
		}
		for path, want := range map[string]string{"/free": `"rules":["free"],"unlimited":true,`, "/": `"rules":[],`} {
			e, err := n.Explain(ctx, weir.Request{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			if text, err := json.Marshal(e); err != nil || !strings.Contains(string(text), want) ||
				!strings.HasSuffix(string(text), `"limits":[]}`) {
				t.Errorf("node %d, %s: %s, %v", i+1, path, text, err)
			}
		}
		if _, err := n.Explain(ctx, weir.Request{Path: "/slow",
			User: strings.Repeat("u", limiter.MaxFieldBytes+1)}); !errors.Is(err, weir.ErrInvalid) {
			t.Errorf("node %d, an invalid request: %v", i+1, err)
		}
	}
}

// If no holder of a key is left, the error names its owner. No call lasts longer than
// its context. A closed node says that it is closed.
func TestNobodyExplains(t *testing.T) {
	node, r := cutOff(t, 100*time.Millisecond)
	e, err := node.Explain(t.Context(), *r)
	if !errors.Is(err, weir.ErrUnanswered) || !strings.Contains(err.Error(), `"/towns:`+r.User+`"`) ||
		!strings.Contains(err.Error(), `member "node-2"`) || !strings.Contains(err.Error(), "within 100ms") {
		t.Errorf("%+v, %v", e, err)
	}
	if err := node.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := node.Explain(t.Context(), *r); !errors.Is(err, weir.ErrClosed) {
		t.Errorf("a closed node: %v", err)
	}
	node, r = cutOff(t, time.Minute)
	ctx := &brief{Context: t.Context(), ended: make(chan struct{})}
	for _, when := range []string{"that ends", "that has ended"} {
		if _, err := node.Explain(ctx, *r); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a context %s: %v", when, err)
		}
	}
}

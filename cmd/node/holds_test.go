//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"
)

const holdRules = `version: 1
rules:
  - {name: chat, key: [user], limits: [40/day], on_unreachable: closed}
`

// reserved asks a node about the reservation of a user, and returns the state in the answer. A
// settlement that nobody answered is asked for again at the other nodes, which does no harm.
func reserved(t *testing.T, nodes []*seat, call, user, more string) (state string) {
	t.Helper()
	body := fmt.Sprintf(`{"user": %q, "id": "r"%s}`, user, more)
	var status int
	var text string
	for i := range 40 {
		status, text = asked(t, http.DefaultClient, "POST", "http://"+nodes[i%len(nodes)].http+"/v1/"+call, body,
			"Content-Type", "application/json")
		if status != http.StatusServiceUnavailable && status != http.StatusGatewayTimeout {
			break
		}
	}
	var out struct {
		State   string `json:"state"`
		Allowed *bool  `json:"allowed"`
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil || status != http.StatusOK {
		t.Errorf("%s of %s: %d %s", call, user, status, text)
	}
	if out.Allowed != nil {
		return fmt.Sprint("allowed ", *out.Allowed)
	}
	return out.State
}

// leaves returns how much of its limit a user has left.
func leaves(t *testing.T, node *seat, user string) int {
	t.Helper()
	_, text := asked(t, http.DefaultClient, "POST", "http://"+node.http+"/v1/check",
		fmt.Sprintf(`{"user": %q, "peek": true}`, user), "Content-Type", "application/json")
	var out struct {
		Limits []struct {
			Remaining int `json:"remaining"`
		} `json:"limits"`
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil || len(out.Limits) != 1 {
		t.Fatalf("%s: %v in %s", user, err, text)
	}
	return out.Limits[0].Remaining
}

// Reservations of thirty users outlive a node that is killed: it owns a third of them, and is the
// heir of another third. They are settled once, also while a node hands them over.
func TestKilledOwnerOfHolds(t *testing.T) {
	all := places(t, 3, holdRules, "--allow-refunds")
	for _, s := range all {
		s.start(t)
	}
	settle(t, all)
	const users = 30
	actual := [3]int{10, 4, 12} // of 10 that are reserved
	hold := func(nodes []*seat, name string) {
		t.Helper()
		for u := range users {
			user := fmt.Sprint(name, u)
			for i := range 2 { // twice, at different nodes
				if got := reserved(t, nodes[(u+i)%len(nodes):], "check", user,
					`, "cost": 10, "hold_ms": 600000`); got != "allowed true" {
					t.Errorf("%s reserves: %s", user, got)
				}
			}
		}
	}
	counted := func(nodes []*seat, name string) {
		t.Helper()
		for u := range users {
			user := fmt.Sprint(name, u)
			if left, want := leaves(t, nodes[u%len(nodes)], user), 40-actual[u%3]; left != want {
				t.Errorf("%s has %d left, want %d", user, left, want)
			}
		}
	}

	hold(all, "killed")
	pause(t.Context(), time.Second) // until all heirs have all of it
	all[2].kill(t)
	settle(t, all[:2])
	for u := range users {
		user := fmt.Sprint("killed", u)
		for i, want := range []string{"done", "repeated"} {
			if got := reserved(t, all[(u+i)%2:2], "settle", user, fmt.Sprintf(`, "actual": %d`, actual[u%3])); got != want {
				t.Errorf("%s settles: %s, want %s", user, got, want)
			}
		}
	}
	counted(all[:2], "killed")

	all[2].start(t)
	settle(t, all)
	counted(all, "killed")
	hold(all, "left")
	all[2].signal(syscall.SIGTERM)
	for u := range users { // one after the other, at all moments of the handoff
		user := fmt.Sprint("left", u)
		if got := reserved(t, all[u%2:2], "settle", user, fmt.Sprintf(`, "actual": %d`, actual[u%3])); got != "done" &&
			got != "repeated" {
			t.Errorf("%s settles: %s", user, got)
		}
		pause(t.Context(), 5*time.Millisecond)
	}
	all[2].left(t)
	settle(t, all[:2])
	counted(all[:2], "left")
}

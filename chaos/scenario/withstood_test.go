//go:build linux

package scenario

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/chaos/attack"
	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/history"
	"github.com/weirlimit/weir/chaos/report"
)

// calmNodes is what three nodes take after two calm trials.
func calmNodes() []Needs {
	var out []Needs
	for i := range 2 * size {
		out = append(out, Needs{
			report.Sample{Goroutines: float64(100 + i), FDs: 30},
			fleet.Usage{Resident: int64(60+i) << 20, FDs: 30 + i%2, Sockets: 20 + i%2},
		})
	}
	return out
}

// whole is a cluster that has withstood attacks.
func whole() *Attacked {
	return &Attacked{
		Before: calmNodes(), After: calmNodes(), Peak: make([]int64, size), Logged: make([]int64, size),
		failed: make([]int, size),
		Calm:   [2]history.Micros{1000, 2000}, Under: [2]history.Micros{1000, 2000},
	}
}

// What attacks leave behind breaks the trial, of each thing that is looked at, and
// what comes back does not.
func TestLeaks(t *testing.T) {
	if err := whole().leaks(); err != nil {
		t.Fatal(err)
	}
	once := whole()
	for node := range size { // after the first calm trial it is still there, after the second it is gone
		once.After[node].Goroutines += 1000
		once.After[node].Resident += 1 << 30
		once.After[node].Sockets += 1000
	}
	if err := once.leaks(); err != nil {
		t.Errorf("what has gone is left: %v", err)
	}
	for what, leak := range map[string]func(*Needs){
		"goroutines":        func(n *Needs) { n.Goroutines += 40 },
		"file descriptors":  func(n *Needs) { n.Usage.FDs += 40 },
		"sockets":           func(n *Needs) { n.Sockets += 40 },
		"bytes of memory":   func(n *Needs) { n.Resident += 100 << 20 },
		"parked checks":     func(n *Needs) { n.Parked++ },
		"queued frames":     func(n *Needs) { n.Queued++ },
		"sealed partitions": func(n *Needs) { n.Sealed++ },
	} {
		a := whole()
		for i := 1; i < len(a.After); i += size {
			leak(&a.After[i])
		}
		if err := a.leaks(); err == nil || !strings.Contains(err.Error(), "node 2") || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := new(Attacked).leaks(); err == nil {
		t.Error("nodes of which nothing is known leak nothing")
	}
}

// Each bound breaks the trial by itself, and attacks that did nothing make it void.
func TestAttackedIsJudged(t *testing.T) {
	if err := whole().judge(time.Minute); !errors.Is(err, attack.ErrVoid) {
		t.Errorf("nothing was attacked: %v", err)
	}
	for says, wrong := range map[string]func(*Attacked){
		"promise":    func(a *Attacked) { a.wrong = []uint64{7} },
		"void":       func(a *Attacked) { a.void = []uint64{7} },
		"p99":        func(a *Attacked) { a.Under[1] = 3 * a.Calm[1] },
		"MB":         func(a *Attacked) { a.Peak[1] = mostPeak + 1 },
		"logged":     func(a *Attacked) { a.Logged[1] = mostLogged + mostLoggedEach + 1 },
		"supervisor": func(a *Attacked) { a.failed[2] = 3 },
		"members":    func(a *Attacked) { a.members = []string{"node-1 has 9 dead members"} },
		"are left":   func(a *Attacked) { a.After[0].Parked, a.After[size].Parked = 1, 1 },
	} {
		a := whole()
		before := len(a.judge(time.Minute).Error())
		wrong(a)
		if err := a.judge(time.Minute); len(err.Error()) == before || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

package cluster

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
)

// panicked is an observer that counts panics by place.
type panicked struct {
	mu sync.Mutex
	at map[string]int
}

func (p *panicked) Panicked(place string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at[place]++
}

// A member whose core panics counts and logs that with the stack, still answers the
// check, and continues.
func TestAMemberSurvivesPanics(t *testing.T) {
	said := make(told, 1000)
	watch := &panicked{at: make(map[string]int)}
	n, err := weir.Open(t.Context(), weir.Config{
		Observer: &weir.Observer{Panicked: watch.Panicked},
		Cluster: &Config{Name: "node-1", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0",
			Logger: slog.New(slog.NewTextHandler(said, nil))},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	m := n.Cluster().(*member)
	charge := func(limits ...*limiter.Limit) *arith.Charge {
		c := new(arith.Charge)
		c.Add(arith.Key{Hash: arith.Hash{Hi: 1, Lo: 2}, Rule: &limiter.Rule{Name: "r", Limits: limits}, Cost: 1})
		return c
	}
	m.sched.After(0, func() { panic("in a timer") })
	d := new(weir.Decision)
	if err := m.core.Check(t.Context(), charge(nil), d); err != nil || d.Allowed {
		t.Errorf("a check that panics is answered %v, %+v, want a denial", err, d)
	}
	for line := range said { // the test's own deadline bounds it
		if strings.Contains(line, "panic recovered") && strings.Contains(line, "stack=") &&
			strings.Contains(line, "place=cluster") {
			break
		}
	}
	good := limitertest.Limit(t, limiter.Spec{Limit: 1_000_000_000, Window: time.Minute})
	for {
		// Its partition starts empty, or is given up for a minute; then the policy
		// answers.
		if err := m.core.Check(t.Context(), charge(good), d); err != nil || !d.Allowed {
			t.Errorf("after the panic a check is answered %v, %+v", err, d)
		}
		watch.mu.Lock()
		both := watch.at["cluster"] >= 2
		watch.mu.Unlock()
		if both {
			return
		}
	}
}

package resp

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
)

// auditor keeps what it is told.
type auditor struct {
	mu   sync.Mutex
	told []string
	why  string // of the last
}

func (a *auditor) Audited(e frontend.AuditEvent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.why = e.Why
	a.told = append(a.told, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", e.Action, e.Outcome, e.Caller, e.Over)))
}

// decider is what a node is to this package.
type decider interface {
	frontend.Decider
	frontend.BatchPeeker
	frontend.Refunder
	frontend.Reserver
}

// unresettable is a node at which resets fail.
type unresettable struct{ decider }

func (unresettable) Reset(context.Context, limiter.Request) (int, error) {
	return 0, limiter.ErrUnanswered
}

// A reset that fails is told to the audit, as over HTTP: a part of it may have been done.
func TestFailedResetsAreTold(t *testing.T) {
	var told auditor
	c := start(t, func(o *Options) { o.Config.Decider, o.Config.Audit = unresettable{o.Config.Decider.(decider)}, &told }).dial(t)
	for _, ask := range []string{"WEIR.RESET /towns", "DEL a b"} {
		if got := c.ask(ask); !strings.HasPrefix(got, "-TRYAGAIN ") {
			t.Errorf("%s: %s", ask, got)
		}
	}
	if got := fmt.Sprint(told.told); got != "[weir.reset failed  redis del failed  redis]" {
		t.Errorf("the audit has %s", got)
	}
}

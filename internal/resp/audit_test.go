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
	c := start(t, func(o *Options) {
		o.Config.Decider, o.Config.Audit = unresettable{o.Config.Decider.(decider)}, &told
	}).dial(t)
	for _, ask := range []string{"WEIR.RESET /towns", "DEL a b"} {
		if got := c.ask(ask); !strings.HasPrefix(got, "-TRYAGAIN ") {
			t.Errorf("%s: %s", ask, got)
		}
	}
	if got := fmt.Sprint(told.told); got != "[weir.reset failed  redis del failed  redis]" {
		t.Errorf("the audit has %s", got)
	}
}

// The audit says of a reset that there was no counter: a name that was misspelt has none.
func TestResetsOfNothingAreTold(t *testing.T) {
	var told auditor
	c := start(t, func(o *Options) { o.Config.Audit = &told }).dial(t)
	for _, x := range []struct{ ask, reply, why string }{
		{"WEIR.RESET /towns USER ada", "0", "there was no counter to reset"},
		{"DEL k", "0", "there was no counter to reset"},
		{"WEIR.CHECK /towns USER ada", "", ""},
		{"CL.THROTTLE k 0 1 60", "", ""},
		{"WEIR.RESET /towns USER ada", "1", ""},
		{"DEL k nothing", "1", ""},
	} {
		got := c.ask(x.ask)
		told.mu.Lock()
		if x.reply != "" && (got != x.reply || told.why != x.why) {
			t.Errorf("%s: %s, and the audit has %q, want %s and %q", x.ask, got, told.why, x.reply, x.why)
		}
		told.mu.Unlock()
	}
}

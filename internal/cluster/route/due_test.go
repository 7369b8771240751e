package route

import (
	"testing"

	"github.com/weirlimit/weir/limiter"
)

// A tick looks at the calls when one of them may have something to do, and not before.
func TestTicksLookAtCallsThatAreDue(t *testing.T) {
	r := New(Config{Self: 1})
	x := &r.calls
	turn := &Turn{Now: limiter.Second}
	add := func(o *Call) *Call {
		o.c = r
		if !x.add(o, turn) {
			t.Fatal("there is no room")
		}
		return o
	}
	due := func(want limiter.Tick, what string) {
		t.Helper()
		if got := limiter.Tick(x.due.Load()); got != want {
			t.Errorf("%s: ticks look at the calls from %v on, want %v", what, got, want)
		}
	}
	x.due.Store(int64(limiter.Minute))
	until := turn.Now + 10*limiter.Second
	waits := add(&Call{task: task{until: until}})
	due(until, "a call waits for its deadline")
	asked := add(&Call{task: task{until: until}, progress: progress{askedAt: turn.Now, owner: 2}})
	due(turn.Now+SilentAfter, "a call waits for its owner")
	if !x.tick(turn) {
		t.Error("no call is under way")
	}
	due(turn.Now+SilentAfter, "nothing is due")
	asked.mu.Lock()
	asked.progress.hasHeir, asked.progress.again = true, turn.Now+3
	x.expect(asked)
	asked.mu.Unlock()
	due(turn.Now+3, "a call is routed again")
	asked.Abandon()
	turn.Now += 3
	x.tick(turn)
	due(until, "the other call has ended")
	waits.mu.Lock()
	waits.progress.divided = true
	waits.mu.Unlock()
	turn.Now = until
	x.tick(turn)
	due(until+limiter.Second, "the parts of a call end it")
}

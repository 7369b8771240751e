// Package guard counts and logs panics that were recovered from, so that a defect
// ends one request or one connection and not the process.
package guard

import (
	"cmp"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/weirlimit/weir/internal/seldom"
)

// The places where panics are recovered from, as metrics and logs name them.
const (
	GRPC    = "grpc"    // a handler of the public gRPC port
	HTTP    = "http"    // a handler of an HTTP port
	Cluster = "cluster" // the cluster core
	Link    = "link"    // a connection to another member
	Gossip  = "gossip"  // a delegate of the gossip library
	Redis   = "redis"   // a goroutine of the Redis backend
	RESP    = "resp"    // a connection of the Redis protocol
	SPOE    = "spoe"    // a connection of HAProxy's filter
)

// Places returns all places.
func Places() []string { return []string{GRPC, HTTP, Cluster, Link, Gossip, Redis, RESP, SPOE} }

// Guard records panics. It is safe for concurrent use. A nil Guard records
// nothing, and what it guards goes on all the same.
type Guard struct {
	log   *slog.Logger
	count func(place string)
	now   func() time.Time

	places seldom.Lines // that logged a stack
}

// New returns a guard that logs to log and calls count with the place of each
// panic. Either may be nil.
func New(log *slog.Logger, count func(place string)) *Guard {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	if count == nil {
		count = func(string) {}
	}
	return &Guard{log: log, count: count, now: time.Now}
}

// Recover ends a panic. Defer it directly: it has no effect otherwise. It counts the
// panic, logs it with its stack (at most once a minute for each place), and then
// calls then, unless that is nil, with an error that names the place and not the
// panic's value, so that it may be shown to a client.
func (g *Guard) Recover(at string, then func(error)) {
	v := recover()
	if v == nil {
		return
	}
	g.Caught(at, v)
	if then != nil {
		then(fmt.Errorf("an internal error in %s: the node's log has the details", at))
	}
}

// Caught records a panic whose value v the caller has recovered. Call it from the
// deferred function that called recover, so that the stack is that of the panic.
func (g *Guard) Caught(at string, v any) {
	if g == nil {
		return
	}
	g.count(at)
	if earlier, due := g.places.Due(at, g.now()); due {
		g.log.Error("panic recovered", "place", at, "panic", fmt.Sprint(v), "earlier_not_logged", earlier,
			"stack", string(debug.Stack()))
	}
}

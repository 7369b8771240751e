package frontend

import (
	"context"
	"crypto/tls"
	"errors"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// Action is something that a caller may be allowed to do.
type Action uint8

// The actions, in the order of their names in a permissions file. Rule is to name the rule
// that decides, and Limits to send limits of one's own; both are needed besides the action
// of the call. Override is to put an override in place of rules; admin is needed besides it. Lease is to borrow units;
// check is needed besides it.
const (
	ActionCheck Action = iota
	ActionPeek
	ActionReset
	ActionRefund
	ActionLimits
	ActionRule
	ActionExplain
	ActionRing
	ActionAdmin
	ActionOverride
	ActionLease
	// Actions is how many there are.
	Actions
)

// String returns the name of the action in a permissions file.
func (a Action) String() string {
	if a >= Actions {
		return "unknown"
	}
	return [...]string{"check", "peek", "reset", "refund", "limits", "rule", "explain", "ring", "admin", "override",
		"lease"}[a]
}

// CheckOrPeek returns the action of a check, or of one that only looks.
func CheckOrPeek(peek bool) Action {
	if peek {
		return ActionPeek
	}
	return ActionCheck
}

// ErrUnauthenticated is wrapped by the error of [Access] for a caller that has not proved
// who it is.
var ErrUnauthenticated = errors.New("the caller is not identified")

// ErrNotReady is why a node that is not ready does not answer, for whoever is not identified: the reason names members.
var ErrNotReady = errors.New("the node is not ready: its log says why, and so does /readyz at --health-addr")

// ErrBudget is wrapped by the error of a [Caller] that has used up its budget. It is [limiter.ErrBudget]. Clients know
// the error of a message by its text, which begins with that of this one.
var ErrBudget = limiter.ErrBudget

// Credentials are what a caller shows of itself. Nothing in them is checked yet, except
// that VerifiedChains of TLS are.
type Credentials struct {
	// Authorization are the values of the header or metadata of this name.
	Authorization []string
	// TLS is the state of the connection, nil if it has no TLS.
	TLS *tls.ConnectionState
	// Known is where an Access may keep what it knows of TLS, as long as the connection
	// lives; nil: nowhere.
	Known *Known
	// At is the present time, if the server has read its clock for the message already;
	// zero: it has not.
	At time.Time
}

// Known keeps one value of an [Access] for each connection, which is faster to reach than
// certificates. The zero value has none. It is safe for concurrent use.
type Known struct{ value atomic.Value }

// Load returns the value that was stored last, nil for none.
func (k *Known) Load() any { return k.value.Load() }

// Store keeps a value, which is not nil. All values of a connection must have the same type:
// otherwise it panics, as [atomic.Value] does.
func (k *Known) Store(value any) { k.value.Store(value) }

// Access identifies callers. It is called from many goroutines, for every message.
type Access interface {
	// Identify returns the caller. An error wraps [ErrUnauthenticated], or
	// [limiter.ErrForbidden] for a caller that is proved but has no entry.
	Identify(c Credentials) (Caller, error)
}

// Caller is a caller that is identified. Its methods are called from many goroutines.
type Caller interface {
	// Name is the name of the identity, for the audit.
	Name() string
	// Tenant is the owner of the caller's counters, at most [limiter.MaxTenantBytes]; empty
	// for none.
	Tenant() string
	// May returns the rules to which the caller may do something, nil for all. The error
	// wraps [limiter.ErrForbidden] if it may not do it at all.
	May(a Action) (limiter.Scope, error)
	// Spend charges the caller's budget with the checks and bytes of one message, or charges
	// nothing. The error wraps [ErrBudget]; it may have a method RetryAfter that
	// returns a time.Duration.
	Spend(checks, bytes int) error
	// OpenStream counts a stream of the caller's. After an error, which wraps [ErrBudget],
	// it is not counted. CloseStream must follow otherwise.
	OpenStream() error
	CloseStream()
}

// KeyBudget is a [Caller] with a budget of new keys. Whether a key is new is known after its
// decision: a message that is beyond the budget is still decided, and [Caller.Spend] refuses
// those that follow.
type KeyBudget interface {
	// CountsKeys reports whether there is such a budget.
	CountsKeys() bool
	// SpendKeys charges the budget with n new keys, also beyond what is left.
	SpendKeys(n int)
}

// Tracer traces requests. Its methods are called from many goroutines and must not block.
type Tracer interface {
	// Serve begins the span of a request. Method is the name of what was called. Parent and state are
	// what the client sent as traceparent and tracestate of the W3C's Trace Context, "" for
	// none; they may be invalid. Serve returns the context for the decider, the traceparent of
	// the span, which the answer gets, and the end of the span, which is called once with the
	// code of the answer. If the request is not traced, end is nil and the context is ctx.
	Serve(ctx context.Context, method, parent, state string) (_ context.Context, traceparent string, end func(code string))
}

// ForbiddenError is why something is not allowed. It wraps [limiter.ErrForbidden].
type ForbiddenError string

func (e ForbiddenError) Error() string { return string(e) }

// Unwrap returns [limiter.ErrForbidden].
func (ForbiddenError) Unwrap() error { return limiter.ErrForbidden }

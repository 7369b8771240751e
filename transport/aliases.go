package transport

import (
	"github.com/weirlimit/weir/internal/frontend"
)

// What callers are, and what they may do, is alike in all protocols.
type (
	// Access identifies callers. It is called from many goroutines, for every message.
	Access = frontend.Access
	// Caller is a caller that is identified. Its methods are called from many goroutines.
	Caller = frontend.Caller
	// KeyBudget is a [Caller] with a budget of new keys.
	KeyBudget = frontend.KeyBudget
	// Credentials are what a caller shows of itself.
	Credentials = frontend.Credentials
	// Known keeps one value of an [Access] for each connection.
	Known = frontend.Known
	// Action is something that a caller may be allowed to do.
	Action = frontend.Action
	// Tracer traces requests. The method of a request is as for an [Observer].
	Tracer = frontend.Tracer
)

// The actions, in the order of their names in a permissions file.
const (
	ActionCheck   = frontend.ActionCheck
	ActionPeek    = frontend.ActionPeek
	ActionReset   = frontend.ActionReset
	ActionRefund  = frontend.ActionRefund
	ActionLimits  = frontend.ActionLimits
	ActionRule    = frontend.ActionRule
	ActionExplain = frontend.ActionExplain
	ActionRing    = frontend.ActionRing
	ActionAdmin   = frontend.ActionAdmin
	// Actions is how many there are.
	Actions = frontend.Actions
)

// The errors of an [Access] and of a [Caller]. They wrap, in the order of their names, those of a caller that has
// used up its budget, answered with RESOURCE_EXHAUSTED or 429, and of one that has not proved who it is, answered
// with UNAUTHENTICATED or 401.
var (
	ErrBudget          = frontend.ErrBudget
	ErrUnauthenticated = frontend.ErrUnauthenticated
)

// What an audit is told is alike in all protocols.
type (
	// Auditor receives the events of an audit. Audited is called from many goroutines and must not wait.
	Auditor = frontend.Auditor
	// AuditEvent is what was asked, by whom, and what became of it.
	AuditEvent = frontend.AuditEvent
)

// The outcomes.
const (
	AuditDone    = frontend.AuditDone
	AuditRefused = frontend.AuditRefused
	AuditFailed  = frontend.AuditFailed
)

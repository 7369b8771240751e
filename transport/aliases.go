package transport

import "github.com/weirlimit/weir/internal/frontend"

// What callers are, and what they may do, is alike in all protocols.
type (
	// Access identifies callers, by its method Identify(c Credentials) (Caller, error). An error wraps
	// [ErrUnauthenticated], or limiter.ErrForbidden for a caller that is proved but has no entry. It is called
	// from many goroutines, for every message.
	Access = frontend.Access
	// Caller is a caller that is identified: its Name, its Tenant, what it May do, and its budget, which Spend,
	// OpenStream and CloseStream charge. Its methods are called from many goroutines.
	Caller = frontend.Caller
	// KeyBudget is a [Caller] with a budget of new keys, if CountsKeys says so. SpendKeys charges it.
	KeyBudget = frontend.KeyBudget
	// Credentials are what a caller shows of itself: its Authorization and the state of TLS. Nothing in them is
	// checked yet, except that VerifiedChains of TLS are.
	Credentials = frontend.Credentials
	// Known keeps one value of an [Access] for each connection, which is faster to reach than certificates.
	Known = frontend.Known
	// Action is something that a caller may be allowed to do.
	Action = frontend.Action
	// Tracer traces requests, by its method Serve. The method of a request is as for an [Observer].
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
	// ActionOverride is needed besides ActionAdmin.
	ActionOverride = frontend.ActionOverride
	// ActionLease is needed besides ActionCheck.
	ActionLease = frontend.ActionLease
	// Actions is how many there are.
	Actions = frontend.Actions
)

var (
	// ErrBudget is wrapped by the error of a [Caller] that has used up its budget. It is answered with
	// RESOURCE_EXHAUSTED or 429.
	ErrBudget = frontend.ErrBudget
	// ErrUnauthenticated is wrapped by the error of an [Access] for a caller that has not proved who it is. It is
	// answered with UNAUTHENTICATED or 401.
	ErrUnauthenticated = frontend.ErrUnauthenticated
)

// What an audit is told is alike in all protocols.
type (
	// Auditor receives the events of an audit: each reset, each refund by a receipt, each request of administration
	// that changes something, and each refusal. Audited is called from many goroutines and must not wait.
	Auditor = frontend.Auditor
	// DenialRecorder receives each denial of a check that was no peek, with the protocol that it came over. It is
	// called from many goroutines, must not wait, and must not keep its arguments.
	DenialRecorder = frontend.DenialRecorder
	// AuditEvent is what was asked, by whom, and what became of it: one of the outcomes below.
	AuditEvent = frontend.AuditEvent
)

// The outcomes.
const (
	AuditDone    = frontend.AuditDone
	AuditRefused = frontend.AuditRefused
	AuditFailed  = frontend.AuditFailed
)

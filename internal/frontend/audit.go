package frontend

import (
	"errors"

	"github.com/weirlimit/weir/limiter"
)

// Auditor receives the events of an audit: each reset, each refund by a receipt, each request of
// administration that changes something, and each refusal of a caller. Settlements of
// reservations are traffic, like checks, and are left out. Audited is called from many goroutines and
// must not wait.
type Auditor interface {
	Audited(e AuditEvent)
}

// AuditEvent is what was asked, by whom, and what became of it. It has no part of a
// request but the name of a rule or a member, since users and attributes may be secrets.
type AuditEvent struct {
	// Action is what was asked: an action of a permissions file, "connect" for a TLS
	// handshake, or "forget", "reload" and their like of the administration.
	Action string
	// Outcome is one of the outcomes below.
	Outcome string
	// Caller and Tenant are those of the identity; empty if it is not known.
	Caller, Tenant string
	// From is the address of the connection, or "unix".
	From string
	// Over is "grpc", "http" or "administration", or the name of another protocol, such as
	// "redis".
	Over string
	// Subject is what it was done to, such as the name of a member; empty if there is
	// none.
	Subject string
	// Count is how many checks of a message were refused; 0 if all of it was.
	Count int
	// Why is why it was refused or failed, or that nothing was done; empty for a request that is not valid.
	Why string
}

// The outcomes.
const (
	AuditDone    = "done"
	AuditRefused = "refused"
	AuditFailed  = "failed"
)

// AuditText returns the text of an error for an operator. For the caller, Error may leave out
// what the caller must not learn, such as the name of another tenant's rule; the error, or one that
// it wraps, then has the method AuditText.
func AuditText(err error) string {
	var told interface{ AuditText() string }
	if errors.As(err, &told) {
		return told.AuditText()
	}
	return err.Error()
}

// Refused reports whether an error means that the caller may not do what it asked for.
func Refused(err error) bool {
	return errors.Is(err, ErrUnauthenticated) || errors.Is(err, limiter.ErrForbidden)
}

// WhyReset returns what the audit says of a reset of n counters, beside that it was done: nothing if there were any.
func WhyReset(n int) string {
	if n > 0 {
		return ""
	}
	return "there was no counter to reset"
}

// Address is the address of a caller whose connection is known by its text only.
type Address string

func (a Address) String() string { return string(a) }

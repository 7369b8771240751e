package frontend

import (
	"errors"
	"fmt"

	"github.com/weirlimit/weir/limiter"
)

// Session is one message, or one connection, of a caller. One goroutine at a time may use it.
type Session struct {
	of     *Frontend
	caller Caller       // nil: all callers are alike, or it is not known
	from   fmt.Stringer // the address of the connection; nil: not known

	holds    *unsettling // nil until a check has an id that may hold what the caller may not settle
	gathers  bool
	gathered int // new keys that are not charged yet
}

// Name returns the name of the identity, "" for none.
func (s *Session) Name() string {
	if s.caller == nil {
		return ""
	}
	return s.caller.Name()
}

// Tenant returns the owner of the caller's counters, "" for none.
func (s *Session) Tenant() string {
	if s.caller == nil {
		return ""
	}
	return s.caller.Tenant()
}

// Identified reports whether the caller has an identity.
func (s *Session) Identified() bool { return s.caller != nil }

// Spend charges the caller's budget, see [Caller].
func (s *Session) Spend(checks, bytes int) error {
	if s.caller == nil {
		return nil
	}
	return s.caller.Spend(checks, bytes)
}

// OpenStream counts a stream of the caller's, see [Caller]. It returns what ends it.
func (s *Session) OpenStream() (end func(), err error) {
	if s.caller == nil {
		return func() {}, nil
	}
	return s.caller.CloseStream, s.caller.OpenStream()
}

// May returns the rules to which the caller may do something, nil for all, or why it may not.
func (s *Session) May(a Action) (limiter.Scope, error) {
	if s.caller == nil {
		return nil, nil
	}
	return s.caller.May(a)
}

// Identify begins the session of a caller at an address, which may be nil. After an error the session has no
// caller, and is only for the audit.
func (f *Frontend) Identify(from fmt.Stringer, c Credentials) (s Session, err error) {
	s.of, s.from = f, from
	if f.Access == nil {
		return s, nil
	}
	if s.caller, err = f.Access.Identify(c); err != nil {
		s.caller = nil
	}
	return s, err
}

// Anyone begins a session without a caller, which may do everything that the configuration allows.
func (f *Frontend) Anyone(from fmt.Stringer) Session { return Session{of: f, from: from} }

// Account tells the audit what became of something: if it was refused, or, if it is accounted,
// whatever became of it.
func (s *Session) Account(action string, accounted bool, err error) {
	e := AuditEvent{Action: action}
	switch {
	case Refused(err):
		e.Outcome, e.Why = AuditRefused, AuditText(err)
	case !accounted:
		return
	case err == nil:
		e.Outcome = AuditDone
	case errors.Is(err, limiter.ErrInvalid): // that text has parts of the request
		e.Outcome = AuditFailed
	default:
		e.Outcome, e.Why = AuditFailed, err.Error()
	}
	s.Tell(e)
}

// Tell tells the audit of an event, and adds who asked, from where, and over which protocol.
func (s *Session) Tell(e AuditEvent) {
	if s.of.Audit == nil {
		return
	}
	if s.from != nil {
		e.From = s.from.String()
	}
	if e.Over == "" {
		e.Over = s.of.Over
	}
	e.Caller, e.Tenant = s.Name(), s.Tenant()
	s.of.Audit.Audited(e)
}

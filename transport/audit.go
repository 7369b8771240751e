package transport

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
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
	// Why is why it was refused or failed; empty for a request that is not valid.
	Why string
}

// The outcomes.
const (
	AuditDone    = "done"
	AuditRefused = "refused"
	AuditFailed  = "failed"
)

// auditCode returns the code of an error, which may be a status already.
func auditCode(err error) codes.Code {
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return codeOf(err)
}

// refusedFor reports whether a code means that the caller may not do this.
func refusedFor(c codes.Code) bool { return c == codes.Unauthenticated || c == codes.PermissionDenied }

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

// auditedError is a status for a caller, with what the audit is told in its place.
type auditedError struct {
	error // of package status
	why   string
}

// AuditText is for [AuditText].
func (e *auditedError) AuditText() string { return e.why }

// GRPCStatus is for package status.
func (e *auditedError) GRPCStatus() *status.Status { return status.Convert(e.error) }

// whyOf is [AuditText] for an error that may be a status, whose code it leaves out.
func whyOf(err error) string {
	if why := AuditText(err); why != err.Error() {
		return why
	}
	return status.Convert(err).Message()
}

// account tells the auditor of a call over gRPC: of a refusal, or of any end if the call is
// accounted.
func (s *service) account(ctx context.Context, action Action, accounted bool, err error) {
	if s.audit == nil {
		return
	}
	code := auditCode(err)
	switch {
	case refusedFor(code):
		s.tell(ctx, AuditEvent{Action: action.String(), Outcome: AuditRefused, Why: whyOf(err)})
	case !accounted:
	case err == nil:
		s.tell(ctx, AuditEvent{Action: action.String(), Outcome: AuditDone})
	default:
		e := AuditEvent{Action: action.String(), Outcome: AuditFailed}
		if code != codes.InvalidArgument { // that text has parts of the request
			e.Why = whyOf(err)
		}
		s.tell(ctx, e)
	}
}

// accountPart tells the auditor of the checks of a message that were refused: before the others
// were decided, and by the rules that match them.
func (s *service) accountPart(ctx context.Context, refused []refusal, failed []error) {
	if s.audit == nil || len(refused)+len(failed) == 0 {
		return
	}
	e := AuditEvent{Action: ActionCheck.String(), Outcome: AuditRefused}
	note := func(err error) {
		if refusedFor(codeOf(err)) {
			if e.Count++; e.Count == 1 {
				e.Why = AuditText(err)
			}
		}
	}
	for _, r := range refused {
		note(r.err)
	}
	for _, err := range failed {
		note(err)
	}
	if e.Count > 0 {
		s.tell(ctx, e)
	}
}

// tell adds who called over gRPC.
func (s *service) tell(ctx context.Context, e AuditEvent) {
	e.Over = "grpc"
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		e.From = p.Addr.String()
	}
	if by, err := s.identify(ctx); err == nil && by.caller != nil {
		e.Caller, e.Tenant = by.caller.Name(), by.caller.Tenant()
	}
	s.audit.Audited(e)
}

// account tells the auditor of a request over HTTP, as the method of service does over
// gRPC.
func (s *site) account(of route, w *statusWriter, r *http.Request) {
	if s.audit == nil {
		return
	}
	e := AuditEvent{Action: of.action, Over: cmp.Or(of.over, s.over), Subject: w.subject, Why: w.why, Count: w.refusedParts}
	refused := !w.decided && (w.status == http.StatusUnauthorized || w.status == http.StatusForbidden)
	switch {
	case refused, w.refusedParts > 0:
		e.Outcome = AuditRefused
	case !of.accounted, w.status == http.StatusMethodNotAllowed: // then nothing was asked for
		return
	case w.status < http.StatusBadRequest:
		e.Outcome, e.Why = AuditDone, ""
	default:
		e.Outcome = AuditFailed
		if w.status != http.StatusServiceUnavailable && w.status != http.StatusGatewayTimeout && w.status != http.StatusConflict {
			e.Why = "" // that text has parts of the request
		}
	}
	if e.Action == "" {
		e.Action = "request" // of a path that there is not
	}
	if e.From = r.RemoteAddr; overSocket(r) {
		e.From = "unix"
	} else if s.access != nil {
		if caller, err := s.access.Identify(HTTPCredentials(r)); err == nil {
			e.Caller, e.Tenant = caller.Name(), caller.Tenant()
		}
	}
	s.audit.Audited(e)
}

// subject notes, for the auditor, what a request is about.
func subject(w http.ResponseWriter, text string) {
	if seen, ok := w.(*statusWriter); ok {
		seen.subject = text
	}
}

// refusedPart notes, for the auditor, that a check of a batch was refused.
func refusedPart(w http.ResponseWriter, err error) {
	if seen, ok := w.(*statusWriter); ok && refusedFor(codeOf(err)) {
		if seen.refusedParts++; seen.refusedParts == 1 {
			seen.why = AuditText(err)
		}
	}
}

// actionOf returns the action of a path of administration, for the auditor.
func actionOf(path string) string {
	if path == profilesPath {
		return "profile"
	}
	return strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(path, "/v1/"), "/"), "/", " ")
}

package transport

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/frontend/overgrpc"
	"github.com/weirlimit/weir/internal/frontend/overhttp"
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

// auditCode returns the code of an error, which may be a status already.
func auditCode(err error) codes.Code {
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return overgrpc.Code(err)
}

// refusedFor reports whether a code means that the caller may not do this.
func refusedFor(c codes.Code) bool { return c == codes.Unauthenticated || c == codes.PermissionDenied }

// whyOf is [frontend.AuditText] for an error that may be a status, whose code it leaves out.
func whyOf(err error) string {
	if why := frontend.AuditText(err); why != err.Error() {
		return why
	}
	return status.Convert(err).Message()
}

// account tells the auditor of a call over gRPC: of a refusal, or of any end if the call is
// accounted. done is what there is to say of one that is done.
func (s *service) account(ctx context.Context, action Action, accounted bool, done string, err error) {
	if s.front.Audit == nil {
		return
	}
	code := auditCode(err)
	switch {
	case refusedFor(code):
		s.tell(ctx, AuditEvent{Action: action.String(), Outcome: AuditRefused, Why: whyOf(err)})
	case !accounted:
	case err == nil:
		s.tell(ctx, AuditEvent{Action: action.String(), Outcome: AuditDone, Why: done})
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
	if s.front.Audit == nil || len(refused)+len(failed) == 0 {
		return
	}
	e := AuditEvent{Action: ActionCheck.String(), Outcome: AuditRefused}
	note := func(err error) {
		if refusedFor(overgrpc.Code(err)) {
			if e.Count++; e.Count == 1 {
				e.Why = frontend.AuditText(err)
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

// tell tells the auditor of a call over gRPC.
func (s *service) tell(ctx context.Context, e AuditEvent) {
	by, _ := s.front.Identify(overgrpc.From(ctx), overgrpc.Credentials(ctx)) // one who is not identified has an address
	by.Tell(e)
}

// account tells the auditor of a request over HTTP, as the method of service does over
// gRPC.
func (s *site) account(of route, w *statusWriter, r *http.Request) {
	if s.front.Audit == nil {
		return
	}
	e := AuditEvent{Action: of.action, Over: of.over, Subject: w.subject, Why: w.why, Count: w.refusedParts}
	refused := !w.decided && (w.status == http.StatusUnauthorized || w.status == http.StatusForbidden)
	switch {
	case refused, w.refusedParts > 0:
		e.Outcome = AuditRefused
	case !of.accounted, w.status == http.StatusMethodNotAllowed: // then nothing was asked for
		return
	case w.status < http.StatusBadRequest:
		e.Outcome, e.Why = AuditDone, w.did
	default:
		e.Outcome = AuditFailed
		if w.status != http.StatusServiceUnavailable && w.status != http.StatusGatewayTimeout && w.status != http.StatusConflict {
			e.Why = "" // that text has parts of the request
		}
	}
	e.Action = cmp.Or(e.Action, "request") // of a path that there is not
	by := s.front.Anyone(frontend.Address("unix"))
	if !overSocket(r) {
		by, _ = overhttp.Identify(s.front, r) // one who is not identified has an address
	}
	by.Tell(e)
}

// subject notes, for the auditor, what a request is about.
func subject(w http.ResponseWriter, text string) {
	if seen, ok := w.(*statusWriter); ok {
		seen.subject = text
	}
}

// refusedPart notes, for the auditor, that a check of a batch was refused.
func refusedPart(w http.ResponseWriter, err error) {
	if seen, ok := w.(*statusWriter); ok && refusedFor(overgrpc.Code(err)) {
		if seen.refusedParts++; seen.refusedParts == 1 {
			seen.why = frontend.AuditText(err)
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

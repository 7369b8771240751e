package transport

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/frontend/overgrpc"
)

// audited tells the auditor of calls over gRPC: of those that were refused, and of those that are accounted. Without
// an auditor it does nothing.
type audited struct{ by *frontend.Frontend }

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

// call tells the auditor of a call: of a refusal, or of any end if the call is
// accounted. done is what there is to say of one that is done.
func (a audited) call(ctx context.Context, action Action, accounted bool, done string, err error) {
	if a.by.Audit == nil {
		return
	}
	code := auditCode(err)
	switch {
	case refusedFor(code):
		a.tell(ctx, AuditEvent{Action: action.String(), Outcome: AuditRefused, Why: whyOf(err)})
	case !accounted:
	case err == nil:
		a.tell(ctx, AuditEvent{Action: action.String(), Outcome: AuditDone, Why: done})
	default:
		e := AuditEvent{Action: action.String(), Outcome: AuditFailed}
		if code != codes.InvalidArgument { // that text has parts of the request
			e.Why = whyOf(err)
		}
		a.tell(ctx, e)
	}
}

// part tells the auditor of the checks of a message that were refused: before the others
// were decided, and by the rules that match them.
func (a audited) part(ctx context.Context, refused []refusal, failed []error) {
	if a.by.Audit == nil || len(refused)+len(failed) == 0 {
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
		a.tell(ctx, e)
	}
}

// tell tells the auditor of a call over gRPC.
func (a audited) tell(ctx context.Context, e AuditEvent) {
	by, _ := a.by.Identify(overgrpc.From(ctx), overgrpc.Credentials(ctx)) // one who is not identified has an address
	by.Tell(e)
}

package transport

import (
	"context"
	"net/http"
	"time"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/frontend/overgrpc"
	"github.com/weirlimit/weir/internal/frontend/overhttp"
	"github.com/weirlimit/weir/internal/listen"
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

// protocol returns what the protocols of this package call what may not be allowed.
func protocol(over string) frontend.Protocol {
	return frontend.Protocol{
		Over: over, Limits: "limits that come with a request are", Resets: "resets are", Refunds: "receipts, refunds and reservations are",
	}
}

// newFrontend returns what the sessions of a server share.
func newFrontend(o *Options, over string) *frontend.Frontend {
	return frontend.New(frontend.Config{
		Decider: o.Decider, Access: o.Access, Audit: o.Audit, Tracer: o.Tracer,
		AllowRequestLimits: o.AllowRequestLimits, AllowReset: o.AllowReset, AllowRefunds: o.AllowRefunds,
	}, protocol(over))
}

// identify begins the session of a gRPC call.
func (s *service) identify(ctx context.Context) (frontend.Session, error) {
	return s.identifyAt(ctx, time.Time{})
}

// identifyAt is identify for a call for which the clock was read already, if it is not zero.
func (s *service) identifyAt(ctx context.Context, now time.Time) (frontend.Session, error) {
	if s.front.Access == nil {
		return s.front.Anyone(nil), nil
	}
	c := overgrpc.Credentials(ctx)
	c.At = now
	return s.front.Identify(nil, c)
}

// notesShown reports whether callers are identified, so that [listen.NoteShown] is called.
func (o *Options) notesShown() bool { return o.Access != nil || len(o.Services) > 0 }

// unread returns why a message of gRPC is not read: err, or that its caller is not identified or
// has used up its budget, see spendUnread. It returns nil for nil.
func (s *service) unread(h *listen.Hold, err error) error {
	if err == nil || listen.LacksRoom(err) {
		return err
	}
	by, refused := s.identify(h.Context)
	if refused != nil {
		return refused
	}
	return spendUnread(&by, h, err)
}

// spendUnread charges the caller's budget for a message that is not read, as for one check. It
// returns why it is not, or that the budget is used up. One for which there was no room costs
// nothing, as it is to be sent again.
func spendUnread(by *frontend.Session, h *listen.Hold, err error) error {
	if listen.LacksRoom(err) {
		return err
	}
	if over := by.Spend(1, h.Size()); over != nil {
		return over
	}
	return err
}

// admit admits the requests of a batch. It returns which of them are refused, ascending:
// those that were, and those that the caller may not send.
func (c *batchCall) admit(by *frontend.Session) []refusal {
	out := make([]refusal, 0, len(c.refused))
	refused, fulls, peeks := c.refused, c.fulls, c.peeks
	for i := range c.n {
		peek, receipt, tenant := len(peeks) > 0 && peeks[0] == i, false, ""
		if peek {
			peeks = peeks[1:]
		}
		if len(fulls) > 0 && fulls[0].at == i {
			receipt, tenant, fulls = fulls[0].receipt(), fulls[0].tenant(), fulls[1:]
		}
		if len(refused) > 0 && refused[0].at == i {
			out, refused = append(out, refused[0]), refused[1:]
			continue
		}
		err := by.AdmitCheck(&c.requests[i], peek, receipt)
		if err == nil {
			err = by.About(&c.requests[i], tenant, frontend.CheckOrPeek(peek))
		}
		if err != nil {
			out = append(out, refusal{i, err})
		}
	}
	return out
}

// administers serves callers that may administer, and refuses all others.
func administers(front *frontend.Frontend, serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if overSocket(r) {
			serve(w, r)
			return
		}
		by, err := overhttp.Identify(front, r)
		if err == nil {
			_, err = by.May(ActionAdmin)
		}
		if err != nil {
			writeError(w, err)
			return
		}
		serve(w, r)
	}
}

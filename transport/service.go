package transport

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/frontend/overgrpc"
	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// service is weir.v1.Limiter. It is safe for concurrent use.
type service struct {
	weirv1.UnimplementedLimiterServer

	front    *frontend.Frontend
	audited  audited
	decider  Decider  // of front
	observer Observer // may be nil
	guard    *guard.Guard
	ring     Ring // nil: not published

	encoder weirwire.Encoder // with the names of decider

	room    listen.Room // for large messages
	answers listen.Answers
	checks  sync.Pool // of *check
	turns   sync.Pool // of *turn
}

// begin returns the time if there is an observer.
func (s *service) begin() time.Time {
	if s.observer == nil {
		return time.Time{}
	}
	return time.Now()
}

// end reports a call to the observer and returns its error as a status.
func (s *service) end(method string, begin time.Time, err error) error {
	err = overgrpc.Status(err)
	if s.observer != nil {
		s.observer.Served(method, status.Code(err).String(), time.Since(begin))
	}
	return err
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

// protocol returns what the protocols of this package call what may not be allowed.
func protocol(over string) frontend.Protocol {
	return frontend.Protocol{
		Over: over, Limits: "limits that come with a request are", Resets: "resets are",
		Refunds: "receipts, refunds and reservations are",
	}
}

// newFrontend returns what the sessions of a server share.
func newFrontend(o *Options, over string) *frontend.Frontend {
	return frontend.New(frontend.Config{
		Decider: o.Decider, Access: o.Access, Audit: o.Audit, Tracer: o.Tracer, Denials: o.Denials,
		AllowRequestLimits: o.AllowRequestLimits, AllowReset: o.AllowReset, AllowRefunds: o.AllowRefunds,
	}, protocol(over))
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

// mayRefund returns why a client may not have receipts or reservations, nil if it may or wants
// none.
func (s *service) mayRefund(wanted bool) error {
	if !wanted {
		return nil
	}
	return s.front.Allows(ActionRefund)
}

// mayAmend returns why there are no reservations to be settled, nil if there may be.
func (s *service) mayAmend() error {
	if !s.front.Reserves() {
		return frontend.ErrNoReservations
	}
	return s.front.Allows(ActionRefund)
}

// receiptOf returns the receipt of a decision, empty if there is none or wanted is false.
func (s *service) receiptOf(wanted bool, r *limiter.Request, d *limiter.Decision) string {
	if !wanted {
		return ""
	}
	return s.front.Receipt(r, d)
}

// view returns the view that replies carry, 0 if the ring is not published.
func (s *service) view() uint64 {
	if s.ring == nil {
		return 0
	}
	return s.ring.View()
}

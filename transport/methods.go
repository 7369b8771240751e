package transport

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/frontend/overgrpc"
	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/internal/weirwire"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

func newService(o Options) *service {
	s := &service{
		front: newFrontend(&o, "grpc"), decider: o.Decider, observer: o.Observer, guard: o.guard(), ring: o.Ring,
		encoder: weirwire.Encoder{Names: o.Decider}, turns: sync.Pool{New: func() any { return new(turn) }},
	}
	s.audited.by = s.front
	s.room.Most = cmp.Or(o.MaxDecodingBytes, defaultDecoding)
	s.checks.New = func() any { return &check{service: s, hold: listen.Hold{Room: &s.room}} }
	if n, ok := o.Decider.(KeyAppender); ok {
		s.encoder.AppendKeyName = n.AppendKeyName
	}
	return s
}

// description returns the service description for gRPC. In it, unary calls encode and
// decode their messages themselves.
func (s *service) description() *grpc.ServiceDesc {
	desc := weirv1.Limiter_ServiceDesc
	desc.Methods = slices.Clone(desc.Methods)
	for i := range desc.Methods {
		m := &desc.Methods[i]
		handle := func(a Action, accounted bool, serve unary) {
			m.Handler = s.guarded(a, accounted, traced(s.front, m.MethodName, serve))
		}
		switch name := m.MethodName; name {
		case "Check":
			handle(ActionCheck, false, s.serveCheck)
		case "CheckBatch":
			handle(ActionCheck, false, s.serveBatch)
		case "Lease":
			handle(ActionLease, false, lending{s}.serve)
		case "Explain":
			handle(ActionExplain, false, full(s, name, s.explain))
		case "Reset":
			handle(ActionReset, true, full(s, name, s.reset))
		case "Refund":
			handle(ActionRefund, true, full(s, name, s.refund))
		case "Settle":
			handle(ActionRefund, false, reserves[weirv1.SettleRequest](s, name))
		case "Cancel":
			handle(ActionRefund, false, reserves[weirv1.CancelRequest](s, name))
		case "Extend":
			handle(ActionRefund, false, reserves[weirv1.ExtendRequest](s, name))
		}
	}
	return &desc
}

// guarded makes a handler of a method of the service. It recovers from panics itself,
// without an interceptor; a panic ends the call. It tells the auditor of the call, whatever
// became of it if it is accounted, and else if it was refused.
func (s *service) guarded(action Action, accounted bool, serve unary) grpc.MethodHandler {
	return func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (out any, err error) {
		defer s.guard.Recover(guard.GRPC, func(e error) { out, err = nil, overgrpc.Status(internalError{e}) })
		out, err = serve(ctx, decode)
		done, _ := out.(encodedReply)
		s.audited.call(ctx, action, accounted, done.why, err)
		if code := status.Code(err); code == codes.Unavailable || code == codes.ResourceExhausted {
			// gRPC has these codes for connections that break, too.
			_ = grpc.SetTrailer(ctx, undecided()) // without it the client takes the call for one that may be decided
		}
		return out, err
	}
}

package gubernator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/frontend/overgrpc"
	"github.com/weirlimit/weir/internal/listen"
	pb "github.com/weirlimit/weir/proto/gubernator/v1"
)

// Bounds of a message over gRPC. MaxMessageBytes and MaxHeaderBytes are for the server's options of these names. Who
// asks may pass on tracestate and baggage of its own clients, which tracing bounds at 25 KiB or not at all.
const (
	MaxMessageBytes = 1 << 20
	MaxHeaderBytes  = 96 << 10
	maxMetadata     = 16 * MaxItems // entries of all items together; they are not read

	// maxDecoded bounds what is decoded at a time, in estimated bytes, and a message is
	// estimated to become weight times as large.
	maxDecoded = 128 << 20
	weight     = 8
)

// errBusy is returned when the messages being decided take too much memory.
func errBusy() error {
	return status.Error(codes.ResourceExhausted, "too many requests are being decided: try again later")
}

// ServiceDesc returns what the service is for gRPC.
func (s *Service) ServiceDesc() (*grpc.ServiceDesc, any) {
	desc := pb.V1_ServiceDesc
	desc.Methods = []grpc.MethodDesc{
		{MethodName: "GetRateLimits", Handler: s.serveGet},
		{MethodName: "HealthCheck", Handler: s.serveHealth},
		{MethodName: "LiveCheck", Handler: s.serveLive},
	}
	return &desc, unimplemented{}
}

// unimplemented satisfies the interface that gRPC demands of the service; calls go to the
// handlers.
type unimplemented struct{ pb.UnimplementedV1Server }

// serveGet is the gRPC method GetRateLimits.
//
//nolint:revive // the order of the arguments is gRPC's
func (s *Service) serveGet(_ any, ctx context.Context, decode func(any) error,
	intercept grpc.UnaryServerInterceptor) (any, error) {
	m := &message{room: listen.Hold{Room: &s.decoding, Context: ctx}}
	defer m.release()
	if err := decode(m); err != nil {
		return nil, err
	}
	return s.answer(ctx, pb.V1_GetRateLimits_FullMethodName, intercept, func(ctx context.Context) (any, error) {
		if m.err != nil {
			return nil, m.err
		}
		by, err := s.identify(ctx)
		if err != nil {
			by.Tell(frontend.AuditEvent{Action: frontend.ActionCheck.String(), Outcome: frontend.AuditRefused, Why: err.Error()})
			return nil, overgrpc.Status(err)
		}
		return s.getRateLimits(ctx, &by, &m.request, m.room.Bytes)
	})
}

// serveHealth is the gRPC method HealthCheck.
//
//nolint:revive // the order of the arguments is gRPC's
func (s *Service) serveHealth(_ any, ctx context.Context, decode func(any) error,
	intercept grpc.UnaryServerInterceptor) (any, error) {
	if err := decode(new(pb.HealthCheckReq)); err != nil {
		return nil, err
	}
	return s.answer(ctx, pb.V1_HealthCheck_FullMethodName, intercept, func(ctx context.Context) (any, error) {
		by, _ := s.identify(ctx) // one who is not identified may ask
		return s.health(&by)
	})
}

// serveLive is the gRPC method LiveCheck.
//
//nolint:revive // the order of the arguments is gRPC's
func (s *Service) serveLive(_ any, ctx context.Context, decode func(any) error,
	intercept grpc.UnaryServerInterceptor) (any, error) {
	if err := decode(new(pb.LiveCheckReq)); err != nil {
		return nil, err
	}
	return s.answer(ctx, pb.V1_LiveCheck_FullMethodName, intercept, func(context.Context) (any, error) { return s.live() })
}

// answer answers a call within the server's interceptor, where a panic ends, and tells the
// observer of it.
func (s *Service) answer(ctx context.Context, method string, intercept grpc.UnaryServerInterceptor,
	serve func(context.Context) (any, error)) (any, error) {
	begin := time.Now()
	handle := func(ctx context.Context, _ any) (any, error) {
		out, err := serve(ctx)
		if err != nil {
			return nil, err // not out, which is a nil pointer of some type
		}
		return out, nil
	}
	var out any
	var err error
	if intercept == nil {
		out, err = handle(ctx, nil)
	} else {
		out, err = intercept(ctx, nil, &grpc.UnaryServerInfo{Server: s, FullMethod: method}, handle)
	}
	if o := s.options.Observer; o != nil {
		o.Served("Gubernator "+method[len("/pb.gubernator.V1/"):], status.Code(err).String(), time.Since(begin))
	}
	return out, err
}

// identify begins the session of a gRPC call.
func (s *Service) identify(ctx context.Context) (frontend.Session, error) {
	return s.front.Identify(overgrpc.From(ctx), overgrpc.Credentials(ctx))
}

// message is the message of one call. It counts its parts before any are built.
type message struct {
	room    listen.Hold // of all messages that are decided; an address has a share of it
	request pb.GetRateLimitsReq
	err     error // a status: the message is not valid, or there is no room for it
}

// UnmarshalWire is for the codec of package transport. It keeps the error for the answer,
// since gRPC would answer that the server is broken.
func (m *message) UnmarshalWire(data []byte) error {
	m.err = m.read(data)
	return nil
}

// read reads a message, if there is room for it. The error is a status.
func (m *message) read(data []byte) error {
	m.room.Bytes = len(data)
	if m.room.Add(weight*int64(len(data))) != nil {
		return errBusy()
	}
	err := count(data)
	if err == nil && (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, &m.request) != nil {
		m.request.Reset()
		err = decode(data, &m.request)
	}
	switch {
	case errors.Is(err, errMany):
		return errItems()
	case err != nil:
		return status.Errorf(codes.InvalidArgument, "the message is not valid: %v", err)
	}
	return nil
}

// release gives back the room of the message.
func (m *message) release() { m.room.Release() }

// decode reads a message whose keys may be any bytes: they come from clients of the one who asks. To refuse them would
// let those clients pass, and whoever else is in the message.
func decode(data []byte, to *pb.GetRateLimitsReq) error {
	return each(data, fieldRequests, func(item []byte) error {
		q := new(pb.RateLimitReq)
		to.Requests = append(to.Requests, q)
		var rest, text []byte
		for len(item) > 0 {
			field, kind, head := protowire.ConsumeTag(item)
			n := head + max(0, protowire.ConsumeFieldValue(field, kind, item[head:]))
			switch {
			case kind != protowire.BytesType:
				rest = append(rest, item[:n]...)
			case field == fieldName:
				text, _ = protowire.ConsumeBytes(item[head:])
				q.Name = string(text)
			case field == fieldUniqueKey:
				text, _ = protowire.ConsumeBytes(item[head:])
				q.UniqueKey = string(text)
			}
			item = item[n:]
		}
		return proto.UnmarshalOptions{Merge: true, DiscardUnknown: true}.Unmarshal(rest, q)
	})
}

// Fields of GetRateLimitsReq and RateLimitReq.
const (
	fieldRequests  = 1
	fieldName      = 1
	fieldUniqueKey = 2
	fieldMetadata  = 9
)

// errMany is returned for a message with more than MaxItems items.
var errMany = errors.New("too many items")

// count returns an error for a message with too many parts, or that is malformed.
func count(data []byte) error {
	items, entries := 0, 0
	return each(data, fieldRequests, func(item []byte) error {
		if items++; items > MaxItems {
			return errMany
		}
		return each(item, fieldMetadata, func([]byte) error {
			if entries++; entries > maxMetadata {
				return fmt.Errorf("the items have more than %d entries of metadata", maxMetadata)
			}
			return nil
		})
	})
}

// each calls f with every value of a field that holds messages.
func each(data []byte, of protowire.Number, f func([]byte) error) error {
	for len(data) > 0 {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		if n = protowire.ConsumeFieldValue(field, kind, data); n < 0 {
			return protowire.ParseError(n)
		}
		if field == of && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(data)
			if err := f(value); err != nil {
				return err
			}
		}
		data = data[n:]
	}
	return nil
}

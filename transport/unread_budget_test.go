package transport_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/transport"
)

// asIs is the codec of a client that sends whatever bytes it is given.
type asIs struct{}

func (asIs) Name() string { return "proto" }
func (asIs) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (asIs) Unmarshal(mem.BufferSlice, any) error { return nil }

// What is read of a message that is none is charged to the caller's budget as one check, over gRPC
// and HTTP, so that a budget bounds all that an identity may have a node read.
func TestWhatIsNoMessageSpends(t *testing.T) {
	by := new(spender)
	s := newServer(t, reserved, func(o *transport.Options) { o.Access = by })
	conn, raw := s.conn, grpc.ForceCodecV2(asIs{})
	unary := func(method string, message []byte) func() error {
		return func() error { return conn.Invoke(t.Context(), "/weir.v1.Limiter/"+method, message, nil, raw) }
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	broken := []byte(strings.Repeat("\xff", 1000))
	long := strings.Repeat("x", transport.MaxBodyBytes+1)
	post := func(path, body string) func() error {
		return func() error {
			resp, err := client.Post(s.url+path, "application/json", strings.NewReader(body))
			if err != nil {
				return err
			}
			if err := resp.Body.Close(); err != nil || resp.StatusCode == http.StatusOK {
				return fmt.Errorf("status %d, %w", resp.StatusCode, err)
			}
			return status.Error(httpCodes[resp.StatusCode], resp.Status)
		}
	}
	type ask struct {
		name  string
		do    func() error
		code  codes.Code
		bytes int // at least
	}
	asks := []ask{
		{"CheckStream", func() error {
			stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
				"/weir.v1.Limiter/CheckStream", raw)
			if err == nil {
				err = stream.SendMsg(broken)
			}
			if err == nil || errors.Is(err, io.EOF) { // EOF: the stream has ended, and RecvMsg says why
				err = stream.RecvMsg(nil)
			}
			return err
		}, codes.InvalidArgument, len(broken)},
		{"more checks than a batch may have", unary("CheckBatch", []byte(strings.Repeat("\x0a\x00", transport.MaxBatch+1))),
			codes.InvalidArgument, transport.MaxBatch},
		{"POST /v1/check", post("/v1/check", long), codes.OutOfRange, transport.MaxBodyBytes},
		{"POST /v1/check/batch", post("/v1/check/batch", long), codes.OutOfRange, transport.MaxBodyBytes},
		{"POST /v1/settle", post("/v1/settle", long), codes.OutOfRange, transport.MaxBodyBytes},
	}
	for _, m := range []string{"Check", "CheckBatch", "Explain", "Reset", "Refund", "Settle", "Cancel", "Extend"} {
		asks = append(asks, ask{m, unary(m, broken), codes.InvalidArgument, len(broken)})
	}
	for _, a := range asks {
		*by = spender{}
		if err := a.do(); status.Code(err) != a.code || by.checks != 1 || by.bytes < a.bytes {
			t.Errorf("%s: %v, and the budget has %d checks and %d bytes", a.name, err, by.checks, by.bytes)
		}
		*by = spender{over: transport.ErrBudget}
		if err := a.do(); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%s beyond the budget: %v", a.name, err)
		}
		*by = spender{unknown: transport.ErrUnauthenticated}
		if err := a.do(); status.Code(err) != codes.Unauthenticated || by.checks != 0 {
			t.Errorf("%s of nobody: %v, and a budget has %d checks", a.name, err, by.checks)
		}
	}
}

// httpCodes are codes of gRPC for statuses of HTTP.
var httpCodes = map[int]codes.Code{
	http.StatusRequestEntityTooLarge: codes.OutOfRange,
	http.StatusTooManyRequests:       codes.ResourceExhausted,
	http.StatusUnauthorized:          codes.Unauthenticated,
}

// told is an observer and an auditor that counts.
type told struct {
	served  atomic.Int32
	refused atomic.Int32
}

func (s *told) Served(string, string, time.Duration) { s.served.Add(1) }
func (s *told) Audited(e transport.AuditEvent) {
	if e.Outcome == transport.AuditRefused {
		s.refused.Add(1)
	}
}

// A call that ends without a message costs nothing, and is none that was served.
func TestNoMessageIsNotCharged(t *testing.T) {
	by, saw := new(spender), new(told)
	s := newServer(t, reserved, func(o *transport.Options) { o.Access, o.Observer = by, saw })
	for _, m := range []string{"Check", "CheckBatch", "Explain", "Reset", "Refund", "Settle", "Cancel", "Extend"} {
		call, err := s.conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, "/weir.v1.Limiter/"+m,
			grpc.ForceCodecV2(asIs{}))
		if err == nil {
			err = call.CloseSend()
		}
		if err == nil {
			err = call.RecvMsg(nil)
		}
		if status.Code(err) == codes.OK || by.checks != 0 || saw.served.Load() != 0 {
			t.Errorf("%s: %v, charged %d checks, served %d", m, err, by.checks, saw.served.Load())
		}
	}
}

// passing is an Access whose caller is unknown from the second time on, as one whose token expires.
type passing struct {
	spender
	asked atomic.Int32
}

func (p *passing) Identify(transport.Credentials) (transport.Caller, error) {
	if p.asked.Add(1) > 1 {
		return nil, transport.ErrUnauthenticated
	}
	return &p.spender, nil
}

// A stream whose caller is not identified any more ends with its next message, whatever that is, and
// the audit is told.
func TestAStreamEndsWithItsCaller(t *testing.T) {
	tooMany, err := proto.Marshal(&weirv1.CheckColumns{Id: 7, Costs: make([]int64, transport.MaxBatch+1)})
	if err != nil {
		t.Fatal(err)
	}
	for name, message := range map[string][]byte{"good": []byte("\x08\x01\x50\x00"), "no message": []byte("\xff\xff"),
		"too many checks": tooMany} {
		saw := new(told)
		s := newServer(t, reserved, func(o *transport.Options) { o.Access, o.Audit = new(passing), saw })
		stream, err := s.conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
			"/weir.v1.Limiter/CheckStream", grpc.ForceCodecV2(asIs{}))
		if err == nil {
			err = stream.SendMsg(message)
		}
		if err == nil {
			err = stream.RecvMsg(nil)
		}
		if status.Code(err) != codes.Unauthenticated || saw.refused.Load() != 1 {
			t.Errorf("%s: %v, told of %d refusals", name, err, saw.refused.Load())
		}
	}
}

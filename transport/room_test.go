package transport_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/transport"
)

// held is a decider that signals when it gets a batch, and waits until the test lets it
// continue.
type held struct {
	transport.Decider
	asked chan struct{}
	let   chan struct{}
}

func (h *held) CheckBatchInto(ctx context.Context, rs []limiter.Request, ds []limiter.Decision) error {
	h.asked <- struct{}{}
	<-h.let
	return h.Decider.CheckBatchInto(ctx, rs, ds)
}

// TestNoRoom: while large messages use all the room, another one is refused at once
// with a time to retry, in every protocol. Single checks pass. Afterwards everything
// works as before.
func TestNoRoom(t *testing.T) {
	const checks, inJSON = 400, 100
	h := &held{asked: make(chan struct{}), let: make(chan struct{})}
	s := newServer(t, fixed, func(o *transport.Options) {
		h.Decider, o.Decider, o.MaxDecodingBytes = o.Decider, h, 600<<10 // for one and no second
	})
	batch := &weirv1.CheckBatchRequest{}
	columns := &weirv1.CheckColumns{Id: 7, Costs: make([]int64, checks)}
	for range checks {
		batch.Checks = append(batch.Checks, &weirv1.CheckRequest{User: "ada", Cost: new(int64)})
	}
	json := `{"checks":[` + strings.TrimSuffix(strings.Repeat(`{"cost":0},`, inJSON), ",") + `]}`
	release := sync.OnceFunc(func() { close(h.let) })
	t.Cleanup(release) // otherwise a test that fails would wait for the server for ever
	stream, err := s.api.CheckStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first := make(chan error, 1)
	go func() {
		_, err := s.api.CheckBatch(t.Context(), batch)
		first <- err
	}()
	<-h.asked

	_, err = s.api.CheckBatch(t.Context(), batch)
	told := status.Convert(err)
	if told.Code() != codes.ResourceExhausted || len(told.Details()) != 1 {
		t.Fatalf("a second batch: %v", err)
	}
	if retry, ok := told.Details()[0].(*errdetails.RetryInfo); !ok || retry.RetryDelay.AsDuration() <= 0 {
		t.Errorf("it is told %v", told.Details())
	}
	if err := stream.Send(columns); err != nil {
		t.Fatal(err)
	}
	got, err := stream.Recv()
	if err != nil || codes.Code(got.GetError().GetCode()) != codes.ResourceExhausted || got.Id != 7 {
		t.Errorf("columns: %v, %v", got, err)
	}
	if got := s.post(t, "/v1/check/batch", json); got.status != http.StatusServiceUnavailable ||
		got.header.Get("Retry-After") != "1" {
		t.Errorf("JSON: %d %s", got.status, got.body)
	}
	long := `{"user":"` + strings.Repeat("x", 100<<10) + `"}`
	if got := s.post(t, "/v1/check", long); got.status != http.StatusServiceUnavailable {
		t.Errorf("one large check: %d %.200s", got.status, got.body)
	}
	s.stillCounts(t, "bob", 3) // one check at a time
	unknown := protowire.AppendBytes(protowire.AppendTag(nil, 99, protowire.BytesType), make([]byte, 100<<10))
	large, reset := &weirv1.CheckRequest{Peek: true}, &weirv1.ResetRequest{}
	large.ProtoReflect().SetUnknown(unknown)
	reset.ProtoReflect().SetUnknown(unknown)
	single := map[string]func() error{
		"Check":   func() error { _, err := s.api.Check(t.Context(), large); return err },
		"Explain": func() error { _, err := s.api.Explain(t.Context(), large); return err },
		"Reset":   func() error { _, err := s.api.Reset(t.Context(), reset); return err },
	}
	for name, call := range single {
		// Canceled: what had come of the message was given up.
		if err := call(); status.Code(err) != codes.ResourceExhausted && status.Code(err) != codes.Canceled {
			t.Errorf("one large message, %s: %v", name, err)
		}
	}

	release()
	if err := <-first; err != nil {
		t.Errorf("the first batch: %v", err)
	}
	go func() {
		for range h.asked { // it waits no more
		}
	}()
	defer close(h.asked)
	// A client may have its answer a moment before the server gives the room of it back.
	// There is room for only one of these messages.
	const within = 10 * time.Second
	emptied := func() {
		t.Helper()
		for begun := time.Now(); s.Room() != 0; time.Sleep(time.Millisecond) {
			if time.Since(begun) > within {
				t.Fatalf("%d bytes of room are used by nobody", s.Room())
			}
		}
	}
	// What a connection has not read is looked at now and then: an answer that was on its way then counts until the
	// next look.
	again := func(call func() error) (err error) {
		t.Helper()
		for begun := time.Now(); time.Since(begun) < within; {
			emptied()
			if err = call(); status.Code(err) != codes.ResourceExhausted {
				return err
			}
		}
		return err
	}
	for i := range 3 {
		for name, call := range single {
			// this decider does not explain
			if code := status.Code(again(call)); code != codes.OK && (name != "Explain" || code != codes.Unimplemented) {
				t.Errorf("%s %d afterwards: %v", name, i, code)
			}
		}
		if err := again(func() error { _, err := s.api.CheckBatch(t.Context(), batch); return err }); err != nil {
			t.Errorf("batch %d afterwards: %v", i, err)
		}
		emptied()
		if err := stream.Send(columns); err != nil {
			t.Fatal(err)
		}
		if reply, err := stream.Recv(); err != nil || reply.GetError() != nil || len(reply.GetFlags()) != checks {
			t.Errorf("columns %d afterwards: %v, %v", i, reply, err)
		}
		emptied()
		if got := s.post(t, "/v1/check/batch", json); got.status != http.StatusOK {
			t.Errorf("JSON %d afterwards: %d %s", i, got.status, got.body)
		}
	}
}

// TestCompressed: the bound of a message is that of what it is decompressed to. (A node
// registers no compressor; a program that embeds Weir may.)
func TestCompressed(t *testing.T) {
	s := newServer(t, fixed, nil)
	zip := grpc.UseCompressor(gzip.Name)
	if _, err := s.api.Check(t.Context(), &weirv1.CheckRequest{User: "ada"}, zip); err != nil {
		t.Errorf("a small message: %v", err)
	}
	bomb := &weirv1.CheckRequest{User: strings.Repeat("x", 64<<20)}
	_, err := s.api.Check(t.Context(), bomb, zip)
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "larger than max") {
		t.Errorf("64 MiB, which gzip makes 64 KiB: %v", err)
	}
}

// TestLongFields: a string of more than 8 KiB is refused with its name, on each way to
// ask, and the rest of a batch is decided.
func TestLongFields(t *testing.T) {
	s := newServer(t, fixed, nil)
	long := strings.Repeat("x", limiter.MaxFieldBytes+1)
	const want = "the path has 8193 bytes; at most 8192 are allowed"
	m := &weirv1.CheckRequest{Path: long, User: "ada"}
	good := &weirv1.CheckRequest{User: "ada", Peek: true}
	_, check := s.api.Check(t.Context(), m)
	_, explain := s.api.Explain(t.Context(), m)
	_, reset := s.api.Reset(t.Context(), &weirv1.ResetRequest{Path: long})
	for name, err := range map[string]error{"Check": check, "Explain": explain, "Reset": reset} {
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	batch, err := s.api.CheckBatch(t.Context(), &weirv1.CheckBatchRequest{Checks: []*weirv1.CheckRequest{m, good}})
	if err != nil || !strings.Contains(batch.Results[0].GetError().GetMessage(), want) ||
		batch.Results[1].GetDecision() == nil {
		t.Errorf("CheckBatch: %v, %v", batch, err)
	}
	stream, err := s.api.CheckStream(t.Context())
	if err == nil {
		err = stream.Send(&weirv1.CheckColumns{Keys: []byte(long + "/"), PathLengths: []uint32{uint32(len(long)), 1},
			Peek: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	columns, err := stream.Recv()
	if err != nil || len(columns.Errors) != 1 || !strings.Contains(columns.Errors[0].Message, want) ||
		len(columns.Flags) != 2 || columns.Flags[1] == 128 {
		t.Errorf("CheckStream: %v, %v", columns, err)
	}
	body := fmt.Sprintf(`{"path":%q}`, long)
	for what, got := range map[string]reply{
		"GET check":     s.do(t, http.MethodGet, "/v1/check?path="+long, "", ""),
		"POST check":    s.post(t, "/v1/check", body),
		"POST explain":  s.post(t, "/v1/explain", body),
		"POST reset":    s.post(t, "/v1/reset", body),
		"batch of JSON": s.post(t, "/v1/check/batch", `{"checks":[`+body+`,{"user":"ada","peek":true}]}`),
	} {
		if !strings.Contains(got.body, want) || got.status != http.StatusBadRequest &&
			!strings.Contains(got.body, `"answer"`) {
			t.Errorf("%s: %d %.300s", what, got.status, got.body)
		}
	}
	s.stillCounts(t, "ada", 3)
}

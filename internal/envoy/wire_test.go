package envoy

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/limiter"
)

// TestDecodingHasABound: what is decoded at a time is bounded, and given back. Small messages need no room.
// A call without room is over the limit, as Envoy would let the request of an error pass.
func TestDecodingHasABound(t *testing.T) {
	for _, size := range []int{64 << 10, MaxMessageBytes} {
		s, err := NewService(Options{Config: frontend.Config{Decider: nothing{}}})
		if err != nil {
			t.Fatal(err)
		}
		one := &ratelimit.RateLimitDescriptor{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "k", Value: "v"}}}
		data, err := proto.Marshal(&rls.RateLimitRequest{
			Domain: strings.Repeat("x", size-24), Descriptors: []*ratelimit.RateLimitDescriptor{one, one},
		})
		if err != nil {
			t.Fatal(err)
		}
		var calls []*call
		for {
			c := &call{room: listen.Hold{Room: &s.decoding}}
			if err := c.UnmarshalWire(data); err != nil {
				t.Fatal(err)
			}
			if c.err != nil {
				if !errors.Is(c.err, errBusy) {
					t.Error(c.err)
				}
				break
			}
			calls = append(calls, c)
		}
		most := map[int]int{64 << 10: 500, MaxMessageBytes: 7}[size]
		if len(calls) < most || len(calls) > 2*most {
			t.Errorf("%d messages of %d bytes at a time", len(calls), size)
		}
		decode := func(c any) error { return c.(*call).UnmarshalWire(data) }
		out, err := s.serve(nil, t.Context(), decode, nil)
		a, _ := out.(*rls.RateLimitResponse)
		if err != nil || a.GetOverallCode() != rls.RateLimitResponse_OVER_LIMIT || len(a.GetStatuses()) != 2 {
			t.Errorf("without room: %v, %v", out, err)
		}
		s.options.Shadow = true
		out, err = s.serve(nil, t.Context(), decode, nil)
		if a, _ = out.(*rls.RateLimitResponse); err != nil || a.GetOverallCode() != rls.RateLimitResponse_OK {
			t.Errorf("without room, in shadow: %v, %v", out, err)
		}
		small := &call{room: listen.Hold{Room: &s.decoding}}
		if err := small.UnmarshalWire([]byte{0x0a, 0x01, 'x'}); err != nil || small.err != nil {
			t.Errorf("a small message beside large ones: %v, %v", err, small.err)
		}
		for _, c := range calls {
			c.room.Release()
		}
		if n := s.decoding.InUse(); n != 0 {
			t.Errorf("%d bytes are left over", n)
		}
	}
}

// TestDecodingIsShared: one address that has much decided, in any form, leaves the others room.
func TestDecodingIsShared(t *testing.T) {
	s, err := NewService(Options{Config: frontend.Config{Decider: nothing{}}})
	if err != nil {
		t.Fatal(err)
	}
	q := NewQuotas(s, nil)
	large := make([]byte, 1<<20)
	large[0] = 0x0a // a domain
	copy(large[1:], protowire.AppendVarint(nil, uint64(len(large)-4)))
	for what, busy := range map[string]func(from string) bool{
		"requests": func(from string) bool {
			c := &call{room: listen.Hold{Room: &s.decoding, Remote: from}} // it is never released
			return c.UnmarshalWire(large) == nil && errors.Is(c.err, errBusy)
		},
		"reports": func(from string) bool {
			m := &usageReport{room: listen.Hold{Room: &q.decoding, Remote: from}}
			return m.UnmarshalWire(large) == nil && m.busy
		},
	} {
		n := 0
		for ; !busy("192.0.2.1:1"); n++ {
			if n > 100 {
				t.Fatalf("%s have no bound", what)
			}
		}
		for _, from := range []string{"192.0.2.2:1", "192.0.2.3:1"} {
			if busy(from) {
				t.Errorf("%s of another address find no room after %d of one", what, n)
			}
		}
	}
	for _, from := range []string{"192.0.2.1:1", "192.0.2.4:1"} {
		r := httptest.NewRequest(http.MethodPost, "/json", bytes.NewReader(append(make([]byte, maxJSON-1), '{')))
		r.RemoteAddr = from
		w := httptest.NewRecorder()
		want := map[bool]int{true: http.StatusServiceUnavailable, false: http.StatusBadRequest}[from == "192.0.2.1:1"]
		if s.ServeJSON(w, r); w.Code != want {
			t.Errorf("JSON of %s: %d, want %d", from, w.Code, want)
		}
	}
}

// What the library decodes is decoded to the same, also where parts of a message come twice.
func TestDecodingIsThatOfTheLibrary(t *testing.T) {
	in := &rls.RateLimitRequest{Domain: "d", HitsAddend: 7, Descriptors: []*ratelimit.RateLimitDescriptor{
		{},
		{Entries: []*ratelimit.RateLimitDescriptor_Entry{{}, {Key: "k", Value: "ü"}}, HitsAddend: wrapperspb.UInt64(0),
			IsNegativeHits: true},
		{
			Limit: &ratelimit.RateLimitDescriptor_RateLimitOverride{
				RequestsPerUnit: 3, Unit: typev3.RateLimitUnit_DAY, UnitMultiplier: wrapperspb.UInt32(2),
			},
			HitsAddend: wrapperspb.UInt64(1 << 40),
		},
	}}
	data, err := proto.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	twice := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), []byte{
		0x12, 0x02, 0x08, 0x05, 0x12, 0x02, 0x10, 0x03, // a limit in two halves
		0x1a, 0x00, 0x1a, 0x02, 0x08, 0x09, // hits, and again
		0x20, 0x01, 0x20, 0x02, // a bool of 2
		0x0a, 0x06, 0x0a, 0x01, 'a', 0x0a, 0x01, 'b', // a key, and another
		0x08, 0x01, 0x7a, 0x01, 'x', 0x15, 1, 2, 3, 4, // fields of other kinds and numbers
	})
	data = append(data, twice...)
	data = append(data, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01) // hits beyond 32 bits
	c, want := &call{room: listen.Hold{Room: &listen.Room{Most: maxDecoded}}}, new(rls.RateLimitRequest)
	if err := c.UnmarshalWire(data); err != nil || c.err != nil {
		t.Fatal(err, c.err)
	}
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, want); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(&c.request, want) {
		t.Errorf("%v, want %v", &c.request, want)
	}
}

// FuzzUnmarshal: no bytes make a request with more parts than allowed.
func FuzzUnmarshal(f *testing.F) {
	one := &ratelimit.RateLimitDescriptor{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "k", Value: "v"}}}
	data, err := proto.Marshal(&rls.RateLimitRequest{Domain: "d", Descriptors: []*ratelimit.RateLimitDescriptor{one, one}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte{0x12, 0x02, 0x0a, 0x00})
	f.Fuzz(func(t *testing.T, data []byte) {
		room := listen.Room{Most: maxDecoded}
		c := &call{room: listen.Hold{Room: &room}}
		if err := c.UnmarshalWire(data); err != nil {
			t.Fatal(err)
		}
		entries := 0
		for _, d := range c.request.GetDescriptors() {
			entries += len(d.GetEntries())
		}
		if n := len(c.request.GetDescriptors()); n > maxDescriptors || entries > maxEntries {
			t.Errorf("%d descriptors with %d entries", n, entries)
		}
		c.room.Release()
		if n := room.InUse(); n != 0 {
			t.Errorf("%d bytes are left over", n)
		}
	})
}

// FuzzJSON: no body makes the server fail, or keeps memory.
func FuzzJSON(f *testing.F) {
	c, err := config.Parse([]config.File{{Name: "f",
		Data: []byte("domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 2}}]")}}, config.Options{})
	if err != nil {
		f.Fatal(err)
	}
	s, err := NewService(Options{Config: frontend.Config{Decider: nothing{}}})
	if err != nil {
		f.Fatal(err)
	}
	if err := s.SetConfig(c); err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}],"limit":{"unit":"DAY"},` +
		`"hitsAddend":"3","isNegativeHits":true}]}`))
	f.Add([]byte(`{"domain":"d","descriptors":[{"entries":[{"key":"other","value":"v"}]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		w := httptest.NewRecorder()
		s.ServeJSON(w, httptest.NewRequest(http.MethodPost, "/json", bytes.NewReader(body)))
		if w.Code == http.StatusInternalServerError {
			t.Errorf("%d: %s", w.Code, w.Body)
		}
		if n := s.decoding.InUse(); n != 0 {
			t.Errorf("%d bytes are left over", n)
		}
	})
}

// nothing decides nothing.
type nothing struct{ frontend.Decider }

func (nothing) PeekBatchInto(context.Context, []limiter.Request, []limiter.Decision, []bool) error {
	return errors.New("there is nothing")
}

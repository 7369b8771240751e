package envoy

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/limiter"
)

// TestDecodingHasABound: what is decoded at a time is bounded, and given back.
func TestDecodingHasABound(t *testing.T) {
	data, err := proto.Marshal(&rls.RateLimitRequest{Domain: strings.Repeat("x", MaxMessageBytes-8)})
	if err != nil {
		t.Fatal(err)
	}
	var decoding atomic.Int64
	var calls []*call
	for {
		c := &call{decoding: &decoding}
		if err := c.UnmarshalWire(data); err != nil {
			t.Fatal(err)
		}
		if c.err != nil {
			if !errors.Is(c.err, errBusy) || len(calls) < 100 {
				t.Errorf("after %d messages: %v", len(calls), c.err)
			}
			c.release()
			break
		}
		calls = append(calls, c)
	}
	for _, c := range calls {
		c.release()
	}
	if n := decoding.Load(); n != 0 {
		t.Errorf("%d bytes are left over", n)
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
		var decoding atomic.Int64
		c := &call{decoding: &decoding}
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
		c.release()
		if n := decoding.Load(); n != 0 {
			t.Errorf("%d bytes are left over", n)
		}
	})
}

// FuzzJSON: no body makes the server fail, or keeps memory.
func FuzzJSON(f *testing.F) {
	c, err := config.Parse([]config.File{{Name: "f", Data: []byte("domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 2}}]")}}, config.Options{})
	if err != nil {
		f.Fatal(err)
	}
	s, err := NewService(Options{Decider: nothing{}})
	if err != nil {
		f.Fatal(err)
	}
	if err := s.SetConfig(c); err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}],"limit":{"unit":"DAY"},"hitsAddend":"3","isNegativeHits":true}]}`))
	f.Add([]byte(`{"domain":"d","descriptors":[{"entries":[{"key":"other","value":"v"}]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		w := httptest.NewRecorder()
		s.ServeJSON(w, httptest.NewRequest(http.MethodPost, "/json", bytes.NewReader(body)))
		if w.Code == http.StatusInternalServerError {
			t.Errorf("%d: %s", w.Code, w.Body)
		}
		if n := s.decoding.Load(); n != 0 {
			t.Errorf("%d bytes are left over", n)
		}
	})
}

// nothing decides nothing.
type nothing struct{ Decider }

func (nothing) PeekBatchInto(context.Context, []limiter.Request, []limiter.Decision, []bool) error {
	return errors.New("there is nothing")
}

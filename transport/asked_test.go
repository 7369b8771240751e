package transport

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/frontend/overgrpc"
	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// telling is a decider that explains each limit that came with a request, and keeps
// what it was asked.
type telling struct {
	stub
	explained, reset *limiter.Request
}

func (d *telling) Explain(_ context.Context, r limiter.Request) (*limiter.Explanation, error) {
	d.explained = &r
	e := &limiter.Explanation{Now: 5, Rules: []string{r.Rule}, Decision: new(limiter.Decision)}
	for i, l := range r.Limits {
		e.Limits = append(e.Limits, limiter.LimitExplanation{
			Name: l.Name(), Key: r.User, Limit: l.String(), Known: true, Now: limiter.Tick(i),
			State: []limiter.Field{{Name: "count", Value: "3"}}, Counts: []limiter.WindowCount{{Start: 1, End: 2, Count: 3}},
		})
	}
	return e, nil
}

func (d *telling) Reset(_ context.Context, r limiter.Request) (int, error) {
	d.reset = &r
	return 1, nil
}

// FuzzExplainAndReset: for both calls, a message either is refused as invalid, or
// yields the same limits as in a check.
func FuzzExplainAndReset(f *testing.F) {
	add := func(m *weirv1.CheckRequest) {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	add(&weirv1.CheckRequest{})
	add(&weirv1.CheckRequest{Path: "/a", User: "u", Method: "GET", Ip: "::1", Group: "g", Cost: proto.Int64(-4), Rule: "r",
		Peek: true, Attributes: map[string]string{"a": "b"}})
	for _, l := range []*weirv1.Limit{
		{Limit: 3, WindowUs: 60e6, Name: "l", Algorithm: weirv1.Algorithm_ALGORITHM_SLIDING_WINDOW, SubWindows: 6,
			BlockUs: 5},
		{Limit: 3, WindowUs: 60e6, Weight: proto.Int32(50), Rounding: weirv1.Rounding_ROUNDING_CEIL},
		{Limit: 3, WindowUs: 60e6, Algorithm: weirv1.Algorithm_ALGORITHM_GCRA, Burst: 9},
		{Limit: 3, WindowUs: -1},
		{Limit: 3, WindowUs: 60e6, Algorithm: 256},
	} {
		add(&weirv1.CheckRequest{User: "u", Limits: []*weirv1.Limit{l}})
	}
	add(&weirv1.CheckRequest{Limits: make([]*weirv1.Limit, limiter.MaxLimits+1)})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, named := new(weirv1.CheckRequest), new(weirv1.ResetRequest)
		if proto.Unmarshal(b, m) != nil || proto.Unmarshal(b, named) != nil {
			return
		}
		d := new(telling)
		s := newService(Options{Decider: d, AllowRequestLimits: true, AllowReset: true})
		e, err := s.explain(t.Context(), m)
		var want limiter.Request
		refused := s.fillRequest(&want, m)
		if (err == nil) != (refused == nil) || err != nil &&
			(overgrpc.Code(err) != codes.InvalidArgument || !errors.Is(refused, limiter.ErrInvalid)) {
			t.Fatalf("explained with %v, and a check of it: %v", err, refused)
		}
		if err == nil {
			if len(e.GetLimits()) != len(m.GetLimits()) || d.explained.User != m.GetUser() ||
				d.explained.Cost != weirwire.CostOf(m) {
				t.Errorf("%v was understood as %+v", m, d.explained)
			}
			out, err := proto.Marshal(e)
			again := new(weirv1.ExplainResponse)
			if err != nil || proto.Unmarshal(out, again) != nil || !proto.Equal(e, again) {
				t.Errorf("%v cannot be sent: %v", e, err)
			}
			if x := weirwire.ExplanationOf(e); len(x.Limits) != len(want.Limits) {
				t.Errorf("%v came over as %+v", e, x)
			}
		}
		switch _, err := s.reset(t.Context(), named); {
		case err != nil && overgrpc.Code(err) != codes.InvalidArgument:
			t.Errorf("a reset of %v: %v", named, err)
		case err == nil && (d.reset.User != named.GetUser() || len(d.reset.Limits) != len(named.GetLimits())):
			t.Errorf("a reset of %v was understood as %+v", named, d.reset)
		}
	})
}

// gone is a directory that keeps who is to be forgotten.
type gone struct{ names []string }

func (*gone) Members() []Member { return nil }

func (g *gone) Forget(name string) error {
	g.names = append(g.names, name)
	return nil
}

func (g *gone) Expel(name string) error   { return g.Forget(name) }
func (g *gone) Readmit(name string) error { return g.Forget(name) }

// FuzzForget: whatever body comes, it is refused, or is short and names one member, and
// nothing else.
func FuzzForget(f *testing.F) {
	for _, s := range []string{
		`{"name":"b"}`, `{"name":"\u00e9"}`, `{"NAME":"\u00e9"}`, `{"name":"a","name":"b"}`, `{"name":""}`, `{"name":1}`,
		`{"name":"b","x":1}`, `{"name":"b"} {}`, `[]`, `null`, ``,
		`{"name":"` + strings.Repeat("n", maxForgetBytes) + `"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		g := new(gone)
		h := NewAdmin(AdminOptions{Directory: g}).Handler()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/members/forget",
			strings.NewReader(string(body)))
		r.RemoteAddr, r.Host = "127.0.0.1:9", "localhost"
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		switch {
		case len(g.names) == 0 && w.Code != http.StatusBadRequest:
			t.Errorf("%q is answered %d, and nobody is forgotten", body, w.Code)
		case len(g.names) > 0 && (w.Code != http.StatusOK || len(body) > maxForgetBytes):
			t.Errorf("%d bytes are answered %d, and %q is forgotten", len(body), w.Code, g.names)
		case len(g.names) > 0 && (len(g.names) > 1 || g.names[0] == "" || !utf8.ValidString(g.names[0])):
			t.Errorf("%q has %q forgotten", body, g.names)
		case len(g.names) > 0:
			var whole map[string]string
			if err := json.Unmarshal(body, &whole); err != nil || len(whole) != 1 || whole["name"] != g.names[0] {
				t.Errorf("%q has %q forgotten, and is %v: %v", body, g.names, whole, err)
			}
		}
	})
}

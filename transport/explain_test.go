package transport_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/transport"
)

// TestExplanationsAreTheNodes: over each protocol a node explains what it explains when
// it is asked directly, to the letter, and no counter changes by it.
func TestExplanationsAreTheNodes(t *testing.T) {
	s := newServer(t, mixed, nil)
	c := limitertest.SeededChoices(3)
	compared, counts := 0, 0
	for _, r := range requests(c, 300) {
		want, err := s.node.Explain(t.Context(), r)
		m, overGRPC := s.api.Explain(t.Context(), weirwire.NewCheckRequest(&r, false))
		if err != nil {
			if !strings.Contains(status.Convert(overGRPC).Message(), err.Error()) {
				t.Errorf("%+v: directly %v, over gRPC %v", r, err, overGRPC)
			}
			continue
		}
		if overGRPC != nil {
			t.Fatalf("%+v: %v", r, overGRPC)
		}
		want.Decision = nil
		if got := weirwire.ExplanationOf(m); !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v:\ngot  %+v\nwant %+v", r, got, want)
		}
		for _, l := range want.Limits {
			counts += len(l.Counts)
		}
		got, overHTTP := s.post(t, "/v1/explain", asJSON(t, &r)), new(limiter.Explanation)
		if err := json.Unmarshal([]byte(got.body), overHTTP); err != nil || got.status != 200 ||
			!reflect.DeepEqual(overHTTP, want) {
			t.Fatalf("%+v over HTTP: %v\n%d %s\nwant\n%+v", r, err, got.status, got.body, want)
		}
		compared++
		var d limiter.Decision
		if err := s.node.CheckInto(t.Context(), &r, &d); err != nil || d.Allowed != want.Answer.Allowed {
			t.Fatalf("%+v: explained as %v, decided as %v (%v)", r, want.Answer.Allowed, d.Allowed, err)
		}
		s.clock.set(limiter.TickOf(s.clock.read().Add(100 * time.Millisecond)))
	}
	if compared < 100 || counts == 0 {
		t.Errorf("%d explanations were compared, with %d counts", compared, counts)
	}
	for range 5 {
		got := s.get(t, "/v1/explain?rule=nine")
		if got.status != 400 || !strings.Contains(got.body, "nine") {
			t.Errorf("%+v", got)
		}
	}
}

// asJSON is a request as HTTP asks it.
func asJSON(t *testing.T, r *limiter.Request) string {
	t.Helper()
	q := map[string]any{"path": r.Path, "method": r.Method, "user": r.User, "ip": r.IP, "group": r.Group, "rule": r.Rule,
		"attributes": r.Attributes}
	if r.Cost.Given() {
		n, err := r.Cost.Value(0)
		if err != nil {
			t.Fatal(err)
		}
		q["cost"] = n
	}
	b, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// dumb decides, and does not explain.
type dumb struct{ transport.Decider }

// redis explains with the command that a shell would need.
type redis struct{ *weir.Node }

func (r redis) Explain(ctx context.Context, q limiter.Request) (*limiter.Explanation, error) {
	e, err := r.Node.Explain(ctx, q)
	if err == nil {
		e.Commands = []string{"redis-cli -h 192.0.2.7 --user admin EVAL"}
	}
	return e, err
}

// lost is a decider whose explanation nobody answers.
type lost struct{ *weir.Node }

func (lost) Explain(context.Context, limiter.Request) (*limiter.Explanation, error) {
	return nil, fmt.Errorf("%w: node-3 owns it", weir.ErrUnanswered)
}

// TestExplain: every client that may check may ask for an explanation, without the
// commands that contain the address of Redis. A decider without Explain yields an error
// that says so.
func TestExplain(t *testing.T) {
	shut := newServer(t, fixed, func(o *transport.Options) {
		o.AllowReset, o.AllowRequestLimits = false, false
		o.Decider = redis{o.Decider.(*weir.Node)}
	})
	own := []*weirv1.Limit{{Limit: 5, WindowUs: 1e6}}
	for name, c := range map[string]struct {
		request *weirv1.CheckRequest
		body    string
		code    codes.Code
		status  int
		want    string
	}{
		"good": {&weirv1.CheckRequest{User: "ada", Peek: true}, `{"user":"ada","peek":true}`, codes.OK, 200, ""},
		"own limits": {&weirv1.CheckRequest{Limits: own}, `{"limits":[{"limit":5,"window":"1s"}]}`, codes.PermissionDenied,
			403, "--allow-request-limits"},
		"bad cost": {&weirv1.CheckRequest{Cost: new(int64(-1))}, `{"cost":-1}`, codes.InvalidArgument, 400,
			"cost -1 is out of range"},
	} {
		m, err := shut.api.Explain(t.Context(), c.request)
		if status.Code(err) != c.code || !strings.Contains(status.Convert(err).Message(), c.want) {
			t.Errorf("%s over gRPC: %v", name, err)
		}
		if err == nil && (len(m.Limits) != 1 || m.Limits[0].Arithmetic != "0 counted + 1 <= 3: yes" ||
			m.Decision.Limits[0].WindowUs != 60e6 || m.Decision.Limits[0].Capacity != 3) {
			t.Errorf("%s over gRPC: %v", name, m)
		}
		got := shut.post(t, "/v1/explain", c.body)
		if got.status != c.status || !strings.Contains(got.body, c.want) || strings.Contains(got.body, "redis") {
			t.Errorf("%s over HTTP: %+v", name, got)
		}
	}
	if got := shut.get(t, "/v1/explain?user=ada"); got.status != 200 ||
		!strings.Contains(got.body, `"key":"all:ada:minute"`) {
		t.Errorf("by address: %+v", got)
	}
	shut.stillCounts(t, "ada", 3)
	without := newServer(t, fixed, func(o *transport.Options) { o.Decider = dumb{o.Decider} })
	if _, err := without.api.Explain(t.Context(), &weirv1.CheckRequest{}); status.Code(err) != codes.Unimplemented ||
		!strings.Contains(err.Error(), "cannot explain") {
		t.Errorf("over gRPC: %v", err)
	}
	if got := without.get(t, "/v1/explain"); got.status != 404 || !strings.Contains(got.body, "cannot explain") {
		t.Errorf("over HTTP: %+v", got)
	}
	nobody := newServer(t, fixed, func(o *transport.Options) { o.Decider = lost{o.Decider.(*weir.Node)} })
	if _, err := nobody.api.Explain(t.Context(), &weirv1.CheckRequest{}); status.Code(err) != codes.DeadlineExceeded ||
		!strings.Contains(err.Error(), "node-3 owns it") {
		t.Errorf("over gRPC: %v", err)
	}
	got := nobody.get(t, "/v1/explain")
	if got.status != 504 || !strings.Contains(got.body, "node-3 owns it") {
		t.Errorf("over HTTP: %+v", got)
	}
	loadSpec(t, nobody).holdsReply(t, "GET", "/v1/explain", got)
}

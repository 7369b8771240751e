package serve_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/internal/forward"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/grpclimit"
	"github.com/weirlimit/weir/middleware/httplimit"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/serve"
)

const denyRules = `
rules:
  - {name: all, key: [rule], limits: [100/hour], continue: true}
  - {name: trial, match: {user: trudy}, deny: true, shadow: true, continue: true}
  - {name: blocked, match: {user: mallory}, deny: {reason: "this account is blocked"}}
  - {name: gone, match: {path: ^/gone}, deny: {status: 410}}
  - {name: rest, key: [user], limits: [50/hour]}
`

// A rule that denies does so however a node is asked, with its status and its reason, and charges nothing.
func TestDenyingRules(t *testing.T) {
	s, err := serve.Open(t.Context(), serve.Config{Node: weir.Config{Rules: []byte(denyRules)}})
	if err != nil {
		t.Fatal(err)
	}
	node := s.Node()
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l, nil) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Open(client.Config{Addrs: []string{l.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	every, err := client.Open(client.Config{EveryLimit: true, Addrs: []string{l.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		every.Close()
		conn.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		<-ended
	})
	mallory, gone := weir.Request{Path: "/a", User: "mallory"}, weir.Request{Path: "/gone", User: "ada", ID: "7"}

	shown := func(d *limiter.Decision) string {
		if d.Allowed || !d.Never || d.Source != limiter.SourceRule || d.Len() > 0 || d.RetryAfter != 0 ||
			d.Remarks().Deny == nil {
			return "no denial"
		}
		text, _ := json.Marshal(d.Remarks().Deny)
		return d.Rule + " " + string(text)
	}
	const wantMallory, wantGone = `blocked {"status":403,"reason":"this account is blocked"}`, `gone {"status":410}`
	for name, check := range map[string]func(ctx context.Context, r *weir.Request, d *weir.Decision) error{
		"node": node.CheckInto, "peek": node.PeekInto, "client": c.CheckInto, "client's peek": c.PeekInto,
		"client of every limit": every.CheckInto,
		"batch": func(ctx context.Context, r *weir.Request, d *weir.Decision) error {
			ds := make([]weir.Decision, 3)
			err := node.CheckBatchInto(ctx, []weir.Request{{User: "ada"}, *r, {User: "ada"}}, ds)
			*d = ds[1]
			return err
		},
		"client's batch": func(ctx context.Context, r *weir.Request, d *weir.Decision) error {
			ds := make([]weir.Decision, 3)
			err := c.CheckBatchInto(ctx, []weir.Request{{User: "ada"}, *r, {User: "ada"}}, ds)
			*d = ds[1]
			return err
		},
	} {
		for want, r := range map[string]*weir.Request{wantMallory: &mallory, wantGone: &gone} {
			var d weir.Decision
			if err := check(t.Context(), r, &d); err != nil || shown(&d) != want {
				t.Errorf("%s: %s, %v; want %s", name, shown(&d), err, want)
			}
		}
	}
	if _, err := node.Wait(t.Context(), mallory); err == nil ||
		!strings.Contains(err.Error(), `rule "blocked" denies it`) {
		t.Errorf("Wait: %v", err)
	}

	code, body := get(t, s.Handler(), "/v1/check?path=/a&user=mallory")
	if code != 429 || !strings.Contains(body,
		`"rule":"blocked","source":"rule","deny":{"status":403,"reason":"this account is blocked"}`) {
		t.Errorf("/v1/check: %d %s", code, body)
	}
	if code, body := get(t, s.Handler(), "/v1/check?path=/a&user=trudy"); code != 200 ||
		!strings.Contains(body, `"shadow_denied":true`) {
		t.Errorf("in shadow: %d %s", code, body)
	}
	m, err := weirv1.NewLimiterClient(conn).Check(t.Context(), &weirv1.CheckRequest{Path: "/gone"})
	if err != nil || m.GetAllowed() || m.GetSource() != weirv1.Source_SOURCE_RULE || m.GetDenyStatus() != 410 {
		t.Errorf("gRPC: %v, %v", m, err)
	}
	if e, err := node.Explain(t.Context(), mallory); err != nil || e.Answer.Allowed || e.Answer.Deny == nil ||
		e.Unlimited || len(e.Rules) != 2 {
		t.Errorf("Explain: %+v, %v", e, err)
	}
	if _, text := get(t, s.Admin(), "/metrics"); !strings.Contains(text,
		`weir_checks_total{result="denied",rule="blocked",source="rule"}`) ||
		!strings.Contains(text, `weir_shadow_checks_total{result="denied",rule="trial"} 1`) {
		t.Errorf("metrics: %s", text)
	}
	d, err := node.Peek(t.Context(), weir.Request{User: "ada"})
	const charged = 2*2*2 + 1 // ada in each batch, and trudy
	if err != nil || d.Limit(0).Remaining != 100-charged {
		t.Errorf("denials are charged: %d remain, %v", d.Limit(0).Remaining, err)
	}

	// What asks for its callers answers with the status and the reason.
	limit, err := httplimit.New(c, httplimit.User(httplimit.FromHeader("User")))
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/a", nil)
	r.Header.Set("User", "mallory")
	limit(http.NotFoundHandler()).ServeHTTP(w, r)
	if w.Code != 403 || w.Header().Get("Retry-After") != "" ||
		!strings.Contains(w.Body.String(), `{"type":"about:blank","title":"Forbidden","status":403,`+
			`"detail":"this account is blocked"`) {
		t.Errorf("httplimit: %d %v %s", w.Code, w.Header(), w.Body)
	}
	proxy, err := forward.New(forward.Options{Decider: node, Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]int{"/v1/auth": 410, "/v1/auth?deny=403": 403} {
		w = httptest.NewRecorder()
		r = httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
		r.RemoteAddr = "10.0.0.1:99"
		r.Header.Set("X-Original-URI", "/gone")
		r.Header.Set("X-Original-Method", "GET")
		if proxy.ServeHTTP(w, r); w.Code != want || want == 403 && w.Header().Get("X-Weir-Status") != "410" {
			t.Errorf("%s: %d %v", target, w.Code, w.Header())
		}
	}
	for want, r := range map[codes.Code]*weir.Request{codes.PermissionDenied: &mallory} {
		d, _ := node.Check(t.Context(), *r)
		if got := status.Convert(grpclimit.Denial(&d)); got.Code() != want || got.Message() != "this account is blocked" {
			t.Errorf("grpclimit: %v", got)
		}
	}
}

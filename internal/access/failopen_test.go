package access

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/middleware/grpclimit"
	"github.com/weirlimit/weir/middleware/httplimit"
)

// A service that lets requests pass while no node answers does not let one pass that matches a rule outside the
// service's scope, or that comes when its budget is used up: both are up to those who send the requests. A token that
// no node takes is up to the operator, and such a service goes on.
func TestFailOpen(t *testing.T) {
	w := newWorld(t, `
tokens:
  - {issuer: "https://id.example.com", audience: weir, algorithms: [ES256], keys: keys.pem}
identities:
  - {name: shop, token: {subject: shop}, may: {check: [shop-]}}
  - {name: keys, token: {subject: keys}, may: {check: true}, budget: {keys: 1}}
  - {name: checks, token: {subject: checks}, may: {check: true}, budget: {checks: 1}}
`)
	for _, c := range []struct {
		service     string
		first, then string // paths
		status      int
		retry       string
		code        codes.Code
	}{
		{"shop", "/cart", "/pay", http.StatusForbidden, "", codes.PermissionDenied},
		{"keys", "/cart", "/pay", http.StatusTooManyRequests, "1", codes.ResourceExhausted},
		{"checks", "/cart", "/cart", http.StatusTooManyRequests, "1", codes.ResourceExhausted},
		{"none", "/cart", "/cart", http.StatusOK, "", codes.OK},
	} {
		t.Run(c.service, func(t *testing.T) {
			nodes, err := client.Open(client.Config{Addrs: []string{w.at},
				TokenFile: w.write(c.service+".token", w.token(c.service))})
			if err != nil {
				t.Fatal(err)
			}
			defer nodes.Close()
			users := httplimit.User(httplimit.FromHeader("X-User"))
			limit, err := httplimit.New(nodes, httplimit.FailOpen(), users)
			if err != nil {
				t.Fatal(err)
			}
			h := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			ask := func(path string) *httptest.ResponseRecorder {
				r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
				r.Header.Set("X-User", c.service)
				out := httptest.NewRecorder()
				h.ServeHTTP(out, r)
				return out
			}
			if got := ask(c.first); got.Code != http.StatusOK {
				t.Fatalf("premise: %d %s", got.Code, got.Body)
			}
			if got := ask(c.then); got.Code != c.status || got.Header().Get("Retry-After") != c.retry {
				t.Errorf("%d %v %s", got.Code, got.Header(), got.Body)
			}
			calls, err := grpclimit.New(nodes, grpclimit.FailOpen(), grpclimit.User(grpclimit.FromMetadata("x-user")))
			if err != nil {
				t.Fatal(err)
			}
			ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("x-user", c.service))
			_, err = calls.UnaryServer()(ctx, nil, &grpc.UnaryServerInfo{FullMethod: c.then},
				func(context.Context, any) (any, error) {
					return "passed", nil
				})
			if s := status.Convert(err); s.Code() != c.code || len(s.Details()) != len(c.retry) {
				t.Errorf("a call: %v %v", err, s.Details())
			}
		})
	}
}

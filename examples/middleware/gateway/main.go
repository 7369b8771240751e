// Gateway limits the rates of an app that gRPC-Gateway routes.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/examples/middleware"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/grpclimit"
	"github.com/weirlimit/weir/middleware/httplimit"
)

func main() {
	node, err := weir.Open(context.Background(), weir.Config{Rules: []byte(middleware.Rules)})
	if err != nil {
		log.Fatal(err)
	}
	app, err := routes(node)
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: "127.0.0.1:8090", Handler: app, ReadHeaderTimeout: 5 * time.Second}
	log.Print("ask for http://", server.Addr, "/towns/ulm")
	log.Fatal(server.ListenAndServe())
}

// routes returns the app. The limiter stands around the gateway, so that what is denied
// reaches no gRPC server. A denial has the form of the gateway's other errors.
func routes(d httplimit.Decider) (http.Handler, error) {
	mux := runtime.NewServeMux()
	limit, err := httplimit.New(d,
		httplimit.User(httplimit.FromHeader("X-User")),
		httplimit.Skip(func(r *http.Request) bool { return r.URL.Path == "/healthz" }),
		httplimit.OnDenied(func(w http.ResponseWriter, r *http.Request, d *limiter.Decision) {
			_, outbound := runtime.MarshalerForRequest(mux, r)
			runtime.HTTPError(r.Context(), mux, outbound, w, r, grpclimit.Denial(d))
		}))
	if err != nil {
		return nil, err
	}
	// A service registers the handlers that protoc-gen-grpc-gateway makes.
	for _, route := range []struct{ method, path, text string }{
		{http.MethodGet, "/healthz", "ok"}, {http.MethodGet, "/towns/{name}", "a fine town: "},
		{http.MethodPost, "/login", "welcome"},
	} {
		if err := mux.HandlePath(route.method, route.path,
			func(w http.ResponseWriter, _ *http.Request, in map[string]string) {
				_, _ = fmt.Fprintln(w, route.text+in["name"]) // it fails only where the caller is gone
			}); err != nil {
			return nil, err
		}
	}
	return limit(mux), nil
}

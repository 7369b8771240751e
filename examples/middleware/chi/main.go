// Chi limits the rates of an app that is routed by chi.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/examples/middleware"
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

// routes returns the app. The limiter stands around groups of routes: there chi
// has found the route, so that all towns share a counter.
func routes(d httplimit.Decider) (http.Handler, error) {
	limit, err := httplimit.New(d, httplimit.PathFromPattern(), httplimit.User(httplimit.FromHeader("X-User")))
	if err != nil {
		return nil, err
	}
	r := chi.NewRouter()
	r.Get("/healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, "ok") })
	r.Group(func(r chi.Router) {
		r.Use(limit)
		r.Get("/towns/{name}", func(w http.ResponseWriter, r *http.Request) {
			say(w, "a fine town: "+chi.URLParam(r, "name"))
		})
	})
	r.With(limit).Post("/login", func(w http.ResponseWriter, _ *http.Request) { say(w, "welcome") })
	return r, nil
}

// say answers with a line. It fails only where the caller is gone.
func say(w http.ResponseWriter, text string) { _, _ = fmt.Fprintln(w, text) }

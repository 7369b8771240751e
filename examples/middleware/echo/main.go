// Echo limits the rates of an app that is routed by echo.
package main

import (
	"context"
	"log"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

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

// routes returns the app. The limiter stands around a group and around one
// handler.
func routes(d httplimit.Decider) (http.Handler, error) {
	limit, err := httplimit.New(d, httplimit.User(httplimit.FromHeader("X-User")))
	if err != nil {
		return nil, err
	}
	limited := echo.WrapMiddleware(limit)
	e := echo.New()
	e.GET("/healthz", func(c echo.Context) error { return c.String(http.StatusOK, "ok\n") })
	towns := e.Group("/towns", limited)
	towns.GET("/:name", func(c echo.Context) error {
		return c.String(http.StatusOK, "a fine town: "+c.Param("name")+"\n")
	})
	e.POST("/login", func(c echo.Context) error { return c.String(http.StatusOK, "welcome\n") }, limited)
	return e, nil
}

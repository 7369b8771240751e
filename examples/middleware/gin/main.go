// Gin limits the rates of an app that is routed by gin.
package main

import (
	"context"
	"log"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/examples/middleware"
	"github.com/weirlimit/weir/middleware/httplimit"
)

func main() {
	gin.SetMode(gin.ReleaseMode)
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

// limited turns a limiter into a gin middleware: the plain call, and an end to
// the chain where it has answered.
func limited(l *httplimit.Limiter) gin.HandlerFunc {
	return func(c *gin.Context) {
		if !l.Check(c.Writer, c.Request) {
			c.Abort()
		}
	}
}

// routes returns the app. The limiter stands around the whole of it: every town
// has a counter of its own.
func routes(d httplimit.Decider) (http.Handler, error) {
	limit, err := httplimit.NewLimiter(d,
		httplimit.User(httplimit.FromHeader("X-User")),
		httplimit.Skip(func(r *http.Request) bool { return r.URL.Path == "/healthz" }))
	if err != nil {
		return nil, err
	}
	r := gin.New()
	r.Use(limited(limit))
	r.GET("/healthz", func(c *gin.Context) { c.String(http.StatusOK, "ok\n") })
	r.GET("/towns/:name", func(c *gin.Context) { c.String(http.StatusOK, "a fine town: %s\n", c.Param("name")) })
	r.POST("/login", func(c *gin.Context) { c.String(http.StatusOK, "welcome\n") })
	return r, nil
}

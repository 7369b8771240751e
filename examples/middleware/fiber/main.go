// Fiber limits the rates of an app that is routed by fiber.
package main

import (
	"context"
	"log"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"

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
	log.Fatal(app.Listen("127.0.0.1:8090"))
}

// routes returns the app. The limiter stands before single handlers: fiber's adaptor makes
// a handler of it, which gives it the request as net/http has it.
func routes(d httplimit.Decider) (*fiber.App, error) {
	limit, err := httplimit.New(d, httplimit.User(httplimit.FromHeader("X-User")))
	if err != nil {
		return nil, err
	}
	limited := adaptor.HTTPMiddleware(limit)
	app := fiber.New()
	app.Get("/healthz", func(c fiber.Ctx) error { return c.SendString("ok\n") })
	app.Get("/towns/:name", limited, func(c fiber.Ctx) error {
		return c.SendString("a fine town: " + c.Params("name") + "\n")
	})
	app.Post("/login", limited, func(c fiber.Ctx) error { return c.SendString("welcome\n") })
	return app, nil
}

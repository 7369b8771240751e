package main

import (
	"net"
	"testing"

	"github.com/gofiber/fiber/v3"

	"github.com/weirlimit/weir/examples/middleware"
	"github.com/weirlimit/weir/examples/middleware/internal/askall"
)

// A1: the middleware in an app that is routed by fiber, served by fiber itself.
func TestRoutes(t *testing.T) {
	app, err := routes(askall.Node(t, middleware.Rules))
	if err != nil {
		t.Fatal(err)
	}
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true}) }()
	askall.At(t, "http://"+l.Addr().String(), false, "application/problem+json")
	if err := app.Shutdown(); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

package main

import (
	"net/http/httptest"
	"testing"

	"github.com/weirlimit/weir/examples/middleware"
	"github.com/weirlimit/weir/examples/middleware/internal/askall"
)

// A1: the middleware in an app that gRPC-Gateway routes.
func TestRoutes(t *testing.T) {
	app, err := routes(askall.Node(t, middleware.Rules))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(app)
	defer s.Close()
	askall.At(t, s.URL, false, "application/json")
}

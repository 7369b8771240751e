package main

import (
	"testing"

	"github.com/weirlimit/weir/examples/middleware/internal/askall"
)

// A1: the middleware in an app that is routed by chi.
func TestRoutes(t *testing.T) { askall.Test(t, routes, true) }

package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/httplimit"
	"github.com/weirlimit/weir/transport"
)

// startNode stands for a `node serve` that runs elsewhere.
func startNode(rules string) (addr string, stop func()) {
	n, err := weir.Open(context.Background(), weir.Config{Rules: []byte(rules)})
	if err != nil {
		panic(err)
	}
	s, err := transport.NewServer(transport.Options{Decider: n})
	if err != nil {
		panic(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	served := make(chan error)
	go func() { served <- s.Serve(l, nil) }()
	return l.Addr().String(), func() {
		if err := errors.Join(s.Shutdown(context.Background()), <-served, n.Close()); err != nil {
			panic(err)
		}
	}
}

// A denial is a decision. The caller chooses what to do without a decision.
func Example() {
	addr, stop := startNode(`{version: 1, rules: [{name: towns, limits: [2/minute]}]}`)
	defer stop()
	c, err := client.Open(client.Config{Addrs: []string{addr}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	for range 3 {
		d, err := c.Check(context.Background(), limiter.Request{Path: "/towns", User: "ada"})
		switch {
		case errors.Is(err, client.ErrInvalid):
			fmt.Println("the request makes no sense:", err)
		case err != nil:
			fmt.Println("no decision, so it may pass:", err)
		case d.Allowed:
			fmt.Println("allowed,", d.Limit(0).Remaining, "left")
		default:
			fmt.Println("denied by", d.BlockedBy().FullName())
		}
	}
	// Output:
	// allowed, 1 left
	// allowed, 0 left
	// denied by towns/minute
}

// A middleware asks nodes through a client as it would a node in its own process.
// With EveryLimit all limits of a rule are in the headers.
func Example_middleware() {
	addr, stop := startNode(`{version: 1, rules: [{name: towns, limits: [2/minute]}]}`)
	defer stop()
	c, err := client.Open(client.Config{Addrs: []string{addr}, EveryLimit: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	limited, err := httplimit.New(c)
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := limited(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "a town") }))
	for range 3 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/towns", http.NoBody))
		fmt.Println(w.Code, w.Header().Get("RateLimit-Policy"))
	}
	// Output:
	// 200 "towns/minute";q=2;w=60
	// 200 "towns/minute";q=2;w=60
	// 429 "towns/minute";q=2;w=60
}

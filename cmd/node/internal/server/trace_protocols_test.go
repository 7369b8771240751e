package server

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/weirlimit/weir/internal/forward"
)

// below returns the spans of a node and a name that are directly below another span.
func (s *spans) below(parent, node, name string) (out []recorded) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.all {
		if x.parent == parent && x.node == node && x.name == name {
			out = append(out, x)
		}
	}
	return out
}

// forwarded waits until a span of a name, below a parent, has one below it for a check that
// another member decided.
func forwarded(t *testing.T, all *spans, parent, name string) {
	t.Helper()
	eventually(t, "a check of "+name+" is traced at its owner", func() bool {
		for _, served := range all.below(parent, "node-0", name) {
			for _, on := range slices.Concat(all.below(served.span, "node-0", "weir.forward"),
				all.below(served.span, "node-0", "weir.batch")) {
				if len(all.below(on.span, "node-1", "weir.decide"))+len(all.below(on.span, "node-2", "weir.decide")) > 0 {
					return true
				}
			}
		}
		return false
	})
}

const parentSpan = "b7ad6b7169203331"

func traceparent(trace string) string { return "00-" + trace + "-" + parentSpan + "-01" }

// Checks by Envoy, over gRPC and in JSON, and those of web proxies are traced as others are: in the
// client's trace, with spans where they are forwarded and decided. Questions about health are not.
func TestTracesOfProxies(t *testing.T) {
	membersInOneProcess(t)
	all, endpoint := collect(t)
	nodes := tracedNodes(t, endpoint, func(c *Config) {
		c.Envoy, _ = envoyConfig(t, envoyFile)
		c.Envoy.HTTPAddrs = []string{"127.0.0.1:0"}
		c.Auth = &forward.Options{Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, User: "X-User"}
	})
	const overGRPC, asJSON, proxied, health = "0bf7651916cd43dd8448eb211c80319c", "1bf7651916cd43dd8448eb211c80319c",
		"2bf7651916cd43dd8448eb211c80319c", "3bf7651916cd43dd8448eb211c80319c"
	conn := dial(t, nodes[0].Addresses().Envoy)
	asking := func(trace string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "traceparent", traceparent(trace))
	}
	send := func(r *http.Request, fields ...string) {
		t.Helper()
		for i := 0; i < len(fields); i += 2 {
			r.Header.Set(fields[i], fields[i+1])
		}
		r.Close = true
		out, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = out.Body.Close()
		if out.StatusCode != http.StatusOK || !strings.HasPrefix(out.Header.Get("Traceparent"), fields[1][:36]) {
			t.Fatalf("%s: %d, traceparent %q", r.URL, out.StatusCode, out.Header.Get("Traceparent"))
		}
	}
	if _, err := healthv1.NewHealthClient(conn).Check(asking(health), &healthv1.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	for i := range 20 { // of which some are another member's
		user := fmt.Sprint("user-", i)
		var header metadata.MD
		if _, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(asking(overGRPC), &rls.RateLimitRequest{
			Domain: "edge",
			Descriptors: []*ratelimit.RateLimitDescriptor{{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "user",
				Value: user}}}},
		}, grpc.Header(&header)); err != nil {
			t.Fatal(err)
		}
		if got := header.Get("traceparent"); len(got) != 1 || got[0][:36] != traceparent(overGRPC)[:36] {
			t.Fatalf("the answer's traceparent is %q", got)
		}
		post, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			"http://"+nodes[0].envoy.aside[0].Addr().String()+"/json",
			strings.NewReader(`{"domain":"edge","descriptors":[{"entries":[{"key":"user","value":"`+user+`"}]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		send(post, "Traceparent", traceparent(asJSON))
		to := "http://" + nodes[0].Addresses().HTTP + "/v1/auth"
		get, err := http.NewRequestWithContext(t.Context(), http.MethodGet, to, nil)
		if err != nil {
			t.Fatal(err)
		}
		send(get, "Traceparent", traceparent(proxied), "X-Original-URI", "/towns", "X-Original-Method", "GET",
			"X-Forwarded-For", "192.0.2.1", "X-User", user)
	}
	forwarded(t, all, parentSpan, "ShouldRateLimit")
	forwarded(t, all, parentSpan, "POST /json")
	forwarded(t, all, parentSpan, "GET /v1/auth")
	if got := all.of(health); len(got) > 0 {
		t.Errorf("a question about health is traced: %+v", got)
	}
}

// Commands of the Redis protocol, which has no place for the context of a trace, begin traces of
// their own: checks that are decided together have one span, and so has a reset.
func TestTracesOfRedis(t *testing.T) {
	membersInOneProcess(t)
	all, endpoint := collect(t)
	nodes := tracedNodes(t, endpoint, func(c *Config) {
		c.RedisListen, c.AllowReset, c.Trace.Ratio = "127.0.0.1:0", true, 1
	})
	user := ownedBy(t, nodes[0], "node-1")
	c := redisClient(t, &redis.Options{Addr: nodes[0].Addresses().Redis, Protocol: 2})
	if err := c.Do(t.Context(), "WEIR.CHECK", "/towns", "USER", user).Err(); err != nil {
		t.Fatal(err)
	}
	if err := c.Do(t.Context(), "WEIR.RESET", "/towns", "USER", user).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for range 3 {
			p.Do(t.Context(), "WEIR.CHECK", "/towns", "USER", user)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	forwarded(t, all, "", "RESP WEIR.CHECK")
	forwarded(t, all, "", "RESP batch")
	eventually(t, "the reset is traced", func() bool { return len(all.below("", "node-0", "RESP WEIR.RESET")) == 1 })
	all.mu.Lock()
	defer all.mu.Unlock()
	served := 0
	for _, x := range all.all {
		if strings.HasPrefix(x.name, "RESP ") {
			served++
		}
		if slices.Contains([]string{"weir.forward", "weir.batch", "weir.decide"}, x.name) && x.parent == "" {
			t.Errorf("a span of a check is below none: %+v", x)
		}
	}
	if served != 3 {
		t.Errorf("%d spans of commands, want 3: a check, a reset, and one of all that were sent together", served)
	}
}

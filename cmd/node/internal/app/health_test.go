package app

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
)

// A serving node is healthy, whether its address comes from a flag or the environment,
// and if it listens at every address. After its end it is not.
func TestHealth(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	r := begin(t, World{}, free("--health-addr", ":"+port)...)
	r.until("the node is ready")
	for name, c := range map[string]struct{ environ, args []string }{
		"flag":        {nil, []string{"health", "--health-addr", "127.0.0.1:" + port}},
		"everywhere":  {nil, []string{"health", "--health-addr", ":" + port}},
		"IPv6":        {nil, []string{"health", "--health-addr", "[::]:" + port}},
		"environment": {[]string{"WEIR_HEALTH_ADDR=0.0.0.0:" + port, "WEIR_NAME=node-1"}, []string{"health"}},
	} {
		if status, out, err := run(t, c.environ, c.args...); status != ExitOK || out != "it serves\n" || err != "" {
			t.Errorf("%s: status %d, %s%s", name, status, out, err)
		}
	}
	if status, out, err := run(t, nil, "health", "--ready", "--health-addr", "127.0.0.1:"+port); status != ExitOK ||
		out != "it is ready\n" || err != "" {
		t.Errorf("ready: status %d, %s%s", status, out, err)
	}
	r.signals <- os.Interrupt
	r.end(ExitOK)
	status, out, said := run(t, nil, "health", "--health-addr", "127.0.0.1:"+port)
	if status != ExitFailed || out != "" || !strings.HasPrefix(said,
		"node: the node at 127.0.0.1:"+port+" does not serve: ") {
		t.Errorf("ended: status %d, %s%s", status, out, said)
	}
}

// The command reports an unhealthy node, and one that does not answer in time. It does
// not use a proxy from the environment.
func TestHealthOfWhatIsNotWell(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://192.0.2.1:9")
	release := make(chan struct{})
	sick := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "out of order", http.StatusInternalServerError)
	}))
	defer sick.Close()
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer silent.Close()
	defer close(release)
	for _, c := range []struct{ url, timeout, ready, want string }{
		{sick.URL, "30s", "false", "does not serve: /healthz answered 500 Internal Server Error: out of order"},
		{sick.URL, "30s", "true", "is not ready: /readyz answered 500 Internal Server Error: out of order"},
		{silent.URL, "20ms", "false", "does not serve: no answer within 20ms"},
	} {
		addr := strings.TrimPrefix(c.url, "http://")
		status, out, said := run(t, nil, "health", "--health-addr", addr, "--timeout", c.timeout, "--ready="+c.ready)
		if want := "node: the node at " + addr + " " + c.want + "\n"; status != ExitFailed || out != "" || said != want {
			t.Errorf("status %d, %s%s, want %s", status, out, said, want)
		}
	}
}

func TestHealthUsage(t *testing.T) {
	for _, c := range []struct{ flag, value, want string }{
		{"--health-addr", "127.0.0.1:0", "has no port that could be asked"},
		{"--health-addr", "", "has no port that could be asked"},
		{"--health-addr", "off", "has no port that could be asked"},
		{"--health-addr", "nowhere", "give HOST:PORT"},
		{"--timeout", "0s", "is out of range"},
		{"--timeout", "2h", "is out of range"},
	} {
		if status, _, said := run(t, nil, "health", c.flag, c.value); status != ExitUsage || !strings.Contains(said, c.want) {
			t.Errorf("%s %q: status %d, %s", c.flag, c.value, status, said)
		}
	}
	if status, _, said := run(t, []string{"WEIR_HEALTH_ADDR=nowhere"}, "health"); status != ExitUsage ||
		!strings.Contains(said, "WEIR_HEALTH_ADDR") {
		t.Errorf("status %d, %s", status, said)
	}
}

// A node that waits for Redis listens, and does not say that it is ready.
func TestServeWithoutRedis(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	r := begin(t, World{}, append(free(), "--rules", file(t, "rules.yaml", townRules), "--backend", "redis",
		"--redis-addr", gone.Addr().String())...)
	r.until("the node listens")
	r.signals <- syscall.SIGTERM
	r.end(ExitOK)
	if got := r.err.String(); strings.Contains(got, "the node is ready") {
		t.Error(got)
	}
}

// The end of the context stops a node like a signal does. A reload meanwhile does not
// count as a second signal.
func TestEndOfContext(t *testing.T) {
	for name, args := range map[string][]string{"serve": free(),
		"demo": {"demo", "--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0"}} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			r := beginUnder(ctx, t, World{}, args...)
			r.until("127.0.0.1:")
			cancel()
			r.signals <- syscall.SIGHUP
			r.end(ExitOK)
		})
	}
}

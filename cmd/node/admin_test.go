//go:build unix

package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// tool builds the operator's tool.
func tool(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir")
	if out, err := command(t, "../weir", nil, "go", "build", "-o", path, "."); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// Administration is served at its own listener only, which the tool uses. It is not
// reachable at the ports for clients and probes.
func TestAdministration(t *testing.T) {
	all := places(t, 3, clusterRules)
	socket := filepath.Join(t.TempDir(), "admin.sock")
	all[2].args = append(all[2].args, "--admin-addr", "unix:"+socket)
	var health []string
	for _, s := range all {
		s.start(t)
	}
	for _, s := range all {
		health = append(health, s.at("health"))
	}
	for _, s := range all[:2] {
		s.settled(t, 3)
	}
	c := &http.Client{}
	if status, body := asked(t, c, "GET", "http://"+all[0].http+"/v1/check?path=/k&user=ada",
		""); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	const forgetting = `{"name":"node-9"}`
	paths := []struct {
		method, path, body string
		admin              int
	}{
		{"GET", "/v1/members", "", 200}, {"GET", "/v1/top", "", 200}, {"POST", "/v1/members/forget", forgetting, 400},
		{"GET", "/metrics", "", 200}, {"GET", "/debug/pprof/", "", 200}, {"GET", "/debug/pprof/cmdline", "", 200},
	}
	json := []string{"Content-Type", "application/json"}
	for _, p := range paths {
		for _, at := range []string{all[0].http, health[0]} {
			if status, body := asked(t, c, p.method, "http://"+at+p.path, p.body, json...); status != http.StatusNotFound {
				t.Errorf("%s %s at %s: %d %s", p.method, p.path, at, status, body)
			}
		}
		admin := "http://" + all[0].admin + p.path
		if status, body := asked(t, c, p.method, admin, p.body, json...); status != p.admin {
			t.Errorf("%s %s for operators: %d %s", p.method, p.path, status, body)
		}
		for _, from := range [][]string{{"Host", "rebound.example:8082"}, {"Sec-Fetch-Site", "cross-site"},
			{"Origin", "https://other.example"}} {
			if status, body := asked(t, c, p.method, admin, p.body, append(from, json...)...); status != http.StatusForbidden {
				t.Errorf("%s %s with %v: %d %s", p.method, p.path, from, status, body)
			}
		}
	}
	if status, body := asked(t, c, "POST", "http://"+all[0].admin+"/v1/members/forget", forgetting, "Content-Type",
		"text/plain"); status != http.StatusUnsupportedMediaType {
		t.Errorf("a form has a member forgotten: %d %s", status, body)
	}
	conn, err := grpc.NewClient(all[0].grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, method := range []string{"Members", "Top", "Forget"} {
		err := conn.Invoke(t.Context(), "/"+weirv1.Limiter_ServiceDesc.ServiceName+"/"+method, &weirv1.RingRequest{},
			&weirv1.RingResponse{})
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("%s over gRPC: %v", method, err)
		}
	}

	weir := tool(t)
	out, err := command(t, ".", nil, weir, "members", "--server", all[0].admin)
	rows := strings.Split(out, "\n")
	if err != nil || len(rows) != 6 || strings.Contains(rows[2], " - ") || !strings.Contains(rows[3], " - ") ||
		rows[4] != "node-3 was not asked: its --admin-addr is for its own machine only, or off" {
		t.Errorf("weir members: %v\n%s", err, out)
	}
	out, err = command(t, ".", nil, weir, "members", "--server", "unix:"+socket)
	if err != nil || strings.Contains(out, " - ") || strings.Contains(out, "not asked") {
		t.Errorf("weir members at a socket: %v\n%s", err, out)
	}
	if out, err = command(t, ".", nil, weir, "top", "--server", "unix:"+socket); err != nil ||
		!strings.Contains(out, "denied most") || strings.Contains(out, "not asked") {
		t.Errorf("weir top at a socket: %v\n%s", err, out)
	}
	if out, err = command(t, ".", nil, weir, "members", "forget", "node-9", "--server", "unix:"+socket); err == nil ||
		!strings.Contains(out, `no dead member "node-9"`) {
		t.Errorf("weir members forget at a socket: %v\n%s", err, out)
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
}

// A page of another site cannot use up a limit by an image, and a person with curl is
// charged as always.
func TestImageOfAnotherSite(t *testing.T) {
	_, overHTTP, _ := serve(t, "--rules", write(t, townRules), "--allow-reset")
	c := &http.Client{}
	check := "http://" + overHTTP + "/v1/check?path=/towns&user=ada"
	for _, from := range [][]string{
		{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image", "User-Agent", "Mozilla/5.0"},
		{"Origin", "https://other.example"}, {"User-Agent", "Mozilla/5.0 (X11; Linux x86_64)"},
		{"Host", "rebound.example", "Origin", "http://rebound.example", "Sec-Fetch-Site", "same-origin"},
	} {
		for range 3 {
			if status, body := asked(t, c, "GET", check, "", from...); status != http.StatusForbidden {
				t.Errorf("with %v: %d %s", from, status, body)
			}
		}
	}
	if _, body := asked(t, c, "GET", check+"&cost=0", ""); !strings.Contains(body, `"remaining":2`) {
		t.Errorf("another site has counted: %s", body)
	}
	for i, want := range []int{200, 200, 429} {
		if status, body := asked(t, c, "GET", check, "", "User-Agent", "curl/8.14.1"); status != want {
			t.Errorf("check %d by curl: %d %s", i, status, body)
		}
	}
}

// Where clients hold all connections, and all files that the process may have open,
// probes and operators are answered all the same.
func TestProbesDespiteClients(t *testing.T) {
	const files = 300 // so few connections are all
	args := []string{"serve", "--rules", write(t, townRules), "--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0"}
	p := launchBy(t, exec.CommandContext(t.Context(), "sh",
		append([]string{"-c", "ulimit -n " + strconv.Itoa(files) + `; exec "$0" "$@"`, program}, args...)...))
	// Those that are greeted in this way stay for minutes.
	public := map[string]string{
		p.at("http"): "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n",
		p.at("grpc"): "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
	}
	client := func() *http.Client {
		return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: soon}
	}
	refused := map[string]int{}
	for at, greeting := range public {
		for range 2 * files {
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, greeting) // it may be one that was refused
		}
		// The accepted connections stay open. One more is closed at once, which shows
		// that the bound is reached; a connection that waits in the kernel's queue
		// would never be answered.
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetReadDeadline(time.Now().Add(soon)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(new(bytes.Buffer), conn); err == nil {
			refused[at]++
		}
	}
	for path, at := range map[string]string{"/healthz": p.at("health"), "/readyz": p.at("health"),
		"/metrics": p.at("admin")} {
		if status, body := get(t, client(), "http://"+at+path); status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if out, err := command(t, ".", nil, program, "health", "--health-addr", p.at("health")); err != nil {
		t.Errorf("node health: %v\n%s", err, out)
	}
	if len(refused) != len(public) {
		t.Errorf("only %v refuse the connections that are too many", refused)
	}
}

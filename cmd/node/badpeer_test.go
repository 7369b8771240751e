//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
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

	peerv1 "github.com/weirlimit/weir/proto/weir/peer/v1"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// rss is the memory of a process in bytes, 0 if the system does not provide it.
func (p *process) rss(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// unharmed wants a node to run with not much more memory than before, and with
// not many more lines in its log.
func (s *seat) unharmed(t *testing.T, rss, lines int) {
	t.Helper()
	const most = 128 << 20
	if now := s.rss(t); now > rss+most {
		t.Errorf("%s has %d MB of memory, after %d", s.name, now>>20, rss>>20)
	}
	if now := strings.Count(s.log.String(), "\n"); now > lines+40 {
		t.Errorf("%s logged %d lines:\n%s", s.name, now-lines, s.log)
	}
}

// Client requests, and messages that are too large, are refused at the peer port. The
// answer names the port for clients.
func TestBadPeers(t *testing.T) {
	all := pair(t)
	victim := all[0]
	rss, lines := victim.rss(t), strings.Count(victim.log.String(), "\n")
	conn, err := grpc.NewClient(victim.peers, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()

	_, err = weirv1.NewLimiterClient(conn).Check(ctx, &weirv1.CheckRequest{Path: "/k"})
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "gRPC is served on "+victim.grpc) {
		t.Errorf("a gRPC client is told %v", err)
	}

	resp, err := http.Get("http://" + victim.peers + "/v1/check?path=/k")
	if err == nil {
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode < 400 || !strings.Contains(string(text), victim.http) {
			t.Errorf("an HTTP client is told %s %q", resp.Status, text)
		}
	} else {
		t.Errorf("an HTTP client gets no answer: %v", err)
	}

	for _, c := range []struct {
		hello *peerv1.Hello
		says  string
	}{
		{&peerv1.Hello{Wire: 1, Cluster: "beta"}, `this node is of cluster "weir", and the other of "beta"`},
		{&peerv1.Hello{Wire: 9, Cluster: "weir"}, "this node speaks version 3 of the peer wire, and the other 9"},
		{&peerv1.Hello{Wire: 2, Cluster: "weir", RingConfig: 7}, "and the other's 0000000000000007"},
	} {
		stream, err := peerv1.NewLinksClient(conn).Connect(ctx)
		if err != nil {
			t.Fatal(err)
		}
		c.hello.Name, c.hello.Instance, c.hello.Nonce = "stranger", 1, make([]byte, 16)
		if err := stream.Send(&peerv1.Message{Hello: c.hello}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), c.says) {
			t.Errorf("a peer is told %v, want %q", err, c.says)
		}
		victim.says(t, strings.ReplaceAll(c.says, `"`, `\"`), `the node \"stranger\" was refused`)
	}

	for range 10 {
		stream, err := peerv1.NewLinksClient(conn).Connect(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&peerv1.Message{Hello: &peerv1.Hello{Wire: 1, Cluster: "weir", Name: strings.Repeat("x", 20<<20)}})
		if _, err := stream.Recv(); status.Code(err) != codes.Unavailable { // the connection is cut off after 4 KiB
			t.Errorf("a message of 20 MB: %v", err)
		}
	}
	victim.unharmed(t, rss, lines)
	decides(t, all, "peers")
}

// Garbage on the gossip port is dropped, and logged a few times only.
func TestGossipGarbage(t *testing.T) {
	all := pair(t)
	victim := all[0]
	rss, lines := victim.rss(t), strings.Count(victim.log.String(), "\n")
	rng := rand.New(rand.NewPCG(1, 2))
	udp, err := new(net.Dialer).DialContext(t.Context(), "udp", victim.gossip)
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for range 5000 {
		_, _ = udp.Write(garbage(rng, 1+rng.IntN(1400))) // it may be full, or refuse
	}
	for range 1000 {
		tcp, err := new(net.Dialer).DialContext(t.Context(), "tcp", victim.gossip)
		if err != nil {
			t.Fatal(err)
		}
		_ = tcp.SetDeadline(time.Now().Add(soon))
		_, _ = tcp.Write(garbage(rng, 1+rng.IntN(4000))) // it may hang up before
		_ = tcp.Close()
	}
	victim.until(victim.log, "something that is no gossip arrived on the gossip port")
	decides(t, all, "garbage")
	victim.unharmed(t, rss, lines)
	for _, s := range all {
		s.settled(t, 2)
	}
}

// garbage returns n random bytes. Half of the results begin like a gossip message: a
// type, a length that is too large, a list of other messages.
func garbage(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.UintN(256))
	}
	if rng.IntN(2) == 0 {
		b[0] = byte(rng.IntN(14)) // memberlist's types
		if n > 8 && rng.IntN(2) == 0 {
			copy(b[1:], []byte{0x83, 0xa4, 'N', 'o', 'd', 'e', 0xdb}) // a map whose first string is long
		}
		if n > 40 && rng.IntN(3) == 0 {
			copy(b[10:], bytes.Repeat([]byte{0xff}, 20))
		}
	}
	return b
}

// Members with different rules are seen in `weir members`, in a metric, and in
// one line of each log.
func TestRulesDiffer(t *testing.T) {
	all := places(t, 2, clusterRules)
	other := write(t, clusterRules+"  - {name: more, match: {path: \"^/more\"}, limits: [5/second]}\n")
	for i, a := range all[1].args {
		if a == "--rules" {
			all[1].args[i+1] = other
		}
	}
	for _, s := range all {
		s.start(t)
	}
	settle(t, all)
	for _, s := range all {
		s.says(t, "members have different rules")
		if _, body := get(t, http.DefaultClient, "http://"+s.admin+"/metrics"); !strings.Contains(body,
			"\nweir_rules_differ 1\n") {
			t.Errorf("the metrics of %s do not tell", s.name)
		}
	}
	tool := filepath.Join(t.TempDir(), "weir")
	if out, err := command(t, "../weir", nil, "go", "build", "-o", tool, "."); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := command(t, ".", nil, tool, "members", "--server", all[0].admin)
	if err != nil || !strings.Contains(text, "different rules") {
		t.Errorf("weir members: %v\n%s", err, text)
	}
	out, err := exec.CommandContext(t.Context(), tool, "members", "--json", "--server", all[0].admin).Output()
	var list struct {
		Members []struct {
			RulesHash string `json:"rules_hash"`
		}
	}
	if err := json.Unmarshal(out, &list); err != nil || len(list.Members) != 2 ||
		list.Members[0].RulesHash == list.Members[1].RulesHash {
		t.Errorf("weir members --json: %v\n%s", err, out)
	}
	if err != nil {
		t.Error(err)
	}
	decides(t, all, "rules")
	replace(t, other, clusterRules)
	for _, s := range all {
		s.says(t, "all members have the same rules")
	}
}

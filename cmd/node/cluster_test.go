//go:build unix

package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
)

const (
	clusterKeys  = 300 // in each of the groups
	clusterLimit = 100
	clusterD     = 5 // what a takeover may admit too much: 5 % of the limit
)

const clusterRules = `version: 1
rules:
  - {name: keys, match: {path: "^/k"}, key: [path, user], limits: [{limit: 100, window: 1d, algorithm: fixed_window, align: first_hit}]}
`

// seat is a place for a node: its name and addresses stay when it restarts.
type seat struct {
	name, http, grpc, peers, gossip, admin string
	program                                string   // that is started; empty: this version's
	args                                   []string // the node's, all of them
	// shown is how it is asked; nil: without TLS.
	shown credentials.TransportCredentials
	*process
}

// Ports are below the range that systems assign to outgoing connections, so that none
// is taken while its node restarts.
const lowestPort, highestPort = 12000, 32000

// taken are the ports of tests that run, some of which no node listens on at present.
var taken sync.Map

// freePorts returns loopback addresses that are free for TCP and UDP, and no other test's.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var out []string
	var config net.ListenConfig
	for range 100 * n {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(lowestPort+rand.IntN(highestPort-lowestPort)))
		tcp, err := config.Listen(t.Context(), "tcp", addr)
		if err != nil {
			continue
		}
		defer tcp.Close()
		udp, err := config.ListenPacket(t.Context(), "udp", addr)
		if err != nil {
			continue
		}
		defer udp.Close()
		if _, others := taken.LoadOrStore(addr, true); others {
			continue
		}
		t.Cleanup(func() { taken.Delete(addr) })
		if out = append(out, addr); len(out) == n {
			return out
		}
	}
	t.Fatalf("only %d of %d ports are free", len(out), n)
	return nil
}

// places returns seats for some nodes of one cluster, which are not started. With
// -short it skips the test.
// More flags, if any, are for each of them.
func places(t *testing.T, n int, rules string, flags ...string) []*seat {
	t.Helper()
	if testing.Short() {
		t.Skip("a cluster of real processes is long; make kill runs one, make test-long all")
	}
	file := write(t, rules)
	ports := freePorts(t, 5*n)
	var out []*seat
	var gossips []string
	for i := range n {
		p := ports[5*i:]
		out = append(out, &seat{name: fmt.Sprintf("node-%d", i+1), http: p[0], grpc: p[1], peers: p[2], gossip: p[3],
			admin: p[4]})
		gossips = append(gossips, p[3])
	}
	for _, s := range out {
		s.args = append([]string{"serve", "--rules", file, "--http-addr", s.http, "--grpc-addr", s.grpc, "--admin-addr",
			s.admin, "--name", s.name,
			"--peer-addr", s.peers, "--gossip-addr", s.gossip, "--join", strings.Join(gossips, ",")}, flags...)
	}
	return out
}

// seats returns three places, with a node on each, which have clusterRules.
func seats(t *testing.T, flags ...string) []*seat {
	t.Helper()
	all := places(t, 3, clusterRules, flags...)
	for _, s := range all {
		s.start(t)
	}
	settle(t, all)
	return all
}

// start starts the node. It does not wait.
func (s *seat) start(t *testing.T) {
	t.Helper()
	p := launchBy(t, exec.CommandContext(t.Context(), cmp.Or(s.program, program), s.args...))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of %s:\n%s", s.name, p.log)
		}
	})
	s.process = p
}

// left waits until the node, which was told to stop, has stopped in good order.
func (s *seat) left(t *testing.T) {
	t.Helper()
	s.end(0)
	if !strings.Contains(s.log.String(), "all counters were handed over") {
		t.Errorf("%s did not hand over:\n%s", s.name, s.log)
	}
}

// settle waits until some nodes, which are all that is active, are ready and
// hold what they should.
func settle(t *testing.T, all []*seat) {
	t.Helper()
	for _, s := range all {
		s.until(s.log, "the node is ready")
	}
	for _, s := range all {
		s.settled(t, len(all))
	}
}

// settled waits until the node sees so many active members, and holds what it
// should.
func (s *seat) settled(t *testing.T, members int) {
	t.Helper()
	want := []string{fmt.Sprintf("weir_members{state=\"active\"} %d\n", members), "weir_partitions_unsettled 0\n"}
	deadline := time.After(soon)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		status, body := get(t, http.DefaultClient, "http://"+s.admin+"/metrics")
		if status == http.StatusOK && strings.Contains(body, want[0]) && strings.Contains(body, want[1]) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s never saw %d members settled:\n%s\n%s", s.name, members, body, s.log)
		}
	}
}

// events returns how often one of some things happened to partitions at some
// nodes, by their metrics.
func events(t *testing.T, all []*seat, names ...string) (n int) {
	t.Helper()
	for _, s := range all {
		_, body := get(t, http.DefaultClient, "http://"+s.admin+"/metrics")
		for _, name := range names {
			_, value, _ := strings.Cut(body, "weir_partition_events_total{event=\""+name+"\"} ")
			value, _, _ = strings.Cut(value, "\n")
			count, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatalf("%s does not tell how often %q happened: %v", s.name, name, err)
			}
			n += int(count)
		}
	}
	return n
}

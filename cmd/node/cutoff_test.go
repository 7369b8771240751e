//go:build unix

package main

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// elsewhere has a node advertise an address of this machine at which its gossip is
// and its peer port is not.
func (s *seat) elsewhere(t *testing.T) {
	t.Helper()
	const host = "127.0.0.2"
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", host+":0")
	if err != nil {
		t.Skipf("NOT TESTED: this machine has no %s: %v", host, err)
	}
	_ = l.Close() // it was only tried
	_, port, err := net.SplitHostPort(s.gossip)
	if err != nil {
		t.Fatal(err)
	}
	s.args = append(s.args, "--gossip-addr", "0.0.0.0:"+port, "--advertise", host, "--insecure")
	s.gossip = host + ":" + port
}

// A node that gossips, and can talk to no other, gets no part of the ring and is not
// ready, and both sides say whom they do not reach. Once one way is open it joins.
func TestCutOff(t *testing.T) {
	all := places(t, 2, clusterRules)
	first, second := all[0], all[1]
	first.elsewhere(t)
	first.args = append(first.args, "--join", "")
	good := slices.Clone(second.args)
	second.elsewhere(t)
	second.args = append(second.args, "--join", first.gossip)
	first.start(t)
	first.until(first.log, "the node is ready")
	second.start(t)
	second.until(second.log, "it does not become ready")
	second.unready(t, `and reaches none at its peer address: \"node-1\" at 127.0.0.2:`)
	for i, s := range all {
		s.says(t, `no connection to node \"node-`+string(rune('2'-i))+`\" at 127.0.0.2:`, "--peer-addr, --advertise")
	}
	_, body := get(t, http.DefaultClient, "http://"+first.admin+"/metrics")
	for _, line := range []string{`weir_members{state="unmet"} 1`, "weir_members_unreachable 1", "weir_ring_share 1",
		"weir_partitions_unsettled 0"} {
		if !strings.Contains(body, "\n"+line+"\n") {
			t.Errorf("the metrics lack %q", line)
		}
	}
	tool := tool(t)
	if text, err := command(t, ".", nil, tool, "members", "--server", first.admin); err != nil ||
		!strings.Contains(text, "joining, unreachable") {
		t.Errorf("weir members: %v\n%s", err, text)
	}
	if text, err := command(t, ".", nil, tool, "members", "forget", "node-3", "--server", first.admin); err == nil ||
		strings.Count(text, "weir: ") != 1 || !strings.Contains(text, `no dead member "node-3"`) {
		t.Errorf("weir members forget: %v\n%s", err, text)
	}
	decides(t, all[:1], "alone")

	second.signal(syscall.SIGTERM)
	second.end(0)
	good = append(good, "--join", first.gossip)
	second.args = good
	second.start(t)
	settle(t, all)
	decides(t, all, "together")
}

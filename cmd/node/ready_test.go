package main

import (
	"bufio"
	"net"
	"testing"
)

// A node that is ready says where it is asked, also by Redis clients and by HAProxy: port 0 takes a free port.
func TestReadyNamesEachPort(t *testing.T) {
	p, _, _ := serve(t, "--rules", write(t, "version: 1\nrules: []\n"), "--allow-request-limits", "--redis-listen",
		"127.0.0.1:0", "--auth-proxy", "127.0.0.1", "--spoe-listen", "127.0.0.1:0")
	conn, err := net.Dial("tcp", p.at("redis_protocol"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	if got, err := bufio.NewReader(conn).ReadString('\n'); got != "+PONG\r\n" {
		t.Errorf("PING: %q, %v", got, err)
	}
	agent, err := net.Dial("tcp", p.at("spoe"))
	if err != nil {
		t.Fatal(err)
	}
	_ = agent.Close()
}

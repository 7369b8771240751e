package cluster_test

import (
	"net"
	"strings"
	"testing"
)

// Where a seed takes connections and ends them, a node may be there that is attacked. Who
// joins waits, and says for what.
func TestASeedThatEndsConnectionsIsWaitedFor(t *testing.T) {
	seed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	go func() {
		for c, err := seed.Accept(); err == nil; c, err = seed.Accept() {
			c.Close()
		}
	}()
	n := open(t, memberConfig("node-1", hundred, seed.Addr().String()))
	until(t, "it says what it waits for", func() bool {
		err := n.Ready()
		return err != nil && strings.Contains(err.Error(), "does not answer") &&
			strings.Contains(err.Error(), seed.Addr().String())
	})
}

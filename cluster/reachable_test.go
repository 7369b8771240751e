package cluster

import "testing"

// A member tells others its AdminAddr, unless that is loopback and they reach it by
// another address: they would ask themselves.
func TestReachableAdmin(t *testing.T) {
	for _, c := range []struct{ addr, host, want string }{
		{"127.0.0.1:8082", "127.0.0.1", "127.0.0.1:8082"}, {"[::1]:8082", "localhost", "[::1]:8082"},
		{"localhost:8082", "127.0.0.3", "localhost:8082"},
		{"127.0.0.1:8082", "10.0.0.5", ""}, {"[::1]:8082", "node-1", ""}, {"localhost:8082", "node-1", ""},
		{"[::]:8082", "node-1", "node-1:8082"}, {":8082", "10.0.0.5", "10.0.0.5:8082"},
		{"10.0.0.6:8082", "10.0.0.5", "10.0.0.6:8082"},
		{"127.0.0.1:8082", "", "127.0.0.1:8082"}, {"", "node-1", ""},
	} {
		if got := reachableAdmin(c.addr, c.host); got != c.want {
			t.Errorf("%q of a member at %q is told as %q, want %q", c.addr, c.host, got, c.want)
		}
	}
}
